"""A digest of an account's rows: the number of rows and a sum of hashes for each table."""

from collections.abc import Mapping
from typing import Any

from tests.support.populated import tables

_DIGEST = """
    SELECT count(*), coalesce(sum(('x' || substr(md5(x::text), 1, 15))::bit(60)::bigint), 0) FROM TABLE x
    WHERE account_id = $1
"""


async def digest(connection: Any, account_id: object) -> Mapping[str, tuple[int, int]]:
    """Return the digest of each table. The connection's setting `app.account` must be the account's id."""
    found: dict[str, tuple[int, int]] = {}
    for table in await tables(connection):
        count, total = await connection.fetchrow(_DIGEST.replace("TABLE", table), account_id)
        found[table] = (count, int(total))
    return found


def differences(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> list[str]:
    return [table for table in before if before[table] != after[table]]
