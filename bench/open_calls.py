"""Measure how much 256 open price calls to a slow merchant delay the work of another merchant in the same worker.

    python -m bench.open_calls [--open 256] [--hold 8] [--rounds 5] [--samples 40]

One worker process serves both merchants, and each merchant has its own endpoint. The program measures how long the
other merchant waits after a subscription becomes due: until the price call arrives, and until the `invoice.ready` event
arrives. Each round measures both times without calls to the slow merchant, and then while all calls to the slow
merchant are open. The program prints the medians and the ratios.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp

from bench.endpoints import started
from bench.operator import OPERATOR
from bench.prepared import connected, prepare
from fatura import postgres, settings
from fatura.bootstrap import wire
from fatura.domain.account import Account
from fatura.domain.credentials import Mode
from fatura.outbound.http.call_limits import MAX_CALLS_OF_ACCOUNT
from fatura.store.db import connect
from fatura.store.vault import Vault, new_key
from fatura.usecases.accounts import accounts, tag_key
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import in_transaction, load_account
from fatura.usecases.webhooks import webhooks
from tests.support.databases import migrate_as_owner

PACE_SECONDS = 0.1
FAR_AWAY = "2099-01-01"

VARIABLE = (
    """
    INSERT INTO product (account_id, product_id, name, pricing_mode, endpoint_url, cap_cents, created_at)
    VALUES ($1, gen_random_uuid(), 'Usage', 'endpoint', $2, 100000, now())
    """,
    """
    INSERT INTO plan_item (account_id, plan_version_id, position, product_id)
    SELECT $1, v.plan_version_id, 2, p.product_id FROM plan_version v, product p
    WHERE v.account_id = $1 AND p.account_id = $1 AND p.endpoint_url = $2
    """,
)


@dataclass(frozen=True, slots=True)
class Merchant:
    account: Account
    connection: Any
    base_url: str

    async def seen(self) -> Any:
        async with aiohttp.ClientSession() as session, session.get(f"{self.base_url}/seen") as answer:
            return await answer.json()

    async def fall_due(self, subscription_ids: Sequence[UUID]) -> None:
        """Make the subscriptions due now, and notify the worker."""
        await self.connection.execute(
            "UPDATE subscription SET generate_at = now() WHERE account_id = $1 AND subscription_id = ANY($2::uuid[])",
            self.account.account_id,
            subscription_ids,
        )
        await self.connection.execute("NOTIFY fatura_work, 'generation'")

    async def subscriptions(self) -> list[UUID]:
        rows = await self.connection.fetch(
            "SELECT subscription_id FROM subscription WHERE account_id = $1", self.account.account_id
        )
        return [row["subscription_id"] for row in rows]

    async def quiet(self) -> None:
        """Wait until no invoice of the account waits for a price or for issuance."""
        waiting = "SELECT count(*) FROM invoice WHERE account_id = $1 AND status = ANY('{draft,awaiting_value,ready}')"
        while await self.connection.fetchval(waiting, self.account.account_id):  # noqa: ASYNC110 - another process works
            await asyncio.sleep(0.1)


async def merchant(deps: Deps, url: str, base_url: str, *, subscribers: int) -> Merchant:
    """Open an account whose subscriptions have two fixed items and one variable item. No subscription is due yet."""
    opened = await accounts.open_account(deps, name="bench", mode=Mode.SANDBOX, opened_by=OPERATOR)
    connection = await connected(url)
    await prepare(connection, opened.account_id, due=subscribers)
    await connection.execute(
        f"UPDATE subscription SET generate_at = '{FAR_AWAY}' WHERE account_id = $1",  # noqa: S608 - a constant
        opened.account_id,
    )
    for statement in VARIABLE:
        await connection.execute(statement, opened.account_id, f"{base_url}/price")
    return Merchant(await load_account(deps, opened.account_id), connection, base_url)


@asynccontextmanager
async def worker(url: str, key: str) -> AsyncGenerator[None]:
    environment = os.environ | {
        "FATURA_DATABASE_URL": url,
        "FATURA_SECRET_KEYS": key,
        "FATURA_OUTBOUND_ALLOW": "127.0.0.1:1-65535",
        "FATURA_LOG_LEVEL": "error",
    }
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "fatura", "worker", env=environment)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def sampled(neighbour: Merchant, subscription_ids: Sequence[UUID]) -> tuple[float, float]:
    """Return the median milliseconds from the due time to the price call, and to the delivery of the event."""
    due: dict[str, float] = {}
    for each in subscription_ids:
        due[str(each)] = time.monotonic()
        await neighbour.fall_due([each])
        await asyncio.sleep(PACE_SECONDS)
    seen = await neighbour.seen()
    while not due.keys() <= seen["events"].keys():
        await asyncio.sleep(0.05)
        seen = await neighbour.seen()
    calls = statistics.median((seen["prices"][each] - at) * 1000 for each, at in due.items())
    deliveries = statistics.median((seen["events"][each] - at) * 1000 for each, at in due.items())
    return calls, deliveries


async def hold_open(slow: Merchant, subscription_ids: Sequence[UUID]) -> None:
    """Start all of the slow merchant's calls, and wait until all are open."""
    await slow.fall_due(subscription_ids)
    while (await slow.seen())["open"] < len(subscription_ids):  # noqa: ASYNC110 - another process works
        await asyncio.sleep(0.05)


