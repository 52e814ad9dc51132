"""Propagations, which move a plan's subscribers to another version, and reasons to skip a subscriber (D-23, D-54)."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from fatura.domain.connection import Connection, check_minimums, check_support, installments_of
from fatura.domain.errors import EngineError
from fatura.domain.offer import PaymentMethod

SKIPPED_SHOWN = 1000
"""Maximum number of skipped subscriptions that an answer lists (D-180)."""


class SkipReason(StrEnum):
    """Why a subscriber was not moved. Clients depend on these codes, so do not rename them."""

    GATEWAY_CONNECTION_INACTIVE = "gateway_connection_inactive"
    PAYMENT_METHOD_UNSUPPORTED = "payment_method_unsupported"
    INSTALLMENTS_UNSUPPORTED = "installments_unsupported"
    AMOUNT_UNSUPPORTED = "amount_unsupported"
    FAILED = "failed"


class PropagationStatus(StrEnum):
    """Whether a propagation still moves subscribers, has ended, or was replaced by a later one (D-54)."""

    RUNNING = "running"
    DONE = "done"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class Propagation:
    """A request to move a plan's subscribers to a version, and its progress.

    Only subscribers on an older version move. If `from_version` is set, only subscribers on that version move.
    The propagation visits subscriptions in the order of their ids. `visited_to` is the highest visited id.
    """

    propagation_id: UUID
    plan_id: UUID
    plan_version_id: UUID
    version: int
    from_version: int | None
    status: PropagationStatus
    visited_to: UUID | None
    moved: int
    skipped: int
    cents_before: int
    cents_after: int
    created_at: datetime
    ended_at: datetime | None


def skip_reason(
    connection: Connection, method: PaymentMethod, *, max_installments: int, lowest_cents: int
) -> SkipReason | None:
    """Return why the subscription's connection cannot charge these terms, or None if it can.

    The number of installments is checked only for cards (D-20). `lowest_cents` is the lowest amount that will be
    charged, or 0 if it is not known (D-49). For a connection that cannot issue charges, the reason is always
    GATEWAY_CONNECTION_INACTIVE.
    """
    if not connection.may_bill:
        return SkipReason.GATEWAY_CONNECTION_INACTIVE
    installments = max_installments if method is PaymentMethod.CARD else 1
    try:
        check_support(method, installments, connections=connection)
        check_minimums(connection, lowest_cents, installments=installments_of(method, max_installments))
    except EngineError as refusal:
        return SkipReason(refusal.problem.type.removeprefix("engine."))
    return None
