"""Commands and API processes notify workers of the lanes that have work (D-5)."""

import asyncpg

from fatura.store.db import connect
from fatura.store.notify import CHANNEL, Notifier
from tests.support.databases import as_superuser


async def test_finish_waits_until_notifications_are_sent(database_url: str):
    """A command that ends at once loses no notification. [D-5]"""
    heard: list[object] = []
    connection = await asyncpg.connect(as_superuser(database_url))
    await connection.add_listener(CHANNEL, lambda *call: heard.append(call[-1]))
    db = await connect(database_url, max_connections=2)
    notifier = Notifier(db)
    notifier("push")
    notifier("pricing")
    await notifier.finish()
    await db.close()
    await connection.fetchval("SELECT 1")
    await connection.close()
    assert heard == ["pricing,push"]
