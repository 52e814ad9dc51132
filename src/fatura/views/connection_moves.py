"""The move of a connection's subscriptions to another connection (D-59)."""

from collections.abc import Sequence
from typing import Annotated, Any, Self
from uuid import UUID

from msgspec import Meta

from fatura.domain.connection_move import ConnectionMove, MoveStatus
from fatura.domain.propagation import SKIPPED_SHOWN, SkipReason
from fatura.views.plans import SkippedSubscriptionView
from fatura.views.view import Count, Id, Instant, View, instant


class ConnectionMoveView(View):
    """The result of moving a connection's subscriptions, or of a dry run (D-59)."""

    to_connection_id: Annotated[Id, Meta(description="Connection to which the subscriptions move.")]
    moved: Annotated[Count, Meta(description="Subscriptions moved.")]
    skipped_count: Annotated[Count, Meta(description="Subscriptions that the other connection cannot bill.")]
    skipped: Annotated[
        list[SkippedSubscriptionView],
        Meta(
            max_length=SKIPPED_SHOWN,
            description=f"The first {SKIPPED_SHOWN:,} of these subscriptions, by id.",
        ),
    ]

    @classmethod
    def of(
        cls,
        *,
        to_connection_id: UUID,
        moved: int,
        skipped_count: int,
        skipped: Sequence[tuple[UUID, SkipReason]],
        **more: Any,
    ) -> Self:
        return cls(
            to_connection_id=str(to_connection_id),
            moved=moved,
            skipped_count=skipped_count,
            skipped=[
                SkippedSubscriptionView(subscription_id=str(subscription_id), reason=reason)
                for subscription_id, reason in skipped
            ],
            **more,
        )

    @classmethod
    def of_stored(
        cls, stored: ConnectionMove, skipped: Sequence[tuple[UUID, SkipReason]], **more: Any
    ) -> Self:
        return cls.of(
            to_connection_id=stored.to_connection_id,
            moved=stored.moved,
            skipped_count=stored.skipped,
            skipped=skipped,
            **more,
        )


class ConnectionMoveProgressView(ConnectionMoveView):
    """The newest move from a connection, and what it has done so far (D-59)."""

    id: Id
    status: Annotated[
        MoveStatus,
        Meta(
            description="`running`: subscriptions still move; `done`: all were moved or skipped; `stopped`: the other "
            "connection was made inactive meanwhile."
        ),
    ]
    created_at: Instant
    ended_at: Annotated[Instant | None, Meta(description="null while running.")]

    @classmethod
    def of_progress(cls, stored: ConnectionMove, skipped: Sequence[tuple[UUID, SkipReason]]) -> Self:
        return cls.of_stored(
            stored,
            skipped,
            id=str(stored.connection_move_id),
            status=stored.status,
            created_at=instant(stored.created_at),
            ended_at=instant(stored.ended_at),
        )
