"""Measure a complete billing day: generate and price invoices, charge them over HTTP, reconcile, and deliver events.

The engine runs as two worker processes with all lanes. The gateway, the price endpoint and the webhook receiver share
another process. The day ends when every invoice is paid and every event is delivered.

The engine is compared with a rival that has two steps. The times of both steps are added. First, the engine only
generates the invoices. Then a bare loop repeats the recorded HTTP calls, over as many connections as the engine had
open.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from uuid import UUID

from bench import all_lanes
from bench.bare_client import repeat_calls
from bench.frame import Figure, Measured, Options
from bench.one_lane import worked
from bench.outside import GatewayProcess, started
from bench.prepared import analyze_filled, prepare
from bench.servers import cloned, open_accounts, opened, prepared, seen, server
from bench.sides import ROUNDS
from fatura.usecases.connections import gateway_connections
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_transaction, load_account
from fatura.usecases.webhooks import webhooks
from tests.faults.external_gateway import external_providers

ACCOUNTS = 4
VARIABLE_EVERY = 10
WORKERS = 2
LEAST_RATIO = 0.6
LOOK_EVERY_SECONDS = 0.02
DAY_SECONDS = 120

_USAGE = (
    """
    INSERT INTO product (account_id, product_id, name, pricing_mode, endpoint_url, cap_cents, created_at)
    VALUES ($1, gen_random_uuid(), 'Usage', 'endpoint', $2, 100000, now())
    """,
    """
    INSERT INTO plan_version (account_id, plan_version_id, plan_id, version, name, period_months,
        default_payment_method, max_installments, created_at)
    SELECT $1, gen_random_uuid(), p.plan_id, 2, 'Usage', 1, 'pix', 1, now()
    FROM plan p WHERE p.account_id = $1 AND $2::text IS NOT NULL ORDER BY p.plan_id LIMIT 1
    """,
    """
    INSERT INTO plan_item (account_id, plan_version_id, position, product_id)
    SELECT $1, v.plan_version_id, row_number() OVER (ORDER BY p.pricing_mode DESC, p.name) - 1, p.product_id
    FROM plan_version v, product p
    WHERE v.account_id = $1 AND p.account_id = $1 AND v.version = 2 AND p.name IN ('Product 1', 'Usage')
        AND $2::text IS NOT NULL
    """,
)
_BIND = """
    UPDATE subscription s SET connection_id = $2,
        plan_version_id = CASE WHEN n.place % $3 = 0 THEN v.plan_version_id ELSE s.plan_version_id END,
        plan_id = CASE WHEN n.place % $3 = 0 THEN v.plan_id ELSE s.plan_id END
    FROM (SELECT subscription_id, row_number() OVER () AS place FROM subscription WHERE account_id = $1) n,
        plan_version v
    WHERE s.account_id = $1 AND s.subscription_id = n.subscription_id AND v.account_id = $1 AND v.version = 2
"""
_LEFT = """
    SELECT (SELECT count(*) FROM subscription WHERE account_id = $1)
        - (SELECT count(*) FROM invoice WHERE account_id = $1 AND status = 'paid')
        + (SELECT count(*) FROM delivery WHERE account_id = $1 AND next_attempt_at IS NOT NULL)
        + (SELECT n.last_sequence - w.fanned_out_to FROM account_counter n, webhook w
            WHERE n.account_id = $1 AND w.account_id = $1)
