"""Plan when the engine looks at charges that it has not stored. `unmatched_charges` makes these looks (D-162)."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from fatura.observability import log
from fatura.store.charging import look_places
from fatura.store.charging import unmatched_charges as stored_unmatched
from fatura.usecases.transaction import Work

LOOK_AFTER = timedelta(minutes=1)
"""Time from when the engine learns of an unmatched charge to its first look at the charge.

A webhook often arrives before the engine has recorded the new charge that the webhook names.
"""
MAX_WAITING = 20
"""Maximum number of a connection's charges that only webhooks have named and about which no look has decided yet.

Other systems of the merchant may use the same account at the provider. Webhooks about the charges of these systems must
not use up the connection's budget of polls. If a second charge is dropped, the nightly sweep finds it, provided that
the provider lists charges.
"""
REPLACEABLE_AFTER = timedelta(hours=1)
"""A waiting charge whose looks get no answer is replaced only after it has waited for this time."""
REPLACEABLE_LOOKS = 3
"""A waiting charge whose looks get no answer is replaced only after this number of looks."""


async def look_later(work: Work, connection_id: UUID, gateway_charge_ids: Sequence[str]) -> Collection[str]:
    """Schedule a look at each charge that a webhook names and that is not stored. Return the charges that are dropped.

    At most MAX_WAITING charges wait for a look. If more would wait, the new charge replaces one of these waiting
    charges:
    - a charge that the gateway did not know;
    - if there is none, a charge that has waited for REPLACEABLE_AFTER and had REPLACEABLE_LOOKS looks without an
      answer.

    If no waiting charge can be replaced, the new charge is dropped.
    """
    unknown = await stored_unmatched.without_charge(work.tx, connection_id, gateway_charge_ids)
    if not unknown:
        return []
    known = await stored_unmatched.find(work.tx, connection_id, unknown)
    new = [each for each in dict.fromkeys(unknown) if each not in known]
    chosen = await _with_places(work, connection_id, new, known=known)
    await schedule(work, connection_id, [*known, *chosen], only_webhook=True)
    return set(new).difference(chosen)


async def _with_places(
    work: Work, connection_id: UUID, new: Sequence[str], *, known: Collection[str]
) -> Sequence[str]:
    """Return the new charges that may wait for a look. Remove the charges that they replace, but none in `known`."""
    found_by = work.now - REPLACEABLE_AFTER
    undecided, replaceable = await look_places.count_undecided(
        work.tx, connection_id, named=known, found_by=found_by, unanswered_looks=REPLACEABLE_LOOKS
    )
    chosen = new[: max(MAX_WAITING - undecided + replaceable, 0)]
    if len(chosen) < len(new):
        dropped = len(new) - len(chosen)
        log.warning("gateway.webhook_charges_dropped", connection_id=str(connection_id), charges=dropped)
    excess = min(undecided + len(chosen) - MAX_WAITING, replaceable)
    if excess > 0:
        removed = await look_places.remove_replaceable(
            work.tx,
            connection_id,
            named=known,
            found_by=found_by,
            unanswered_looks=REPLACEABLE_LOOKS,
            limit=excess,
        )
        log.warning("gateway.waiting_charges_replaced", connection_id=str(connection_id), charge_ids=removed)
    return chosen


async def schedule(
    work: Work, connection_id: UUID, gateway_charge_ids: Sequence[str], *, only_webhook: bool = False
) -> None:
    """Schedule a look at these charges. The caller has checked that none of them is a stored charge.

    With `only_webhook`, a webhook is the only reason for the look. If a charge already has another reason, this reason
    stays stored.
    """
    await stored_unmatched.add(
        work.tx,
        connection_id,
        gateway_charge_ids,
        found_at=work.now,
        next_look_at=work.now + LOOK_AFTER,
        only_webhook=only_webhook,
    )
