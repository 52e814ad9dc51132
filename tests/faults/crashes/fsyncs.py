"""Let `strace` kill PostgreSQL at its n-th fsync, and check that no acknowledged request is lost."""

import asyncio
import contextlib
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from tests.faults.database.server import Server, server
from tests.support.databases import migrate_as_owner
from tests.support.world import Json, World, open_world

CLIENTS = 4
LATEST_FSYNC = 30
"""Maximum of the random number n. A server process is killed at its n-th fsync, and each commit makes one fsync."""
PATIENCE_SECONDS = 60


@dataclass(slots=True)
class Fsyncs:
    """The results of all kills.

    `acknowledged` has the body of each 201 response, by the Idempotency-Key of its request.
    """

    kills: int = 0
    acknowledged: dict[str, bytes] = field(default_factory=dict[str, bytes])
    asked: int = 0
    problems: list[str] = field(default_factory=list[str])


def missing_requirement() -> str | None:
    if shutil.which("strace") is None:
        return "kills at the n-th fsync need strace (apt-get install strace)"
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        words = ["strace", "-p", str(sleeper.pid), "-e", "trace=none"]
        try:
            subprocess.run(words, timeout=1, check=False, capture_output=True)
        except subprocess.TimeoutExpired:
            return None
        finally:
            sleeper.kill()
    return "kills at the n-th fsync need the right to trace processes (ptrace)"


def run(count: int, *, seed: int, progress: Callable[[int], None]) -> Fsyncs:
    """Kill the server `count` times while clients create products.

    After each kill, repeat the unanswered requests and the 50 newest acknowledged ones. Each repeat of an acknowledged
    request must get the first response again.
    """
    tried = Fsyncs()
    with tempfile.TemporaryDirectory(prefix="fatura-fsyncs-") as folder, server(Path(folder)) as postgres:
        asyncio.run(_run(postgres, tried, count, drawn=random.Random(seed), progress=progress))  # noqa: S311 - not for security
    return tried


async def _run(
    postgres: Server, tried: Fsyncs, count: int, *, drawn: random.Random, progress: Callable[[int], None]
) -> None:
    await migrate_as_owner(postgres.url)
    async with open_world(postgres.url) as world:
        for number in range(count):
            nth = drawn.randint(1, LATEST_FSYNC)
            postmaster = drawn.random() < 0.5
            await _kill_once(postgres, world, tried, nth=nth, postmaster=postmaster)
            progress(number + 1)
        await _check_all(world, tried)


async def _kill_once(postgres: Server, world: World, tried: Fsyncs, *, nth: int, postmaster: bool) -> None:
    """Kill one server process at its n-th fsync. PostgreSQL then ends all sessions and recovers.

    If `postmaster` is true, also kill the postmaster.
    """
    died = asyncio.Event()
    with _tracing(postgres, nth):
        async with asyncio.timeout(PATIENCE_SECONDS):
            clients = [_ask_on(world, tried, died) for _ in range(CLIENTS)]
            unanswered = [key for keys in await asyncio.gather(*clients) for key in keys]
    tried.kills += 1
    if postmaster:
        postgres.kill()
    await _returned(postgres)
    for key in unanswered:
        await _repeat(world, tried, key)
    for key in list(tried.acknowledged)[-50:]:
        await _check_replay(world, tried, key, at=f"fsync {nth}{', with postmaster' if postmaster else ''}")


async def _returned(postgres: Server) -> None:
    """Wait until the server accepts connections. If the server has ended, restart it.

    The server ends when its postmaster or its recovery process is killed.
    """
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            postgres.start()
            with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await postgres.returned(within_seconds=1)
                return


@contextlib.contextmanager
def _tracing(postgres: Server, nth: int) -> Generator[None]:
    """During the block, kill a server process just before its n-th fsync."""
    traced = [word for pid in (postgres.postmaster(), *postgres.children()) for word in ("-p", str(pid))]
    rule = f"inject=fsync,fdatasync:signal=SIGKILL:when={nth}"
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", rule, *traced]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as strace:
        try:
            yield
        finally:
            strace.terminate()
            strace.wait(PATIENCE_SECONDS)


async def _ask_on(world: World, tried: Fsyncs, died: asyncio.Event) -> list[str]:
    """Create products until the database fails. Return the Idempotency-Keys of requests without a 201 response."""
    unanswered: list[str] = []
    while not died.is_set():
        tried.asked += 1
        key = f"key-{tried.asked}"
        answer = await world.post("/v1/products", _body(key), key=key)
        if answer.status == 201:
            tried.acknowledged[key] = answer.body
        else:
            died.set()
            unanswered.append(key)
    return unanswered


async def _repeat(world: World, tried: Fsyncs, key: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (answer := await world.post("/v1/products", _body(key), key=key)).status == 503:  # noqa: ASYNC110 - repeats as a client does
            await asyncio.sleep(0.05)
    if answer.status == 201:
        tried.acknowledged[key] = answer.body
    else:
        tried.problems.append(f"the repeat of {key} was answered {answer.status}: {answer.body!r}")


async def _check_replay(world: World, tried: Fsyncs, key: str, *, at: str) -> None:
    answer = await world.post("/v1/products", _body(key), key=key)
    if answer.body != tried.acknowledged[key] or "Idempotent-Replayed" not in answer.headers:
        tried.problems.append(f"acknowledged before the kill at {at} and lost: {key}, {answer.body!r}")


async def _check_all(world: World, tried: Fsyncs) -> None:
    """Check that exactly the products of the acknowledged keys exist, and that all invariants hold."""
    names = [each["name"] for each in await world.all("/v1/products")]
    if sorted(names) != sorted(tried.acknowledged):
        tried.problems.append(f"{len(tried.acknowledged)} products were acknowledged, and {len(names)} exist")
    tried.problems += [f"invariant {name}" for name in await world.broken()]


def _body(key: str) -> Json:
    return {"name": key, "pricing": {"mode": "fixed", "monthlyPriceCents": 100}}
