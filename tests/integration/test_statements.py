"""Every SQL statement that the engine sends is a literal in the sources, where tests/tidy checks it."""

import functools
import re
from typing import Any

import asyncpg
import pytest

from fatura.store.db import connect
from tests.support import world as worlds
from tests.support.world import item, open_world
from tests.tidy.sources import repository
from tests.tidy.sql_statements import literals

_SESSION = re.compile(
    r"(BEGIN\b[^;]*|COMMIT|ROLLBACK)?;?( *SET LOCAL (ROLE fatura_app|[a-z_.]+ = '[^']*');?)*"
    r"|(RELEASE )?SAVEPOINT part|NOTIFY fatura_work, '[a-z_,]*'"
)
"""Statements that begin, configure or end a transaction, set or release a savepoint, or notify workers."""
_INVARIANT = re.compile(r"WITH offending AS MATERIALIZED \((.*)\) TABLE offending LIMIT \$2", re.DOTALL)
"""Matches the statements that `invariants.offenders` sends. The group is the invariant's own statement."""

sent: set[str] = set()


class Recording(asyncpg.Connection):  # pyright: ignore[reportMissingTypeArgument] - not generic at run time
    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        sent.add(query)
        return await super().execute(query, *args, **options)

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        sent.add(query)
        return await super().fetch(query, *args, **options)

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        sent.add(query)
        return await super().fetchrow(query, *args, **options)

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        sent.add(query)
        return await super().fetchval(query, *args, **options)


async def test_every_statement_is_in_the_sources(database_url: str, monkeypatch: pytest.MonkeyPatch):
    """[D-47]"""
    known = {text for source in repository(".py", under="src/") for _, _, text in literals(source)}
    monkeypatch.setattr(worlds, "connect", functools.partial(connect, connection_class=Recording))
    async with open_world(database_url) as world:
        sent.clear()
        plan = await world.plan(item(await world.product()), item(await world.variable_product()))
        subscription = await world.enroll(plan)
        await world.advance(days=40)
        for lane in worlds.LANE:
            await world.run(lane)
        for path in ("products", "plans", "subscriptions", "customers", "invoices", "events"):
            assert (await world.get(f"/v1/{path}")).status == 200
        assert (await world.post(f"/v1/subscriptions/{subscription['id']}/cancel")).status == 200
        assert await world.broken() == []
    literal = {found[1] if (found := _INVARIANT.fullmatch(text)) else text for text in sent}
    strange = {text for text in literal - known if not _SESSION.fullmatch(text)}
    assert not strange
    assert len(literal & known) > 100
