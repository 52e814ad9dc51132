"""The lanes of background work: what each does, its batch size, and how many batches run concurrently."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fatura.domain.account import Account
from fatura.usecases import due_accounts, due_reconciliation, gateway_probes
from fatura.usecases.billing import generation
from fatura.usecases.catalog import mirroring, propagation
from fatura.usecases.charging import issuance
from fatura.usecases.deps import Deps
from fatura.usecases.pricing import price_pull
from fatura.usecases.reconciliation import sweep
from fatura.usecases.retention import deletion
from fatura.usecases.sandbox import test_clock
from fatura.usecases.subscriptions import connection_moves, erasure
from fatura.usecases.transaction import DATABASE_FAILURES, LaneName
from fatura.usecases.webhooks import delivery

CALL_BATCH = 64
"""Maximum number of invoices, charges, refunds or products claimed together. Their gateway calls run concurrently."""
MAX_CALLING = 2000
"""Maximum number of accounts for which one lane waits for gateways' answers concurrently.

An account whose gateway hangs counts towards this limit for 20 s per call. After a few failed calls, this gateway gets
only probes, which the lane GATEWAY_PROBE sends.
"""
PRICE_BATCH = 64
"""Maximum number of price calls claimed together. Four concurrent batches of an account reach MAX_CALLS_OF_ACCOUNT."""
MAX_PUSHES = 128
"""Maximum number of accounts to whose webhooks one lane delivers concurrently.

An account whose endpoint does not answer counts towards this limit for 10 s. The lane PROBE serves the endpoints that
are down, so that they do not delay the endpoints that are up.
"""
MAX_SWEEPS = 32
"""Maximum number of connections that one process sweeps concurrently."""
MAX_CLOCKS = 32
"""Maximum number of test clocks moved concurrently. A price endpoint that hangs delays its account's clock by 10 s."""
CLOCK_TRANSACTIONS = 2
"""Limit of the concurrent transactions of all test clocks of a process, so that other work gets connections too."""
CLOCK_BATCH = 100
"""Maximum number of subscriptions that a moving test clock bills in one transaction (D-214)."""


RunLane = Callable[[Deps, Account], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Lane:
    """One kind of work: `due` finds the accounts with due work, `run` does one batch for an account.

    `run` returns the number of items that it processed, or 0 if nothing was due. Accounts take turns, one batch each,
    so an account with much work does not delay others. `batches_at_once` limits the concurrent batches of all accounts,
    and `batches_an_account` limits the concurrent batches of one account.
    Some lanes run many concurrent batches, because their batches mostly wait for calls. `transactions_at_once` limits
    the concurrent transactions of such a lane, so that the other lanes get database connections too.
    """

    name: str
    due: Callable[[Deps], Awaitable[Sequence[Account]]]
    run: RunLane
    batches_at_once: int
    batches_an_account: int = 1
    transactions_at_once: int | None = None


async def _move_subscriptions(deps: Deps, account: Account) -> int:
    return await propagation.run(deps, account) + await connection_moves.run(deps, account)


async def _generate(deps: Deps, account: Account) -> int:
    began = time.monotonic()
    try:
        done = await generation.run(deps, account, limit=deps.generation_batch.current)
    except DATABASE_FAILURES:
        deps.generation_batch.note_failure()
        raise
    deps.generation_batch.note(done, seconds=time.monotonic() - began)
    return done


async def _price(deps: Deps, account: Account) -> int:
    return await price_pull.pull(deps, account, limit=PRICE_BATCH)


async def _issue(deps: Deps, account: Account) -> int:
    return await issuance.issue(deps, account, limit=CALL_BATCH)


async def _reconcile(deps: Deps, account: Account) -> int:
    return await due_reconciliation.run(deps, account, limit=CALL_BATCH)


async def _mirror(deps: Deps, account: Account) -> int:
    return await mirroring.mirror(deps, account, limit=CALL_BATCH)


async def _generate_few(deps: Deps, account: Account) -> int:
    return await generation.run(deps, account, limit=CLOCK_BATCH)


async def _advance_clock(deps: Deps, account: Account) -> int:
    lanes = {lane.name: lane.run for lane in ENGINE}
    return await test_clock.advance_to_target(deps, account, {**lanes, LaneName.GENERATION: _generate_few})


ENGINE: tuple[Lane, ...] = (
    Lane(LaneName.PROPAGATION, due_accounts.of(LaneName.PROPAGATION), _move_subscriptions, batches_at_once=2),
    Lane(LaneName.GENERATION, due_accounts.of(LaneName.GENERATION), _generate, batches_at_once=3),
    Lane(
        LaneName.PRICING, due_accounts.of(LaneName.PRICING), _price, batches_at_once=64, batches_an_account=4
    ),
    Lane(
        LaneName.ISSUANCE,
        due_accounts.of(LaneName.ISSUANCE),
        _issue,
        batches_at_once=MAX_CALLING,
        transactions_at_once=4,
    ),
    Lane(
        LaneName.RECONCILIATION,
        due_accounts.of(LaneName.RECONCILIATION),
        _reconcile,
        batches_at_once=MAX_CALLING,
        transactions_at_once=4,
    ),
    Lane(
        LaneName.SWEEP,
        due_accounts.of(LaneName.SWEEP),
        sweep.sweep,
        batches_at_once=MAX_SWEEPS,
        transactions_at_once=1,
    ),
    Lane(
        LaneName.GATEWAY_PROBE,
        due_accounts.of(LaneName.GATEWAY_PROBE),
        gateway_probes.probe,
        batches_at_once=MAX_CALLING,
        transactions_at_once=2,
    ),
    Lane(
        LaneName.MIRRORING,
        due_accounts.of(LaneName.MIRRORING),
        _mirror,
        batches_at_once=MAX_CALLING,
        transactions_at_once=2,
    ),
    Lane(LaneName.PUSH, due_accounts.of(LaneName.PUSH), delivery.deliver, batches_at_once=MAX_PUSHES),
)
"""The lanes whose work depends on the account's clock. A test clock runs them at each of its steps."""


LANES: tuple[Lane, ...] = (
    *ENGINE,
    Lane(LaneName.PROBE, due_accounts.of(LaneName.PROBE), delivery.deliver, batches_at_once=MAX_PUSHES),
    Lane(
        LaneName.TEST_CLOCK,
        due_accounts.of(LaneName.TEST_CLOCK),
        _advance_clock,
        batches_at_once=MAX_CLOCKS,
        transactions_at_once=CLOCK_TRANSACTIONS,
    ),
    Lane(LaneName.ERASURE, due_accounts.of(LaneName.ERASURE), erasure.run, batches_at_once=1),
    Lane(LaneName.RETENTION, due_accounts.of(LaneName.RETENTION), deletion.run, batches_at_once=1),
)
