"""Move a plan's subscribers to its current version, or show in a dry run what would change (D-23, D-54).

`propagate` stores the target; `usecases.stored_target` runs the batches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import msgspec

from fatura.domain.account import Account
from fatura.domain.connection import Connection
from fatura.domain.errors import NOT_FOUND, PLAN_ARCHIVED, PROPAGATION_RUNNING, EngineError, require
from fatura.domain.invoice import BillingTerms, amounts_by_cycle, build, lowest_charge_cents
from fatura.domain.offer import PaymentMethod, Plan
from fatura.domain.propagation import Propagation, PropagationStatus, SkipReason, skip_reason
from fatura.domain.subscription import PaymentMethodSource, TermsReason
from fatura.store import suspension
from fatura.store.catalog import plans, propagation
from fatura.store.catalog.propagation import PaymentRoute, Subscriber, SubscriberGroup, Target
from fatura.store.subscriptions import subscriptions, terms_history
from fatura.usecases import stored_target
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.catalog.plans import account_connections, lock_plan
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import IdempotentRequest, execute_once
from fatura.usecases.stored_target import BatchedMove
from fatura.usecases.transaction import LaneName, Work, in_snapshot, in_transaction
from fatura.views.events import SubscriptionTermsDataView
from fatura.views.plans import PropagationProgressView, PropagationView
from fatura.views.view import View

BATCH = 500
"""Maximum number of subscribers that one transaction moves or skips."""
WAIT_SECONDS = 5
"""How long the request runs batches before it answers 202 (D-54)."""


@dataclass(frozen=True, slots=True)
class PropagationAnswer:
    """The progress when the request ends. `is_replayed` is true if an earlier request had the same Idempotency-Key."""

    view: PropagationView
    is_done: bool
    is_replayed: bool


class _Started(View):
    """The propagation's id, stored for an Idempotency-Key. A repeated request returns this propagation's progress."""

    id: str


async def propagate(
    deps: Deps,
    account: Account,
    request: IdempotentRequest | None,
    plan_id: UUID,
    *,
    from_version: int | None,
    draft: AuditDraft | None,
) -> PropagationAnswer:
    """Move active subscribers without private terms to the plan's current version from their next cycle on (D-23).

    With `from_version`, move only the subscribers of that version. A subscription that does not override the payment
    method also gets the new default method. For each moved subscription, emit `subscription.terms_changed`.
    Raises EngineError: `engine.not_found` for the plan or its `from_version`; `engine.plan_archived`;
    `engine.propagation_running`; the errors of `execute_once`.
    """
    start = partial(_start, plan_id=plan_id, from_version=from_version)
    stored = await execute_once(deps, account, request, start, status=202, draft=draft)
    propagation_id = UUID(msgspec.json.decode(stored.body, type=_Started).id)
    await stored_target.run_for(deps, account, _BATCHES, propagation_id, seconds=WAIT_SECONDS, limit=BATCH)
    found, view = await in_snapshot(deps, account, _read, propagation_id)
    is_done = found.status is PropagationStatus.DONE
    return PropagationAnswer(view, is_done=is_done, is_replayed=stored.replayed)


async def run(deps: Deps, account: Account) -> int:
    """Run one batch of the running propagation that has waited longest.

    Returns what `stored_target.run_batch` returns, or 0 if no propagation is running. Raises DATABASE_FAILURES.
    """
    propagation_id = await in_transaction(deps, account, _waiting_longest)
    if propagation_id is None:
        return 0
    return await stored_target.run_batch(deps, account, _BATCHES, propagation_id, limit=BATCH)


async def _waiting_longest(work: Work) -> UUID | None:
    return await propagation.waiting_longest(work.tx)


async def _has_ended(work: Work, propagation_id: UUID) -> bool:
    found = await propagation.find(work.tx, propagation_id)
    assert found is not None, "a propagation is never deleted"
    return found.status is not PropagationStatus.RUNNING


async def _visited_to(work: Work, propagation_id: UUID) -> UUID | None:
    found = await propagation.find(work.tx, propagation_id)
    return None if found is None else found.visited_to


async def dry_run(work: Work, plan_id: UUID, *, from_version: int | None) -> PropagationView:
    """Return what `propagate` would answer. Only the plan is locked, and nothing changes (D-23).

    Raises EngineError: `engine.not_found` for the plan or its `from_version`; `engine.plan_archived`.
    """
    plan = await _locked_plan(work, plan_id, for_share=True, from_version=from_version)
    target = Target(plan_id, plan.version, from_version)
    groups = await propagation.groups(work.tx, target)
    reasons = await _reasons(work, plan, groups)
    moving = [group for group in groups if reasons[group.route, group.cycle_count] is None]
    refused = [(*key, reason) for key, reason in reasons.items() if reason is not None]
    before, after = await _next_cycle_cents(work, plan, moving)
    return PropagationView.of(
        version=plan.version,
        moved=sum(group.subscribers for group in moving),
        skipped_count=sum(group.subscribers for group in groups) - sum(group.subscribers for group in moving),
        skipped=await propagation.would_skip(work.tx, target, refused),
        cents_before=before,
        cents_after=after,
    )


async def read_progress(work: Work, plan_id: UUID) -> PropagationProgressView:
    """Return the plan's newest propagation. Raises EngineError: `engine.not_found`."""
    require(await plans.find(work.tx, plan_id), "plan", id_=plan_id)
    found = await propagation.newest_of_plan(work.tx, plan_id)
    if found is None:
        raise EngineError(NOT_FOUND, "The plan was never propagated.")
    return PropagationProgressView.of_progress(
        found, await propagation.skipped_by(work.tx, found.propagation_id)
    )


