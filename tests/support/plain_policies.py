"""Give a database the row policies of a distributed one, without Citus."""

from fatura.store.migrations.distribute import use_plain_policies
from tests.support.populated import connected, tables


async def with_plain_policies(url: str) -> None:
    """Replace the row policies of all tables by those used with Citus."""
    async with connected(url) as connection:
        for table in await tables(connection):
            await use_plain_policies(connection, table)
