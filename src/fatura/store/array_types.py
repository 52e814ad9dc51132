"""Preloading the array types of statements: asyncpg otherwise queries each one at its first use, 8 to 12 ms apiece."""

from typing import Any

ALL = """
SELECT $1::uuid[], $2::text[], $3::int2[], $4::int4[], $5::int8[], $6::date[],
    $7::timestamptz[], $8::bool[], $9::bytea[]
"""


async def preload(connection: Any) -> None:
    """Load all types on a new connection, in a transaction: a pooler may change the server between two."""
    async with connection.transaction():
        await connection.fetchrow(ALL, *(None,) * ALL.count("$"))