async def _read(work: Work, propagation_id: UUID) -> tuple[Propagation, PropagationView]:
    found = await propagation.find(work.tx, propagation_id)
    assert found is not None, "a propagation is never deleted"
    skipped = await propagation.skipped_by(work.tx, propagation_id)
    return found, PropagationView.of_stored(found, skipped)


async def _start(work: Work, *, plan_id: UUID, from_version: int | None) -> _Started:
    """Store a target, unless a propagation with the same target is running.

    Replace a running propagation that has another target. Raises EngineError: `engine.propagation_running` if the new
    target would leave out subscribers that the running propagation selects.
    """
    plan = await _locked_plan(work, plan_id, for_share=False, from_version=from_version)
    work.audit(plan_id, before={}, after={"version": plan.version, "fromVersion": from_version})
    running = await propagation.lock_running_of_plan(work.tx, plan_id)
    if running is not None:
        if (running.version, running.from_version) == (plan.version, from_version):
            return _Started(id=str(running.propagation_id))
        if from_version not in {None, running.from_version}:
            raise EngineError(
                PROPAGATION_RUNNING,
                "Another propagation of the plan is running and selects more subscribers. Wait until it is done, or "
                "leave out `fromVersion` to move all of them to the current version.",
            )
        await work.refresh()
        await propagation.replace(work.tx, running.propagation_id, ended_at=work.now)
    if (earlier := await propagation.newest_of_plan(work.tx, plan_id)) is not None:
        await propagation.delete_skipped(work.tx, earlier.propagation_id)
    new = Propagation(
        propagation_id=work.new_id(),
        plan_id=plan_id,
        plan_version_id=plan.plan_version_id,
        version=plan.version,
        from_version=from_version,
        status=PropagationStatus.RUNNING,
        visited_to=None,
        moved=0,
        skipped=0,
        cents_before=0,
        cents_after=0,
        created_at=work.now,
        ended_at=None,
    )
    await propagation.insert(work.tx, new)
    work.notify(LaneName.PROPAGATION)
    return _Started(id=str(new.propagation_id))


async def _move_batch(work: Work, propagation_id: UUID, *, limit: int) -> int:
    """Move or skip the next subscribers of a propagation, and store the progress, in this transaction.

    The subscribers stay locked until the commit, so that no invoice mixes old and new terms. A subscriber that was
    canceled or customized before the batch is not selected. While the account is suspended, do nothing (D-242).
    """
    if not await suspension.may_work(work.tx):
        return 0
    of = await propagation.claim_running(work.tx, propagation_id)
    if of is None:
        return 0
    found = await propagation.lock_subscribers(work.tx, of, limit=limit)
    await work.refresh()  # time may have passed while `lock_subscribers` waited for locks
    plan = await plans.find_version(work.tx, of.plan_version_id)
    assert plan is not None, "a plan version is never deleted"
    reasons = await _reasons(work, plan, found)
    moving = [each for each in found if reasons[each.route, each.cycle_count] is None]
    skipped = [
        (each.subscription_id, reason)
        for each in found
        if (reason := reasons[each.route, each.cycle_count]) is not None
    ]
    cents = await _next_cycle_cents(work, plan, _grouped(moving))
    await _move(work, of, [(each.subscription_id, _method_after(each.route, plan)) for each in moving])
    if skipped:
        await propagation.skip(work.tx, of.propagation_id, skipped)
    await propagation.advance(
        work.tx,
        of.propagation_id,
        visited_to=found[-1].subscription_id if found else None,
        moved=len(moving),
        skipped=len(skipped),
        cents=cents,
        worked_at=work.now,
        is_done=len(found) < limit,
    )
    return len(found) + (len(found) < limit)


