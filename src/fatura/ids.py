"""UUIDv7 keys whose order is the order of creation to the millisecond, so that lists need no second index."""

from datetime import datetime, timedelta
from uuid import UUID

import uuid_utils
from asyncpg.pgproto import pgproto

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def new_ids(at: datetime, count: int) -> list[UUID]:
    """Return `count` ids that carry the instant `at` of the account's clock.

    They are of the driver's own subclass of `UUID`: a billing run makes millions, and it is ten times as fast.
    """
    nanoseconds = (at - _EPOCH) // timedelta(microseconds=1) * 1000
    return [pgproto.UUID(uuid_utils.uuid7(nanoseconds=nanoseconds).bytes) for _ in range(count)]


def new_id(at: datetime) -> UUID:
    """Return one id that carries the instant `at` of the account's clock."""
    return new_ids(at, 1)[0]
