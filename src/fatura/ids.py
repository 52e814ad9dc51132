"""UUIDv7 ids. They sort by creation time to the millisecond, so a list by creation time needs no further index."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from uuid import UUID

import uuid_utils
from asyncpg.pgproto import pgproto

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MILLISECOND = timedelta(milliseconds=1)
_MARKED_BYTES = 10
_MARKED = 0x0FFF_3FFF_FFFF_FFFF_FFFF
"""Mask of a UUIDv7's random bits, which are all bits except the timestamp, the version and the variant."""
_FIXED = 0x7000_8000_0000_0000_0000
"""The version and variant bits."""


def new_ids(at: datetime, count: int) -> list[UUID]:
    """Return `count` ids with the timestamp `at`.

    The ids are objects of the database driver's subclass of UUID, because Python creates these objects ten times as
    fast as objects of `uuid.UUID`. A billing run creates millions of ids.
    """
    nanoseconds = (at - _EPOCH) // timedelta(microseconds=1) * 1000
    return [pgproto.UUID(uuid_utils.uuid7(nanoseconds=nanoseconds).bytes) for _ in range(count)]


def new_id(at: datetime) -> UUID:
    return new_ids(at, 1)[0]


def least_id(at: datetime) -> UUID:
    """Return an id that is not greater than any id with the timestamp `at`."""
    return UUID(int=(at - _EPOCH) // _MILLISECOND << 80)


def invoice_ids(at: datetime, billed: Iterable[tuple[UUID, int]]) -> list[UUID]:
    """Return one invoice id for each subscription id and cycle in `billed`. All ids have the timestamp `at`.

    Instead of random bits, an id contains a hash of subscription id and cycle. A restore from a backup may lose an
    invoice whose charge exists at the gateway. The gateway still has the invoice id, whose hash shows which cycle the
    lost invoice billed (ADR 0012).
    """
    head = (at - _EPOCH) // _MILLISECOND << 80 | _FIXED
    return [pgproto.UUID((head | billed_mark(*each)).to_bytes(16)) for each in billed]


def billed_mark(subscription_id: UUID, cycle: int) -> int:
    """Return the 74 hash bits of a cycle's invoice id, at their positions in the id; all other bits are 0."""
    digest = sha256(subscription_id.bytes + cycle.to_bytes(4)).digest()
    return int.from_bytes(digest[:_MARKED_BYTES]) & _MARKED


def mark_of(invoice_id: UUID) -> int:
    """Return the hash bits of an invoice id, at the same positions as in the result of `billed_mark`."""
    return invoice_id.int & _MARKED


def bill_same_cycle(invoice_id: UUID, other_id: UUID) -> bool:
    """Return whether two invoice ids encode the same subscription and cycle.

    After a restore, the engine may bill a cycle a second time; the second invoice has another timestamp in its id.
    """
    return mark_of(invoice_id) == mark_of(other_id)