async def run(server_url: str, options: argparse.Namespace) -> None:
    await migrate_as_owner(server_url)
    key = new_key()
    db = await connect(server_url, max_connections=4)
    environment = {"FATURA_OUTBOUND_ALLOW": "127.0.0.1:1-65535"}
    vault = Vault([key])
    tagger = await tag_key.load(db, vault)
    deps = wire(settings.read(environment), db, vault=vault, tagger=tagger, notify=lambda _lane: None)
    async with started(delay=options.hold) as slow_url, started(delay=0) as fast_url:
        slow = await merchant(deps, server_url, slow_url, subscribers=options.open)
        neighbour = await merchant(
            deps, server_url, fast_url, subscribers=options.samples * options.rounds * 2
        )
        await in_transaction(
            deps, neighbour.account, lambda work: webhooks.register(work, f"{fast_url}/webhook")
        )
        async with worker(server_url, key):
            await measure(slow, neighbour, options)
    await db.close()


async def measure(slow: Merchant, neighbour: Merchant, options: argparse.Namespace) -> None:
    held = await slow.subscriptions()
    fresh = iter(await neighbour.subscriptions())
    print("round  call ms: alone  beside  ratio   delivery ms: alone  beside  ratio   open at once")
    ratios: tuple[list[float], list[float]] = ([], [])
    for number in range(1, options.rounds + 1):
        alone = await sampled(neighbour, [next(fresh) for _ in range(options.samples)])
        await hold_open(slow, held)
        beside = await sampled(neighbour, [next(fresh) for _ in range(options.samples)])
        still_open = (await slow.seen())["mostOpen"]
        for kept, together, single in zip(ratios, beside, alone, strict=True):
            kept.append(together / single)
        print(
            f"{number:5}  {alone[0]:14.0f}  {beside[0]:6.0f}  {ratios[0][-1]:5.2f}"
            f"  {alone[1]:19.0f}  {beside[1]:6.0f}  {ratios[1][-1]:5.2f}  {still_open:13}",
            flush=True,
        )
        await slow.quiet()
    for name, kept in zip(("calls", "deliveries"), ratios, strict=True):
        print(f"{name}: median {statistics.median(kept):.2f}, min {min(kept):.2f}, max {max(kept):.2f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--open", type=int, default=MAX_CALLS_OF_ACCOUNT)
    parser.add_argument("--hold", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=40)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="fatura-bench-") as folder:
        Path(folder).chmod(0o711)
        with postgres.start(Path(folder) / "data") as server:
            asyncio.run(run(server.url, options))


if __name__ == "__main__":
    main()
