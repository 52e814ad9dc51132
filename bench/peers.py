"""Compare the billing run with two other open-source billing programs, on the same PostgreSQL server.

Each of the two programs has a virtual environment under bench/peers, with the versions of bench/peer_<name>.txt. The
environment is created if it is missing. In a round, the engine and each of the other programs bill one month. The time
excludes the start of the process.

The engine bills 10,000 subscriptions. The other programs bill 300 (2,000 with `--full`), because they would need
minutes for 10,000. If the engine billed only 300, it would spend most of its time on opening connections.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from bench.frame import Figure, Measured, Options
from bench.one_lane import worked
from bench.prepared import connected, prepare
from bench.servers import cloned, open_accounts, prepared, seen, server
from tests.support.databases import as_superuser

ROUNDS = 5
OURS = 10_000
LEAST_RATIO = 100
ENVIRONMENTS = Path(__file__).parent / "peers"
COMMANDS = {
    "silver": "django-silver 0.11.1, manage.py generate_docs",
    "tryton": "Tryton 7.0 sale_subscription, with its wizards for consumptions and invoices",
}


def run(options: Options) -> Measured:
    for name in COMMANDS:
        options.log(f"the environment of {name}")
        _install(name)
    with server() as url:
        return asyncio.run(_run(options, url, count=options.pick(short=300, full=2000)))


def _install(name: str) -> None:
    folder = ENVIRONMENTS / name
    pinned = Path(__file__).with_name(f"peer_{name}.txt")
    if (folder / "installed").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    subprocess.run(
        [str(folder / "bin" / "pip"), "install", "-q", "-r", str(pinned)], check=True, stdout=sys.stderr
    )
    (folder / "installed").touch()


async def _run(options: Options, server_url: str, *, count: int) -> Measured:
    async def fill(url: str) -> None:
        (account,) = await open_accounts(url, 1)
        async with seen(url, account.account_id) as connection:
            await prepare(connection, account.account_id, due=OURS)

    await prepared(server_url, "ours", fill)
    ours: list[float] = []
    theirs = {name: list[float]() for name in COMMANDS}
    async with AsyncExitStack() as stack:
        peers = {
            name: await stack.enter_async_context(_filled(name, server_url, count=count)) for name in COMMANDS
        }
        options.log(f"{OURS:,} subscriptions here, {count} in the other program")
        for number in range(ROUNDS):
            async with cloned(server_url, "ours") as url:
                ours.append(OURS / (await worked(url, "generation", OURS)).seconds)
            for name, peer in peers.items():
                theirs[name].append(await _bill_a_month(peer, count=count))
            rates = ", ".join(f"{name} {theirs[name][-1]:.1f}/s" for name in COMMANDS)
            options.log(f"month {number + 1}: {ours[-1]:,.0f}/s, {rates}")
    return _measured(ours, theirs, count=count)


@asynccontextmanager
async def _filled(name: str, server_url: str, *, count: int) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Start a billing program with a new database, and wait until it has created its subscriptions."""
    admin = await connected(as_superuser(server_url))
    await admin.execute(f"CREATE DATABASE {name} OWNER fatura")
    await admin.close()
    at = urlsplit(server_url)
    query = parse_qs(at.query)
    place = {"PGUSER": at.username or "", "PGHOST": query["host"][0], "PGPORT": query["port"][0]}
    process = await asyncio.create_subprocess_exec(
        ENVIRONMENTS / name / "bin" / "python", Path(__file__).with_name(f"peer_{name}.py"), name, str(count),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=place,
    )  # fmt: skip
    assert process.stdout is not None, "it is a pipe"
    try:
        assert await process.stdout.readline() == b"ready\n", f"{name} did not start"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _bill_a_month(peer: asyncio.subprocess.Process, *, count: int) -> float:
    """Let a program bill one month. Return its invoices per second."""
    assert peer.stdin is not None, "it is a pipe"
    assert peer.stdout is not None, "it is a pipe"
    peer.stdin.write(b"next\n")
    result = json.loads(await peer.stdout.readline())
    assert result["invoices"] == count, result
    return count / result["seconds"]


def _measured(ours: list[float], theirs: Mapping[str, list[float]], *, count: int) -> Measured:
    what = f"one merchant, {OURS:,} due in Fatura, {count} in the other program"
    return Measured(
        figures=[
            Figure(11, what, "invoices/s", command, ours, theirs[name], at_least=LEAST_RATIO)
            for name, command in COMMANDS.items()
        ]
    )
