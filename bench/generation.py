"""How fast the billing run is, against one hand-written statement that writes the same rows into the same tables.

    python -m bench.generation [--due 100000] [--rounds 5]

Both sides run on the embedded default (fsync on), in turns, each on a fresh clone of one prepared database: one
account, two items a plan, a discount, events. Printed are invoices per second, the ratio round by round, and the
memory of the engine's process. They are figures of one machine in one run: quote the ratios.
"""

import argparse
import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from bench.by_hand import BY_HAND
from bench.prepared import connected, prepare
from fatura import settings
from fatura.bootstrap import wire
from fatura.domain.credentials import Mode
from fatura.store import embedded
from fatura.store.db import connect
from fatura.store.migrate import migrate
from fatura.store.vault import Vault, new_key
from fatura.usecases import accounts
from fatura.usecases.work import load_account
from fatura.workers.lanes import LANES

GENERATION = next(lane for lane in LANES if lane.name == "generation")
KILOBYTES_PER_MEGABYTE = 1024

Side = Callable[[str, UUID], Awaitable[int]]


async def by_engine(url: str, account_id: UUID) -> int:
    """Bill with the engine's own lane, batch by batch as a worker does."""
    db = await connect(url, max_connections=4)
    deps = wire(settings.read({}), db, vault=Vault([new_key()]), wake=lambda _lane: None)
    account = await load_account(deps, account_id)
    billed = 0
    while count := await GENERATION.run(deps, account):
        billed += count
    await db.close()
    return billed


async def by_hand(url: str, account_id: UUID) -> int:
    """Bill with the one statement."""
    connection = await connected(url)
    async with connection.transaction():
        await connection.execute(f"SET LOCAL app.account = '{account_id}'")
        status: str = await connection.execute(BY_HAND, account_id, datetime.now(UTC))
    await connection.close()
    return int(status.rsplit(" ", 1)[-1])


async def measured(
    server_url: str, account_id: UUID, side: Side, *, due: int
) -> tuple[float, tuple[int, ...]]:
    """Return a side's invoices per second on a fresh clone of the prepared database, and what it wrote."""
    admin = await connected(server_url)
    await admin.execute("DROP DATABASE IF EXISTS round WITH (FORCE)")
    await admin.execute("CREATE DATABASE round TEMPLATE prepared STRATEGY file_copy")
    await admin.close()
    url = server_url.replace("/fatura?", "/round?")
    started = time.perf_counter()
    billed = await side(url, account_id)
    seconds = time.perf_counter() - started
    assert billed == due, (billed, due)
    return due / seconds, await written(url, account_id)


async def written(url: str, account_id: UUID) -> tuple[int, ...]:
    """Return numbers and sums of the rows that a side wrote: both sides must agree in all of them."""
    connection = await connected(url)
    await connection.execute(f"SET app.account = '{account_id}'")
    row = await connection.fetchrow(
        """
        SELECT (SELECT count(*) FROM invoice), (SELECT sum(total_cents) FROM invoice),
            (SELECT count(*) FROM invoice_item), (SELECT sum(amount_cents) FROM invoice_item),
            (SELECT count(*) FROM event), (SELECT sum(length(data)) FROM event),
            (SELECT sum(next_due_date - date '2000-01-01') FROM subscription),
            (SELECT sum(cycle_count) FROM subscription), (SELECT last_sequence FROM account_counter)
        """
    )
    await connection.close()
    return tuple(row)


async def run(server_url: str, *, due: int, rounds: int) -> None:
    """Measure both sides in turns and print the table."""
    admin = await connected(server_url)
    await admin.execute("CREATE DATABASE prepared")
    await admin.close()
    url = server_url.replace("/fatura?", "/prepared?")
    await migrate(url)
    db = await connect(url, max_connections=2)
    deps = wire(settings.read({}), db, vault=Vault([new_key()]), wake=lambda _lane: None)
    account_id = (await accounts.open_account(deps, name="bench", mode=Mode.SANDBOX)).account_id
    await db.close()
    connection = await connected(url)
    await prepare(connection, account_id, due=due)
    await connection.close()
    print("round  engine/s  by hand/s  ratio  engine's peak memory")
    ratios: list[float] = []
    for number in range(1, rounds + 1):
        hand, written_by_hand = await measured(server_url, account_id, by_hand, due=due)
        engine, written_by_engine = await measured(server_url, account_id, by_engine, due=due)
        assert written_by_hand == written_by_engine, (written_by_hand, written_by_engine)
        ratios.append(engine / hand)
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // KILOBYTES_PER_MEGABYTE
        print(f"{number:5}  {engine:8.0f}  {hand:9.0f}  {ratios[-1]:5.2f}  {peak_mb} MB", flush=True)
    print(f"ratio: median {statistics.median(ratios):.2f}, min {min(ratios):.2f}, max {max(ratios):.2f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options and run on an embedded server of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--due", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="fatura-bench-") as folder:
        Path(folder).chmod(0o711)
        with embedded.start(Path(folder) / "data") as server:
            asyncio.run(run(server.url, due=options.due, rounds=options.rounds))


if __name__ == "__main__":
    main()
