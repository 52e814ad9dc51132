"""Move a connection's subscriptions to another connection, or show in a dry run what would happen (D-59).

`move` stores the target; `usecases.stored_target` runs the batches.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import msgspec

from fatura.domain.account import Account
from fatura.domain.connection import Connection, choose
from fatura.domain.connection_move import ConnectionMove, MoveStatus, check_no_conflict
from fatura.domain.errors import (
    GATEWAY_CONNECTION_FAILING,
    GATEWAY_CONNECTION_NOT_FOUND,
    NOT_FOUND,
    EngineError,
    require,
)
from fatura.domain.invoice import amounts_by_cycle, lowest_charge_cents
from fatura.domain.propagation import SkipReason, skip_reason
from fatura.store import suspension
from fatura.store.catalog import plans
from fatura.store.connections import connections
from fatura.store.subscriptions import connection_moves as stored_moves
from fatura.store.subscriptions import subscriptions
from fatura.store.subscriptions.connection_moves import ChargeKind
from fatura.usecases import stored_target
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import IdempotentRequest, execute_once
from fatura.usecases.stored_target import BatchedMove
from fatura.usecases.transaction import LaneName, Work, in_snapshot, in_transaction
from fatura.views.connection_moves import ConnectionMoveProgressView, ConnectionMoveView
from fatura.views.events import SubscriptionGatewayDataView
from fatura.views.view import View

BATCH = 500
"""Maximum number of subscriptions that one transaction moves or skips."""
WAIT_SECONDS = 5
"""How long the request runs batches before it answers 202."""


@dataclass(frozen=True, slots=True)
class MoveAnswer:
    """The move's progress. `is_replayed` is true if an earlier request had the same Idempotency-Key."""

    view: ConnectionMoveView
    is_done: bool
    is_replayed: bool


class _Started(View):
    """The move's id, stored for an Idempotency-Key. A repeated request returns this move's progress."""

    id: str


async def move(
    deps: Deps,
    account: Account,
    request: IdempotentRequest | None,
    from_id: UUID,
    *,
    to_id: UUID,
    draft: AuditDraft | None,
) -> MoveAnswer:
    """Pin a connection's active subscriptions to another connection, which bills them from their next cycle (D-59).

    Existing invoices keep their connection. For each moved subscription, the event `subscription.gateway_changed` is
    emitted.
    Raises EngineError: `engine.not_found`, `engine.gateway_move_running`,
    `engine.gateway_connection_failing`, `engine.gateway_connection_not_found`; the errors of `execute_once`.
    """
    start = partial(_start, from_id=from_id, to_id=to_id)
    stored = await execute_once(deps, account, request, start, status=202, draft=draft)
    move_id = UUID(msgspec.json.decode(stored.body, type=_Started).id)
    await stored_target.run_for(deps, account, _BATCHES, move_id, seconds=WAIT_SECONDS, limit=BATCH)
    found, view = await in_snapshot(deps, account, _read, move_id)
    is_done = found.status is not MoveStatus.RUNNING
    return MoveAnswer(view, is_done=is_done, is_replayed=stored.replayed)


async def run(deps: Deps, account: Account) -> int:
    """Run one batch of the running move that has waited longest. Returns 0 if no move is running.

    Raises DATABASE_FAILURES.
    """
    running = await in_transaction(deps, account, _running)
    if not running:
        return 0
    move_id = running[0].connection_move_id
    return await stored_target.run_batch(deps, account, _BATCHES, move_id, limit=BATCH)


async def _running(work: Work) -> Sequence[ConnectionMove]:
    return await stored_moves.running(work.tx)


