"""Telling a new connection of the arrays that statements take, all at once.

The driver asks PostgreSQL what an array is made of when it first meets its type, 8 to 12 ms each on every connection.
"""

from typing import Any

ALL = """
SELECT $1::uuid[], $2::text[], $3::int2[], $4::int4[], $5::int8[], $6::date[],
    $7::timestamptz[], $8::bool[], $9::bytea[]
"""


async def learn(connection: Any) -> None:
    """Have the driver ask for all types; within a transaction, since a pooler may change the server between two."""
    async with connection.transaction():
        await connection.fetchrow(ALL, *(None,) * ALL.count("$"))
