"""Which unreadable charges of an attempt an event has to report (D-125).

A charge is unreadable if a late look-up finds out about it, but the gateway does not show it as expected.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

REPORTED_AFTER = timedelta(days=1)
"""An event reports a charge that has been unreadable for this time."""
MAX_UNREAD = 10
"""Maximum number of unreadable charges of an attempt that the engine remembers, and that events report."""

UnreadCharges = Mapping[str, datetime | None]
"""For each unreadable charge, by the gateway's id: since when it is unreadable, or None if it is reported."""


def after_look_up(
    before: UnreadCharges, missing: Sequence[str], *, read: Collection[str], now: datetime
) -> UnreadCharges:
    """Return the unreadable charges after a late look-up.

    The look-up could not read the charges `missing`, and has read the charges `read`. A charge that was unreadable
    stays so until a look-up reads it, even if the gateway does not list it for a while. If the charges exceed
    MAX_UNREAD, keep reported charges first, then charges that have been unreadable before. If a stored time is later
    than `now`, a wrong clock wrote it, and `now` replaces it (D-5).
    """
    reported = [charge_id for charge_id, since in before.items() if since is None]
    known = [charge_id for charge_id in before if charge_id in missing]
    in_order = dict.fromkeys([*reported, *known, *missing, *before])
    kept = [charge_id for charge_id in in_order if charge_id not in read][:MAX_UNREAD]
    since = {charge_id: before.get(charge_id, now) for charge_id in kept}
    return {charge_id: at and min(at, now) for charge_id, at in since.items()}


def to_report(unread: UnreadCharges, missing: Sequence[str], *, now: datetime) -> Sequence[str]:
    """Return the charges among `missing` that are not reported and have been unreadable for REPORTED_AFTER."""
    since = {charge_id: unread.get(charge_id) for charge_id in missing}
    return [charge_id for charge_id, at in since.items() if at is not None and now - at >= REPORTED_AFTER]


def with_reported(unread: UnreadCharges, reported: Sequence[str]) -> UnreadCharges:
    """Return the unreadable charges after an event has reported some of them."""
    kept = dict.fromkeys([*reported, *unread])
    return {
        charge_id: None if charge_id in reported else unread[charge_id] for charge_id in [*kept][:MAX_UNREAD]
    }