async def dry_run(work: Work, from_id: UUID, *, to_id: UUID) -> ConnectionMoveView:
    """Return what `move` would answer. Nothing is locked, and nothing changes.

    Raises EngineError: as `move`, without `engine.gateway_move_running`.
    """
    target = await _target(work, from_id, to_id)
    groups = await stored_moves.groups(work.tx, from_id)
    reasons = await _reasons(work, target, {group.kind for group in groups})
    refused = [(kind, reason) for kind, reason in reasons.items() if reason is not None]
    return ConnectionMoveView.of(
        to_connection_id=to_id,
        moved=sum(group.subscriptions for group in groups if reasons[group.kind] is None),
        skipped_count=sum(group.subscriptions for group in groups if reasons[group.kind] is not None),
        skipped=await stored_moves.would_skip(work.tx, from_id, refused),
    )


async def read_progress(work: Work, from_id: UUID) -> ConnectionMoveProgressView:
    """Return the newest move from a connection. Raises EngineError: `engine.not_found`."""
    require(await connections.find(work.tx, from_id), "gateway connection", id_=from_id)
    found = await stored_moves.newest_from(work.tx, from_id)
    if found is None:
        raise EngineError(NOT_FOUND, "The connection's subscriptions were never moved.")
    skipped = await stored_moves.skipped_by(work.tx, found.connection_move_id)
    return ConnectionMoveProgressView.of_progress(found, skipped)


async def _read(work: Work, move_id: UUID) -> tuple[ConnectionMove, ConnectionMoveView]:
    found = await _find(work, move_id)
    skipped = await stored_moves.skipped_by(work.tx, move_id)
    return found, ConnectionMoveView.of_stored(found, skipped)


async def _find(work: Work, move_id: UUID) -> ConnectionMove:
    found = await stored_moves.find(work.tx, move_id)
    assert found is not None, "a move is never deleted"
    return found


async def _target(work: Work, from_id: UUID, to_id: UUID) -> Connection:
    """Return the connection to which subscriptions may move. Raises EngineError: as `dry_run`."""
    found = {stored.connection.connection_id: stored for stored in await connections.find_all(work.tx)}
    require(found.get(from_id), "gateway connection", id_=from_id)
    if to_id == from_id:
        raise EngineError(
            GATEWAY_CONNECTION_NOT_FOUND,
            "The subscriptions are on this connection already; name another one in toConnectionId.",
        )
    if to_id in found and found[to_id].health.shown_since is not None:
        raise EngineError(
            GATEWAY_CONNECTION_FAILING,
            "The calls to the gateway of the target connection fail; repair that connection first.",
        )
    return choose([stored.connection for stored in found.values()], to_id)


async def _start(work: Work, *, from_id: UUID, to_id: UUID) -> _Started:
    """Store a new move, unless the same move is already running.

    Both connections are locked, so that the second of two concurrent requests sees the move of the first.
    """
    for connection_id in sorted((from_id, to_id)):
        await connections.lock(work.tx, connection_id)
    await work.refresh()
    work.audit(from_id, before={}, after={"toConnectionId": str(to_id)})
    running = await stored_moves.running(work.tx)
    for each in running:
        if (each.from_connection_id, each.to_connection_id) == (from_id, to_id):
            return _Started(id=str(each.connection_move_id))
    await _target(work, from_id, to_id)
    check_no_conflict(running, from_id=from_id, to_id=to_id)
    if (earlier := await stored_moves.newest_from(work.tx, from_id)) is not None:
        await stored_moves.delete_skipped(work.tx, earlier.connection_move_id)
    new = ConnectionMove(
        connection_move_id=work.new_id(),
        from_connection_id=from_id,
        to_connection_id=to_id,
        status=MoveStatus.RUNNING,
        visited_to=None,
        moved=0,
        skipped=0,
        created_at=work.now,
        ended_at=None,
    )
    await stored_moves.insert(work.tx, new)
    work.notify(LaneName.PROPAGATION)
    return _Started(id=str(new.connection_move_id))


