"""Measure a poll of all lanes in a database of idle accounts, which have a webhook but no due work."""

from bench.frame import Figure, Measured, Options
from bench.prepared import connected
from bench.servers import opened, prepared
from bench.sides import ROUNDS, median_ms
from fatura.workers.lanes import LANES

FEW, MANY = 100, 100_000
SWEEPS = 40
MOST_RATIO = 1.5

_OPEN = (
    """
    INSERT INTO account (account_id, name, mode, currency, clock_offset, created_at)
    SELECT gen_random_uuid(), 'idle', 'sandbox', 'BRL', interval '0', now() FROM generate_series(1, $1::int4)
    """,
    """
    INSERT INTO account_counter (account_id, last_sequence, webhook_enabled)
    SELECT account_id, 1, true FROM account WHERE $1::int4 > 0
    """,
    """
    INSERT INTO webhook (account_id, url, created_at, fanned_out_to)
    SELECT account_id, 'https://merchant.example/', now(), 1 FROM account WHERE $1::int4 > 0
    """,
    """
    INSERT INTO test_clock (account_id, status, processed)
    SELECT account_id, 'ready', '{}' FROM account WHERE $1::int4 > 0
    """,
)


async def idle_accounts(options: Options, measured: Measured, server_url: str) -> None:
    """Compare a poll in a database with MANY idle accounts with a poll in a database with FEW."""
    urls = {count: await _opened(server_url, count) for count in (FEW, MANY)}
    taken: dict[int, list[float]] = {FEW: [], MANY: []}
    for number in range(ROUNDS):
        for count, url in urls.items():
            taken[count].append(await _poll_ms(url))
        options.log(f"polled, round {number + 1}: {taken[MANY][-1]:.2f} ms, among few {taken[FEW][-1]:.2f}")
    what = f"a poll of all lanes among {MANY:,} idle accounts"
    measured.figures.append(
        Figure(3, what, "ms", f"among {FEW}", taken[MANY], taken[FEW], at_most=MOST_RATIO)
    )


async def _opened(server_url: str, count: int) -> str:
    async def fill(url: str) -> None:
        connection = await connected(url.replace("://fatura@", "://postgres@"))
        for statement in _OPEN:
            await connection.execute(statement, count)
        await connection.execute("VACUUM ANALYZE")
        await connection.close()

    return await prepared(server_url, f"idle{count}", fill)


async def _poll_ms(url: str) -> float:
    async with opened(url) as deps:

        async def poll() -> None:
            for lane in LANES:
                assert not await lane.due(deps), f"{lane.name} is due"

        return await median_ms(poll, SWEEPS)
