"""Measure how fast events are delivered, compared with a bare loop that posts the same bytes to the same receiver.

The engine runs as a worker process with the push lane and an empty delivery table. Four accounts have events to
deliver. Each invoice has three events, which must arrive in order. After the worker has ended, the bare loop repeats
the calls that the receiver got, over as many connections as the engine had open.
"""

import asyncio
from uuid import UUID

from bench.bare_client import repeat_calls
from bench.frame import Figure, Measured, Options
from bench.one_lane import worked
from bench.outside import GatewayProcess, started
from bench.servers import cloned, open_accounts, opened, prepared, seen, server
from bench.sides import ROUNDS
from fatura.usecases.transaction import in_transaction, load_account
from fatura.usecases.webhooks import webhooks

ACCOUNTS = 4
EVENTS_AN_INVOICE = 3
LEAST_RATIO = 0.6

_EVENTS = """
    WITH made AS MATERIALIZED (
        SELECT n, gen_random_uuid() AS invoice_id, gen_random_uuid() AS subscription_id
        FROM generate_series(1, $2::int8) n
    ), inserted AS (
        INSERT INTO event (account_id, sequence, event_id, type, created_at, invoice_id, data, stored_at)
        SELECT $1, ($2 * (k - 1)) + n, gen_random_uuid(), ('{invoice.created,invoice.issued,invoice.paid}'::text[])[k],
            now(), m.invoice_id,
            '{"invoice":{"id":"' || m.invoice_id || '","subscriptionId":"' || m.subscription_id || '","cycle":1,'
            || '"status":"ready","dueDate":"2026-01-10","paymentMethod":"pix","installments":null,"totalCents":7992,'
            || '"gatewayInvoiceId":null,"issuedAt":null,"paidAt":null,"createdAt":"2026-01-07T03:00:00.000Z",'
            || '"subscriptionExternalRef":null,"customerId":"' || m.subscription_id || '","customerExternalRef":"c-'
            || n || '","items":[' || repeat('{"productName":"Gym membership","amountCents":3996},', 9) || '{}]}}', now()
        FROM made m CROSS JOIN generate_series(1, 3) k
    )
    UPDATE account_counter SET last_sequence = $2 * 3, untaken_events = true WHERE account_id = $1
"""


def run(options: Options) -> Measured:
    measured = Measured()
    with server() as url:
        asyncio.run(_run(options, measured, url, events=options.pick(short=6_000, full=60_000)))
    return measured


async def _run(options: Options, measured: Measured, server_url: str, *, events: int) -> None:
    invoices = events // ACCOUNTS // EVENTS_AN_INVOICE
    ours, theirs = list[float](), list[float]()
    async with started() as receiver:

        async def fill(url: str) -> None:
            for account in await open_accounts(url, ACCOUNTS):
                await _fill(url, account.account_id, receiver, invoices=invoices)

        await prepared(server_url, "stream", fill)
        for number in range(ROUNDS):
            async with cloned(server_url, "stream") as url:
                engine = await worked(url, "push", events)
            recorded = await receiver.take_calls()
            assert len(recorded.calls) == events, f"{len(recorded.calls)} of {events} events arrived"
            ours.append(events / engine.seconds)
            theirs.append(events / await repeat_calls(receiver.url, recorded))
            await receiver.take_calls()
            options.log(
                f"round {number + 1}: {ours[-1]:,.0f} deliveries/s over {recorded.most_open} connections, "
                f"bare {theirs[-1]:,.0f}/s"
            )
    what = f"{events:,} events of {ACCOUNTS} accounts, {EVENTS_AN_INVOICE} per invoice, to a fast receiver"
    against = "a bare client loop"
    measured.figures.append(Figure(8, what, "deliveries/s", against, ours, theirs, at_least=LEAST_RATIO))


async def _fill(url: str, account_id: UUID, receiver: GatewayProcess, *, invoices: int) -> None:
    """Register a webhook, then insert events of invoices into the account's stream."""
    async with opened(url) as deps:
        account = await load_account(deps, account_id)
        await in_transaction(deps, account, lambda work: webhooks.register(work, f"{receiver.url}/webhook"))
    async with seen(url, account_id) as connection:
        await connection.execute(_EVENTS, account_id, invoices)
        await connection.execute("ANALYZE event")
