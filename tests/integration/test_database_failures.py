"""Failures of the database, and commits that no standby has confirmed."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fatura import postgres
from fatura.store import db, open_transaction, pool
from fatura.store.db import DatabaseUnavailableError, DeadlockError, LockTimeoutError
from fatura.usecases.transaction import load_account
from fatura.usecases.webhooks import delivery
from tests.conftest import FAST
from tests.support.databases import as_superuser, migrate_as_owner
from tests.support.expect import problem
from tests.support.postgres_processes import sweep
from tests.support.push_steps import register
from tests.support.receiver import open_receiver
from tests.support.world import Answer, World, open_world

BODY = {"name": "Gym", "pricing": {"mode": "fixed", "monthlyPriceCents": 1}}
COMMIT_WAITS = "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
CANCEL_WAITS = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.mark.parametrize(
    "code",
    [
        "57014",
        "57P01",
        "57P02",
        "57P03",
        "53000",
        "53100",
        "53200",
        "53300",
        "58000",
        "58030",
        "25006",
        "08006",
    ],
)
async def test_errors_of_the_database_are_503(world: World, code: str):
    """[D-12, D-100]"""
    await world.sql(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'at work' USING ERRCODE = '{code}'; END $$"
    )
    await world.sql("CREATE TRIGGER fail BEFORE INSERT ON product FOR EACH ROW EXECUTE FUNCTION fail()")

    refused = await world.post("/v1/products", BODY, key="k")

    assert problem(refused) == (503, "engine.unavailable", None)
    assert int(refused.headers["retry-after"]) >= 1
    assert "at work" not in refused.body.decode()
    await world.sql("DROP TRIGGER fail ON product")
    assert (await world.post("/v1/products", BODY, key="k")).status == 201


async def test_a_statement_that_takes_too_long_is_a_503(database_url: str, monkeypatch: pytest.MonkeyPatch):
    """[D-100]"""
    monkeypatch.setitem(pool.LIMITS, "statement_timeout", "1s")
    async with open_world(database_url) as hurried:
        await hurried.sql(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$"
        )
        await hurried.sql("CREATE TRIGGER wait BEFORE INSERT ON product FOR EACH ROW EXECUTE FUNCTION wait()")
        refused = await hurried.post("/v1/products", BODY, key="k")
        assert problem(refused) == (503, "engine.unavailable", None)
        assert await hurried.all("/v1/products") == []


async def test_a_transaction_on_a_silent_server_ends(world: World, monkeypatch: pytest.MonkeyPatch):
    """[D-100]"""
    monkeypatch.setattr(db, "TRANSACTION_TIMEOUT_SECONDS", 0.2)
    with pytest.raises(DatabaseUnavailableError):
        async with world.deps.db.transaction(world.account_id) as tx:
            await tx.fetchval("SELECT pg_sleep(60) WHERE $1::uuid IS NOT NULL")
    assert (await world.get("/v1/products")).status == 200


async def test_a_cancellation_during_a_rollback_is_not_lost(world: World, monkeypatch: pytest.MonkeyPatch):
    """Otherwise, a canceled task would repeat its transaction, because a deadlock allows this. [D-100]"""
    rolled_back, roll_back = asyncio.Event(), open_transaction.roll_back

    async def slow(connection: Any) -> None:
        await roll_back(connection)
        rolled_back.set()
        await asyncio.sleep(3600)

    async def fail() -> None:
        async with world.deps.db.transaction(world.account_id):
            raise asyncpg.DeadlockDetectedError("deadlock detected")

    monkeypatch.setattr(open_transaction, "roll_back", slow)
    failing = asyncio.create_task(fail())
    await rolled_back.wait()
    failing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await failing
    monkeypatch.undo()
    assert (await world.get("/v1/products")).status == 200


async def test_a_failed_transaction_is_not_reported_as_committed(world: World):
    """PostgreSQL answers COMMIT with ROLLBACK after a failed statement, even if the caller caught the error. [D-14]"""

    async def hide_a_failure() -> None:
        async with world.deps.db.transaction(world.account_id) as tx:
            with pytest.raises(asyncpg.DivisionByZeroError):
                await tx.fetchval("SELECT 1 / 0 WHERE $1::uuid IS NOT NULL")

    with pytest.raises(DatabaseUnavailableError, match="ROLLBACK"):
        await hide_a_failure()
    assert (await world.get("/v1/products")).status == 200


@pytest.fixture
async def replicated(tmp_path: Path) -> AsyncIterator["Replicated"]:
    """An engine with a PostgreSQL server of its own."""
    server = await asyncio.to_thread(postgres.start, tmp_path / "data", settings={"fsync": "off"})
    try:
        await migrate_as_owner(server.url)
        async with open_world(server.url) as world:
            yield Replicated(world, as_superuser(server.url))
        await asyncio.to_thread(server.stop)
    finally:
        sweep(tmp_path / "data")


class Replicated:
    """An engine, with methods that make its commits wait for a standby, and that cancel waiting commits."""

    def __init__(self, world: World, owner_url: str) -> None:
        self.world = world
        self._owner_url = owner_url

    @asynccontextmanager
    async def without_standby(self) -> AsyncGenerator[None]:
        """Require the confirmation of a standby that does not exist, so that commits wait during the block."""
        await self._set("synchronous_standby_names", "lost")
        try:
            yield
        finally:
            await self._set("synchronous_standby_names", "")

    async def cancel_waiting(self, asked: "asyncio.Task[Answer]") -> Answer:
        """Cancel waiting commits, as an operator could, until the API answers the request."""
        while not asked.done():
            await self.sql(CANCEL_WAITS)
        return await asked

    async def until_commit_waits(self) -> None:
        async with asyncio.timeout(20):
            while not await self.sql(COMMIT_WAITS):  # noqa: ASYNC110 - the server waits, not this process
                await asyncio.sleep(0.01)

    async def waiting_create(self) -> "tuple[str, asyncio.Task[Answer]]":
        """Create products until a commit waits. Return the Idempotency-Key and the task of the waiting request.

        PostgreSQL applies a changed setting with a delay, so the first requests may succeed without waiting.
        """
        for key in map(str, range(1000)):
            asked = asyncio.create_task(self.world.post("/v1/products", BODY, key=key))
            while not asked.done():
                if await self.sql(COMMIT_WAITS):
                    return key, asked
        raise AssertionError("no commit waits")

    async def sql(self, statement: str) -> list[asyncpg.Record]:
        """Run a statement as superuser."""
        connection: Any = await asyncpg.connect(self._owner_url)
        try:
            return await connection.fetch(statement)
        finally:
            await connection.close()

    async def _set(self, name: str, value: str) -> None:
        await self.sql(f"ALTER SYSTEM SET {name} = '{value}'")
        await self.sql("SELECT pg_reload_conf()")


async def test_a_commit_without_confirmation_of_the_standby_is_503(replicated: Replicated):
    """A commit that waits for the standby is canceled, and a repeat of the request waits too.

    As soon as commits no longer need the standby, the repeat gets the stored answer. [D-14, D-100]
    """
    world = replicated.world
    # At most once a minute, the API stores when an API key was last used. This request makes the API store it now,
    # so that afterwards only the creations commit.
    await world.get("/v1/products")
    async with replicated.without_standby():
        key, asked = await replicated.waiting_create()
        assert problem(await replicated.cancel_waiting(asked)) == (503, "engine.unavailable", None)

        repeated = asyncio.create_task(world.post("/v1/products", BODY, key=key))
        await replicated.until_commit_waits()
        assert not repeated.done()
    answer = await repeated
    assert (answer.status, answer.headers["idempotent-replayed"]) == (201, "true")
    assert (await world.all("/v1/products"))[-1] == answer.json


@pytest.mark.parametrize(
    ("code", "failure"),
    [("53100", DatabaseUnavailableError), ("55P03", LockTimeoutError), ("40P01", DeadlockError)],
)
async def test_an_endpoint_is_released_after_a_failure_of_the_database(
    world: World, code: str, failure: type[Exception]
):
    """[D-39]"""
    async with open_receiver() as receiver:
        await register(world, receiver)
        await world.enroll(await world.plan())
        await world.sql(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'failed' USING ERRCODE = '{code}'; END $$"
        )
        failing = "CREATE TRIGGER fail BEFORE INSERT ON delivery_attempt FOR EACH ROW EXECUTE FUNCTION fail()"
        await world.sql(failing)
        with pytest.raises(failure):
            await delivery.deliver(world.deps, await load_account(world.deps, world.account_id))
        assert receiver.sequences != []

        await world.sql("DROP TRIGGER fail ON delivery_attempt")
        assert await world.run("push") > 0
    events = await world.events()
    assert set(receiver.sequences) == {event["sequence"] for event in events}


@pytest.mark.faults
async def test_a_silent_host_does_not_hide_the_primary(tmp_path: Path):
    """[D-100]"""
    silent = socket.create_server(("127.0.0.1", 0))  # accepts connections, but sends nothing
    host, port = silent.getsockname()
    with socket.create_server(("127.0.0.1", 0)) as free:
        listens = {"listen_addresses": "127.0.0.1", "port": str(free.getsockname()[1])}
    server = await asyncio.to_thread(postgres.start, tmp_path / "data", settings=FAST | listens)
    try:
        await migrate_as_owner(server.url)
        connection = await asyncpg.connect(as_superuser(server.url))
        rule = "COPY (SELECT 'host all all 127.0.0.1/32 scram-sha-256') TO PROGRAM 'cat >> pg_hba.conf'"
        await connection.execute(rule)
        await connection.execute("SELECT pg_reload_conf()")
        await connection.execute("ALTER ROLE fatura PASSWORD 'secret'")
        await connection.close()
        hosts = f"{host}:{port},127.0.0.1:{listens['port']}"
        listed = f"postgresql://fatura:secret@{hosts}/fatura?target_session_attrs=read-write"
        async with asyncio.timeout(60), open_world(listed) as world:
            assert (await world.get("/health/ready")).status == 200
            assert (await world.post("/v1/products", BODY)).status == 201
    finally:
        silent.close()
        await asyncio.to_thread(server.stop)
