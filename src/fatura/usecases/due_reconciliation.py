"""Do the due work of reconciliation: poll rounds, polls, late look-ups, refunds and reads of unmatched charges."""

from collections.abc import Awaitable, Mapping
from typing import Protocol

from fatura.domain.account import Account
from fatura.observability import log
from fatura.store import due_times
from fatura.usecases.charging import late_charge_checks
from fatura.usecases.connections import poll_rounds
from fatura.usecases.deps import Deps
from fatura.usecases.payments import refund_calls
from fatura.usecases.reconciliation import polling, unmatched_charges
from fatura.usecases.transaction import DATABASE_FAILURES, Work, in_transaction


class _RunPart(Protocol):
    def __call__(self, deps: Deps, account: Account, *, limit: int) -> Awaitable[int]: ...


async def _advance_round(deps: Deps, account: Account, *, limit: int) -> int:  # noqa: ARG001 - rounds have their own batch size
    """Run one batch of a round. Return 1 if the round has further batches, else 0."""
    return int(await poll_rounds.advance(deps, account))


_PARTS: Mapping[str, _RunPart] = {
    "rounds": _advance_round,
    "looks": unmatched_charges.look,
    "late_checks": late_charge_checks.check,
    "polls": polling.reconcile,
    "refunds": refund_calls.settle_due,
}
"""The function for each part of the work, in the order in which the parts run.

`looks` and `late_checks` run before `polls`, because these two use at most half of a connection's budget. Polls could
use up all of it.
"""


async def run(deps: Deps, account: Account, *, limit: int) -> int:
    """Run one batch of each part that is due. Return how many items were claimed.

    A batch has up to `limit` items. The part `rounds` is an exception: its batch size is fixed, and it adds 1 to the
    result if the round has further batches, else 0. An unexpected error in one part does not stop the next parts.
    Raises DATABASE_FAILURES.
    """
    due = await in_transaction(deps, account, _due_parts)
    if "rounds" in due:  # a round makes invoices due for polling
        due |= {"polls"}
    return sum([await _run_part(deps, account, name, limit=limit) for name in _PARTS if name in due])


async def _run_part(deps: Deps, account: Account, name: str, *, limit: int) -> int:
    try:
        return await _PARTS[name](deps, account, limit=limit)
    except DATABASE_FAILURES:
        raise
    except Exception:  # noqa: BLE001 - logged with its traceback; the next poll of the lane retries
        log.exception("reconciliation.part_failed", part=name, account_id=str(account.account_id))
        return 0


async def _due_parts(work: Work) -> frozenset[str]:
    return await due_times.due_reconciliation(work.tx, now=work.now)
