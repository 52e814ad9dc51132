"""Measure a billing run while the lane `retention` deletes old rows of the same account, and without this lane."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

from bench import one_lane
from bench.frame import Amount, Figure, Measured, Options
from bench.prepared import connected, prepare
from bench.servers import cloned, open_accounts, prepared, seen, server
from bench.sides import ROUNDS

LEAST_RATIO = 0.85
OLD_EVENTS = 150_000
_OLD = (
    """
    INSERT INTO event (account_id, sequence, event_id, type, created_at, data, stored_at)
    SELECT $1, n, gen_random_uuid(), 'invoice.paid', now() - interval '6 years', repeat('{"invoice": {"id": 1}}', 70),
        now() - interval '6 years'
    FROM generate_series(1, $2::int4) n
    """,
    """
    INSERT INTO delivery (account_id, sequence, attempts, delivered_at, waits)
    SELECT $1, n, 1, now(), NULL FROM generate_series(1, $2::int4) n
    """,
    """
    INSERT INTO delivery_attempt (account_id, sequence, attempt, url, outcome, response_status, latency_ms, created_at,
        stored_at)
    SELECT $1, n, 1, 'https://merchant.example/', 'delivered', 200, 20, now(), now() - interval '6 years'
    FROM generate_series(1, $2::int4) n
    """,
    "UPDATE account_counter SET last_sequence = $2::int4 WHERE account_id = $1",
    "UPDATE retention SET kept_from = now() - interval '6 years' WHERE account_id = $1 AND $2::int4 > 0",
)
_LEFT = "SELECT count(*) FROM event WHERE account_id = $1 AND stored_at < now() - interval '5 years'"


def run(options: Options) -> Measured:
    return asyncio.run(_run(options, due=options.pick(short=20_000, full=100_000)))


async def _run(options: Options, *, due: int) -> Measured:
    ids: list[UUID] = []

    async def fill(url: str) -> None:
        (account,) = await open_accounts(url, 1)
        ids.append(account.account_id)
        connection = await connected(url.replace("://fatura@", "://postgres@"))
        await prepare(connection, account.account_id, due=due)
        for statement in _OLD:
            await connection.execute(statement, account.account_id, OLD_EVENTS)
        await connection.execute("VACUUM ANALYZE")
        await connection.close()

    rates: dict[bool, list[float]] = {False: [], True: []}
    deleted: list[float] = []
    with server() as server_url:
        await prepared(server_url, "kept", fill)
        for number in range(ROUNDS):
            for deletes in (False, True) if number % 2 else (True, False):
                rate, gone = await _billed(server_url, ids[0], due=due, deletes=deletes)
                rates[deletes].append(rate)
                deleted += [gone] if deletes else []
            options.log(
                f"round {number + 1}: {rates[True][-1]:.0f} invoices/s beside the deletion of {deleted[-1]:.0f} events "
                f"a second, {rates[False][-1]:.0f} without"
            )
    what = f"one account, {due:,} due, while old rows of the account are deleted"
    measured = Measured()
    measured.figures.append(
        Figure(14, what, "invoices/s", "no deletion", rates[True], rates[False], at_least=LEAST_RATIO)
    )
    lowest = "events deleted a second during these runs, with a delivery and an attempt each"
    measured.amounts.append(Amount(14, lowest, "events/s", sum(deleted) / len(deleted)))
    return measured


async def _billed(server_url: str, account_id: UUID, *, due: int, deletes: bool) -> tuple[float, float]:
    """Return how many invoices were created, and how many events were deleted, per second of the billing run."""
    async with cloned(server_url, "kept") as url, AsyncExitStack() as stack:
        deleting: Any = None
        if deletes:
            deleting = await stack.enter_async_context(one_lane.started(url, "retention", 0))
            deleting.stdin.write(b"begin\n")
            await deleting.stdin.drain()
        worked = await one_lane.worked(url, "generation", due)
        if deleting is not None:
            deleting.stdin.close()
            await deleting.communicate()
        async with seen(url, account_id) as connection:
            left = await connection.fetchval(_LEFT, account_id)
        assert not deletes or left, "all old events were deleted before the billing run ended"
        return due / worked.seconds, (OLD_EVENTS - left) / worked.seconds
