"""A request to move the subscriptions of a gateway connection to another connection, and its progress (D-59)."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from fatura.domain.errors import GATEWAY_MOVE_RUNNING, EngineError


class MoveStatus(StrEnum):
    """Whether a move still moves subscriptions, has ended, or was stopped because its target became inactive."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ConnectionMove:
    """A move and its progress.

    The move visits subscriptions in the order of their ids. `visited_to` is the highest visited id.
    """

    connection_move_id: UUID
    from_connection_id: UUID
    to_connection_id: UUID
    status: MoveStatus
    visited_to: UUID | None
    moved: int
    skipped: int
    created_at: datetime
    ended_at: datetime | None


def check_no_conflict(running: Collection[ConnectionMove], *, from_id: UUID, to_id: UUID) -> None:
    """Refuse a move that conflicts with a running move.

    Two moves conflict if they have the same source, or if the source of one is the target of the other. In both cases,
    the result would depend on which move is faster. Several moves may have the same target.
    Raises EngineError: `engine.gateway_move_running`.
    """
    for each in running:
        if each.from_connection_id in {from_id, to_id} or each.to_connection_id == from_id:
            raise EngineError(
                GATEWAY_MOVE_RUNNING,
                f"Subscriptions are being moved from {each.from_connection_id} to {each.to_connection_id}; wait until "
                f"GET /v1/integration/gateways/{each.from_connection_id}/move says `done`.",
            )
