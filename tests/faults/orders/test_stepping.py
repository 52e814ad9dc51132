"""The stepper executes the statements of concurrent tasks in a given order, and detects blocked statements."""

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from fatura.store.db import Database, DeadlockError, connect
from tests.faults import place
from tests.faults.orders.stepping import LOCK_SETTINGS, Step, Stepper
from tests.faults.orders.stepping_connection import open_whole
from tests.support.databases import as_owner

NOBODY = UUID(int=0)
UPDATE = "UPDATE counter SET n = n + 1 WHERE $1::uuid IS NOT NULL AND name = $2"


@pytest.fixture(scope="module")
def stepped_server() -> Generator[str]:
    with place.server(LOCK_SETTINGS) as url:
        yield url


@asynccontextmanager
async def setup(url: str) -> AsyncGenerator[tuple[Stepper, Database]]:
    async with place.database(url) as database_url:
        control = await asyncpg.connect(as_owner(database_url))
        await control.execute(
            "CREATE TABLE counter (name text PRIMARY KEY, n integer); GRANT ALL ON counter TO PUBLIC;"
            "INSERT INTO counter VALUES ('one', 0), ('two', 0)"
        )
        stepper = Stepper(control)
        db = await connect(database_url, max_connections=4, connection_class=stepper.connection_class)
        yield stepper, await open_whole(db, 4)
        await db.close()
        await control.close()


class Script:
    """Chooses threads in the order of `names`. Afterwards, always chooses the first thread that is ready."""

    def __init__(self, *names: str) -> None:
        self._names = list(names)

    def __call__(self, ready: Sequence[str]) -> str:
        return self._names.pop(0) if self._names else ready[0]


async def _raise(db: Database, *names: str) -> None:
    async with db.transaction(NOBODY) as tx:
        for name in names:
            await tx.execute(UPDATE, name)


def who(trace: Sequence[Step]) -> list[str]:
    return [f"{step.thread}{' waits' if step.waited else ''}" for step in trace]


async def test_one_thread_moves_at_a_time_and_a_waiter_continues_when_the_lock_is_free(stepped_server):
    async with setup(stepped_server) as (stepper, db):
        for _ in range(3):
            stepper.act("a", lambda: _raise(db, "one", "two"))
            stepper.act("b", lambda: _raise(db, "one"))
            trace = await stepper.run(Script("a", "b", "a", "a", "b"))
            assert who(trace) == ["a", "b waits", "a", "a", "b"]
            assert [step.label for step in trace][2:] == [UPDATE, "COMMIT", "COMMIT"]


async def test_the_last_thread_of_a_deadlock_always_fails(stepped_server):
    async with setup(stepped_server) as (stepper, db):
        for _ in range(5):
            first = stepper.act("a", lambda: _raise(db, "one", "two"))
            second = stepper.act("b", lambda: _raise(db, "two", "one"))
            trace = await stepper.run(Script("a", "b", "a", "b", "b"))
            assert who(trace) == ["a", "b", "a waits", "b", "b", "a"]
            await first
            with pytest.raises(DeadlockError):
                await second


async def test_tasks_of_one_actor_are_separate_threads(stepped_server):
    async def both(db: Database) -> None:
        await _raise(db, "one")
        await asyncio.gather(_raise(db, "one"), _raise(db, "two"))

    async with setup(stepped_server) as (stepper, db):
        for _ in range(3):
            stepper.act("a", lambda: both(db))
            trace = await stepper.run(lambda ready: ready[-1])
            assert who(trace) == ["a", "a", "a.3", "a.3", "a.2", "a.2"]


async def test_external_calls_are_steps(stepped_server):
    seen: list[str] = []

    async def call(stepper: Stepper, name: str) -> None:
        async with stepper.doing("gateway.create"):
            seen.append(f"{name} calls")
            await asyncio.sleep(0.01)
            seen.append(f"{name} has called")
        await stepper.step("merchant")
        seen.append(f"{name} ends")

    async with setup(stepped_server) as (stepper, _):
        stepper.act("a", lambda: call(stepper, "a"))
        stepper.act("b", lambda: call(stepper, "b"))
        trace = await stepper.run(Script("b", "a", "b", "a"))
    assert seen == ["b calls", "b has called", "a calls", "a has called", "b ends", "a ends"]
    assert [str(step) for step in trace][:2] == ["b: gateway.create", "a: gateway.create"]


async def test_the_stepper_waits_for_an_actor_that_opens_a_connection(stepped_server):
    async def open_connection(url: str) -> Any:
        connection = await asyncpg.connect(url)
        await connection.close()

    async with setup(stepped_server) as (stepper, db):

        async def act() -> None:
            await open_connection(stepped_server)
            await _raise(db, "one")

        for _ in range(3):
            stepper.act("a", act)
            stepper.act("b", lambda: _raise(db, "two"))
            trace = await stepper.run(lambda ready: ready[0])
            assert who(trace) == ["a", "a", "b", "b"]