async def _move(work: Work, to: Propagation, moves: Sequence[tuple[UUID, PaymentMethod]]) -> None:
    if not moves:
        return
    moved_ids = [subscription_id for subscription_id, _ in moves]
    await propagation.pin(work.tx, to, moves)
    await terms_history.append(work.tx, moved_ids, reason=TermsReason.PROPAGATED, changed_at=work.now)
    for moved in await subscriptions.find_all(work.tx, moved_ids):
        data = SubscriptionTermsDataView.of(moved, reason=TermsReason.PROPAGATED, changed_at=work.now)
        work.emit("subscription.terms_changed", data, subscription_id=moved.subscription_id)


async def _skip_next(work: Work, propagation_id: UUID, *, after: UUID | None) -> int:
    """Skip the first subscriber after `after`, because its move raised an exception.

    Do nothing if another process has already visited that subscriber.
    """
    of = await propagation.claim_running(work.tx, propagation_id)
    if of is None or of.visited_to != after:
        return 0
    failed = await propagation.next_id(work.tx, of)
    if failed is None:
        return 0
    await propagation.skip(work.tx, of.propagation_id, [(failed, SkipReason.FAILED)])
    await propagation.advance(
        work.tx,
        of.propagation_id,
        visited_to=failed,
        moved=0,
        skipped=1,
        cents=(0, 0),
        worked_at=work.now,
        is_done=False,
    )
    return 1


async def _locked_plan(work: Work, plan_id: UUID, *, for_share: bool, from_version: int | None) -> Plan:
    plan = await lock_plan(work, plan_id, for_share=for_share)
    if from_version is not None and from_version > plan.version:
        raise EngineError(
            NOT_FOUND, f"The plan has no version {from_version}; its current one is {plan.version}."
        )
    if plan.archived_at is not None:
        raise EngineError(
            PLAN_ARCHIVED,
            "The plan is archived: its subscribers keep their terms; customize those that need others.",
        )
    return plan


_BATCHES = BatchedMove("propagation", _has_ended, _move_batch, _visited_to, _skip_next)


def _method_after(route: PaymentRoute, plan: Plan) -> PaymentMethod:
    """Return the payment method under the new terms: the subscriber's override, or else the new default."""
    return route.method if route.source is PaymentMethodSource.OVERRIDE else plan.default_payment_method


async def _reasons(
    work: Work, plan: Plan, moving: Sequence[Subscriber] | Sequence[SubscriberGroup]
) -> Mapping[tuple[PaymentRoute, int], SkipReason | None]:
    """For each payment route and number of billed cycles, return the reason to skip such subscribers, or None.

    The number of billed cycles matters because discounts of past cycles do not count (D-49).
    """
    connections: dict[UUID, Connection] = {
        each.connection_id: each for each in await account_connections(work)
    }
    amounts: Sequence[tuple[int, int]] = []
    if any(each.has_minimums for each in connections.values()):
        version_id = plan.plan_version_id
        amounts = amounts_by_cycle((await plans.billing_terms(work.tx, [version_id]))[version_id])
    return {
        (route, cycle_count): skip_reason(
            connections[route.connection_id],
            _method_after(route, plan),
            max_installments=plan.max_installments,
            lowest_cents=lowest_charge_cents(amounts, from_cycle=cycle_count + 1),
        )
        for route, cycle_count in {(each.route, each.cycle_count) for each in moving}
    }


def _grouped(moving: Sequence[Subscriber]) -> Sequence[SubscriberGroup]:
    counts: dict[tuple[UUID, int, PaymentRoute], int] = {}
    for each in moving:
        key = (each.plan_version_id, each.cycle_count, each.route)
        counts[key] = counts.get(key, 0) + 1
    return [SubscriberGroup(*key, subscribers) for key, subscribers in counts.items()]


async def _next_cycle_cents(work: Work, plan: Plan, groups: Sequence[SubscriberGroup]) -> tuple[int, int]:
    """Return two totals of the groups' next invoices, under the old and under the new terms, without variable items."""
    terms: Mapping[UUID, BillingTerms] = await plans.billing_terms(
        work.tx, {plan.plan_version_id, *(group.plan_version_id for group in groups)}
    )
    new_terms = terms[plan.plan_version_id]
    before = after = 0
    for group in groups:
        cycle = group.cycle_count + 1
        old = build(terms[group.plan_version_id], cycle=cycle, method=group.route.method)
        new = build(new_terms, cycle=cycle, method=_method_after(group.route, plan))
        before += group.subscribers * old.fixed_total_cents
        after += group.subscribers * new.fixed_total_cents
    return before, after