async def _move_batch(work: Work, move_id: UUID, *, limit: int) -> int:
    """Move or skip the next subscriptions, and store the progress. The result is that of `BatchedMove.move`.

    The move ends when each active subscription of the old connection was moved or skipped. A subscription that was
    created meanwhile may have a lower id than those already visited. If such a subscription is left, the batches begin
    again at the lowest id. If the target connection must not bill any more, the move stops. While the account is
    suspended, do nothing (D-242).
    """
    if not await suspension.may_work(work.tx):
        return 0
    of = await stored_moves.claim_running(work.tx, move_id)
    if of is None:
        return 0
    target = require(
        await connections.find(work.tx, of.to_connection_id), "gateway connection", id_=of.to_connection_id
    ).connection
    if not target.may_bill:
        await stored_moves.advance(
            work.tx,
            of,
            visited_to=of.visited_to,
            moved=0,
            skipped=0,
            worked_at=work.now,
            status=MoveStatus.STOPPED,
        )
        return 1
    found = await stored_moves.lock_subscriptions(work.tx, of, limit=limit)
    await work.refresh()  # `lock_subscriptions` may have waited
    reasons = await _reasons(work, target, {each.kind for each in found})
    moving = [each.subscription_id for each in found if reasons[each.kind] is None]
    skipped = [(each.subscription_id, reason) for each in found if (reason := reasons[each.kind]) is not None]
    await _pin(work, of, moving)
    if skipped:
        await stored_moves.skip(work.tx, of, skipped)
    is_last = len(found) < limit
    is_done = is_last and await stored_moves.lock_for_end(work.tx, of)
    await stored_moves.advance(
        work.tx,
        of,
        visited_to=None if is_last else found[-1].subscription_id,
        moved=len(moving),
        skipped=len(skipped),
        worked_at=work.now,
        status=MoveStatus.DONE if is_done else MoveStatus.RUNNING,
    )
    return len(found) + is_last


async def _pin(work: Work, of: ConnectionMove, moving: list[UUID]) -> None:
    if not moving:
        return
    await stored_moves.pin(work.tx, of.to_connection_id, moving)
    for moved in await subscriptions.find_all(work.tx, moving):
        data = SubscriptionGatewayDataView.of(moved, previous_connection_id=of.from_connection_id)
        work.emit("subscription.gateway_changed", data, subscription_id=moved.subscription_id)


async def _has_ended(work: Work, move_id: UUID) -> bool:
    return (await _find(work, move_id)).status is not MoveStatus.RUNNING


async def _visited_to(work: Work, move_id: UUID) -> UUID | None:
    return (await _find(work, move_id)).visited_to


async def _skip_next(work: Work, move_id: UUID, *, after: UUID | None) -> int:
    """Skip the first subscription after `after`, because its move raised an exception.

    Do nothing if another process has already visited that subscription.
    """
    of = await stored_moves.claim_running(work.tx, move_id)
    if of is None or of.visited_to != after:
        return 0
    failed = await stored_moves.next_id(work.tx, of)
    if failed is None:
        return 0
    await stored_moves.skip(work.tx, of, [(failed, SkipReason.FAILED)])
    await stored_moves.advance(work.tx, of, visited_to=failed, moved=0, skipped=1, worked_at=work.now)
    return 1


_BATCHES = BatchedMove("connection_move", _has_ended, _move_batch, _visited_to, _skip_next)


async def _reasons(
    work: Work, target: Connection, kinds: Collection[ChargeKind]
) -> Mapping[ChargeKind, SkipReason | None]:
    """For each way of charging, return why the target cannot charge in this way, or None if it can (D-21, D-49)."""
    amounts: Mapping[UUID, Sequence[tuple[int, int]]] = {}
    if target.has_minimums:
        terms = await plans.billing_terms(work.tx, {kind.plan_version_id for kind in kinds})
        amounts = {version_id: amounts_by_cycle(each) for version_id, each in terms.items()}
    return {
        kind: skip_reason(
            target,
            kind.method,
            max_installments=kind.max_installments,
            lowest_cents=lowest_charge_cents(
                amounts.get(kind.plan_version_id, ()), from_cycle=kind.cycle_count + 1
            ),
        )
        for kind in kinds
    }
