"""Measure the time of `fatura check` per invoice, in an account with 25,000 paid invoices and in a larger account.

Each invoice has two items, a charge, a payment and three events. Charging so many invoices would take an hour. Plain
SQL therefore inserts the charges, the payments and their events, as the engine would have written them.
"""

import asyncio
import time
from uuid import UUID

from bench.day import connect_gateway, opened_with_gateway
from bench.frame import Amount, Figure, Measured, Options
from bench.one_lane import worked
from bench.outside import started
from bench.prepared import connected, prepare
from bench.servers import open_accounts, opened, prepared, server
from fatura.domain.credentials import Mode
from fatura.usecases.operations import checks

FEW = 25_000
MOST_RATIO = 1.5
MOST_SECONDS_A_MILLION = 120

_BIND = "UPDATE subscription SET connection_id = $2 WHERE account_id = $1"
_PAID = (
    "SET session_replication_role = replica",  # disables the triggers, which allow an invoice only one move at a time
    """
    INSERT INTO charge (account_id, charge_id, invoice_id, number, connection_id, stage, amount_cents, currency,
        payment_method, due_date, created_at, first_sent_at, sent_at, gateway_invoice_id, confirmed_at, closed_at,
        asked_at)
    SELECT v.account_id, gen_random_uuid(), v.invoice_id, 1, v.connection_id, 'paid', v.total_cents, v.currency,
        v.payment_method, v.due_date, now(), now(), now(), 'ch_' || v.invoice_id, now(), now(), now()
    FROM invoice v WHERE v.account_id = $1
    """,
    """
    INSERT INTO payment_entry (account_id, payment_entry_id, invoice_id, charge_id, connection_id, gateway_charge_id,
        kind, amount_cents, fee_cents, currency, occurred_at, source, reference, recorded_at)
    SELECT c.account_id, gen_random_uuid(), c.invoice_id, c.charge_id, c.connection_id, c.gateway_invoice_id, 'payment',
        c.amount_cents, 0, c.currency, now(), 'gateway', c.gateway_invoice_id, now()
    FROM charge c WHERE c.account_id = $1
    """,
    """
    INSERT INTO event (account_id, sequence, event_id, type, created_at, invoice_id, data, stored_at)
    SELECT e.account_id, n.last_sequence * k + e.sequence, gen_random_uuid(),
        ('{invoice.issued,invoice.paid}'::text[])[k], now(), e.invoice_id, e.data, now()
    FROM event e JOIN account_counter n ON n.account_id = e.account_id CROSS JOIN generate_series(1, 2) k
    WHERE e.account_id = $1
    """,
    """
    UPDATE invoice v SET status = 'paid', gateway_invoice_id = c.gateway_invoice_id, charge_due_date = c.due_date,
        issued_at = c.confirmed_at, paid_at = now(), next_attempt_at = now() + interval '1 day'
    FROM charge c WHERE c.account_id = $1 AND v.account_id = $1 AND v.invoice_id = c.invoice_id
    """,
    """
    UPDATE account_counter SET last_sequence = last_sequence * 3, invoices_paid = invoices_ready, invoices_ready = 0
    WHERE account_id = $1
    """,
)


def run(options: Options) -> Measured:
    return asyncio.run(_run(options, many=options.pick(short=100_000, full=1_000_000)))


async def _run(options: Options, *, many: int) -> Measured:
    measured = Measured()
    taken: dict[int, float] = {}
    for count in (FEW, many):
        with server() as server_url:
            account_id = await _filled(server_url, count)
            taken[count] = await _check(server_url, account_id)
            options.log(f"checked {count:,} paid invoices in {taken[count]:.1f} s")
    ours, theirs = 1000 * taken[many] / many, 1000 * taken[FEW] / FEW
    what = f"`fatura check`, an invoice among {many:,}"
    measured.figures.append(Figure(13, what, "ms", f"among {FEW:,}", [ours], [theirs], at_most=MOST_RATIO))
    limit = MOST_SECONDS_A_MILLION * many / 1_000_000
    what = f"`fatura check`, one account with {many:,} invoices"
    measured.amounts.append(Amount(13, what, "s", taken[many], at_most=limit))
    return measured


async def _filled(server_url: str, count: int) -> UUID:
    """Fill the database with paid invoices of one account, and return the account's id."""
    ids: list[UUID] = []

    async def fill(url: str) -> None:
        (account,) = await open_accounts(url, 1, mode=Mode.LIVE)
        ids.append(account.account_id)
        connection = await connected(url.replace("://fatura@", "://postgres@"))
        async with started() as outside, opened_with_gateway(url, outside) as deps:
            connection_id = await connect_gateway(deps, account.account_id)
        await prepare(connection, account.account_id, due=count)
        await connection.execute(_BIND, account.account_id, connection_id)
        await worked(url, "generation", count)
        for statement in _PAID:
            await connection.execute(statement, *([account.account_id] if "$1" in statement else []))
        await connection.execute("VACUUM ANALYZE")
        await connection.close()

    await prepared(server_url, "checked", fill)
    return ids[0]


async def _check(server_url: str, account_id: UUID) -> float:
    """Check all invariants as `fatura check` does. Return the seconds. Fails if an invariant is violated."""
    async with opened(server_url.replace("/fatura?", "/checked?")) as deps:
        began = time.perf_counter()
        found = await checks.findings(deps, account_id)
        assert not found, found
        return time.perf_counter() - began