"""


def run(options: Options) -> Measured:
    measured = Measured()
    with server() as url:
        asyncio.run(_run(options, measured, url, invoices=options.pick(short=2_000, full=20_000)))
    return measured


async def _run(options: Options, measured: Measured, server_url: str, *, invoices: int) -> None:
    ids: list[UUID] = []
    ours, theirs = list[float](), list[float]()
    async with started() as outside:

        async def fill(url: str) -> None:
            ids.extend(each.account_id for each in await open_accounts(url, ACCOUNTS))
            async with opened_with_gateway(url, outside) as deps:
                for account_id in ids:
                    await _prepare(deps, url, account_id, outside=outside, due=invoices // ACCOUNTS)

        await prepared(server_url, "day", fill)
        events = invoices * 3 + invoices // VARIABLE_EVERY
        for number in range(ROUNDS):
            async with cloned(server_url, "day") as url:
                seconds = await run_day(url, ids, outside, events=events)
            recorded = await outside.take_calls()
            async with cloned(server_url, "day") as url:
                generation = (await worked(url, "generation", invoices)).seconds
            calls = await repeat_calls(outside.url, recorded)
            await outside.take_calls()
            ours.append(invoices / seconds)
            theirs.append(invoices / (generation + calls))
            options.log(
                f"day {number + 1}: {ours[-1]:,.0f} invoices/s; generation {generation:.2f} s and "
                f"{len(recorded.calls):,} bare calls {calls:.2f} s: {theirs[-1]:,.0f}/s"
            )
    what = (
        f"a day of {invoices:,} invoices, one in {VARIABLE_EVERY} with a price call: paid and delivered "
        f"by {WORKERS} worker processes"
    )
    against = "generation alone and a bare loop that makes the same calls"
    measured.figures.append(Figure(2, what, "invoices/s", against, ours, theirs, at_least=LEAST_RATIO))


async def run_day(url: str, account_ids: Sequence[UUID], outside: GatewayProcess, *, events: int) -> float:
    """Let the workers bill until `events` events are delivered and no work is left. Return the elapsed seconds."""
    async with AsyncExitStack() as started:
        processes = [
            await started.enter_async_context(all_lanes.started(url, outside.url)) for _ in range(WORKERS)
        ]
        began = time.perf_counter()
        for process in processes:
            all_lanes.begin(process)
        async with asyncio.timeout(DAY_SECONDS):
            while await outside.events() < events:  # noqa: ASYNC110 - another process works
                await asyncio.sleep(LOOK_EVERY_SECONDS)
            for account_id in account_ids:
                while await _left(url, account_id):  # noqa: ASYNC110 - another process works
                    await asyncio.sleep(LOOK_EVERY_SECONDS)
        took = time.perf_counter() - began
        await asyncio.gather(*map(all_lanes.stopped, processes))
    return took


async def _left(url: str, account_id: UUID) -> int:
    async with seen(url, account_id) as connection:
        return await connection.fetchval(_LEFT, account_id)


async def _prepare(deps: Deps, url: str, account_id: UUID, *, outside: GatewayProcess, due: int) -> None:
    """Give an account a test gateway, a webhook and due subscriptions, some of which have a variable item."""
    connection_id = await connect_gateway(deps, account_id)
    account = await load_account(deps, account_id)
    await in_transaction(deps, account, lambda work: webhooks.register(work, f"{outside.url}/webhook"))
    async with seen(url, account_id) as connection:
        await prepare(connection, account_id, due=due)
        for statement in _USAGE:
            await connection.execute(statement, account_id, f"{outside.url}/price")
        await connection.execute(_BIND, account_id, connection_id, VARIABLE_EVERY)
        await analyze_filled(connection)


@asynccontextmanager
async def opened_with_gateway(url: str, outside: GatewayProcess) -> AsyncGenerator[Deps]:
    """Yield the engine's dependencies for a database. The only payment provider is the gateway of `bench.outside`."""
    async with opened(url) as deps, external_providers(outside.url)(deps.db) as providers:
        yield replace(deps, providers=providers)


async def connect_gateway(
    deps: Deps, account_id: UUID, *, settings: Mapping[str, str] = MappingProxyType({})
) -> UUID:
    """Connect an account to the gateway of `bench.outside`. Return the connection's id."""

    async def connect(work: Work) -> str:
        made = await gateway_connections.connect(
            work, provider="outside", label=None, credentials={}, settings=settings, provider_account=None
        )
        return made.connection_id

    return UUID(await in_transaction(deps, await load_account(deps, account_id), connect))
