"""The lanes of background work: what each does, its batch size, and how many batches run concurrently."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fatura.domain.account import Account
from fatura.usecases import due_accounts, idempotency
from fatura.usecases.billing import generation
from fatura.usecases.catalog import mirroring
from fatura.usecases.charging import issuance, late_charge_checks, polling
from fatura.usecases.deps import Deps
from fatura.usecases.pricing import price_pull
from fatura.usecases.sandbox import test_clock
from fatura.usecases.transaction import LaneName, in_transaction
from fatura.usecases.webhooks import delivery

GENERATION_BATCH = 1000
"""Subscriptions billed in one transaction."""
CALL_BATCH = 64
"""Invoices or products claimed together; their gateway calls run concurrently."""
PRICE_BATCH = 64
"""Price calls claimed together."""
MAX_PUSHES = 128
"""Maximum number of accounts whose webhooks one lane delivers concurrently.

An endpoint that does not answer counts towards this limit for 10 s. Endpoints that are down are served by the PROBE
lane, so they do not delay those that are up.
"""
MAX_CLOCKS = 32
"""Maximum number of test clocks moved concurrently; an endpoint that does not answer delays one of them by 10 s."""
EXPIRED_KEYS_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Lane:
    """One kind of work: `due` finds the accounts with due work, `run` does one batch for an account.

    `run` returns how much it did, or 0 when nothing was due. Accounts take turns, one batch each, so that an account
    with much work does not delay others. `batches_at_once` limits the concurrent batches of all accounts, and
    `batches_an_account` limits those of one account. It is above 1 if a batch spends most of its time waiting.
    """

    name: str
    due: Callable[[Deps], Awaitable[Sequence[Account]]]
    run: Callable[[Deps, Account], Awaitable[int]]
    batches_at_once: int
    batches_an_account: int = 1


async def _generate(deps: Deps, account: Account) -> int:
    return await generation.run(deps, account, limit=GENERATION_BATCH)


async def _price(deps: Deps, account: Account) -> int:
    return await price_pull.pull(deps, account, limit=PRICE_BATCH)


async def _issue(deps: Deps, account: Account) -> int:
    return await issuance.issue(deps, account, limit=CALL_BATCH)


async def _reconcile(deps: Deps, account: Account) -> int:
    polled = await polling.reconcile(deps, account, limit=CALL_BATCH)
    return polled + await late_charge_checks.check(deps, account, limit=CALL_BATCH)


async def _mirror(deps: Deps, account: Account) -> int:
    return await mirroring.mirror(deps, account, limit=CALL_BATCH)


async def _delete_expired_keys(deps: Deps, account: Account) -> int:
    return await in_transaction(deps, account, idempotency.delete_expired, limit=EXPIRED_KEYS_BATCH)


async def _advance_clock(deps: Deps, account: Account) -> int:
    return await test_clock.advance_to_target(deps, account, {lane.name: lane.run for lane in ENGINE})


ENGINE: tuple[Lane, ...] = (
    Lane(
        LaneName.GENERATION,
        due_accounts.of(LaneName.GENERATION),
        _generate,
        batches_at_once=3,
        batches_an_account=2,
    ),
    Lane(
        LaneName.PRICING, due_accounts.of(LaneName.PRICING), _price, batches_at_once=64, batches_an_account=32
    ),
    Lane(LaneName.ISSUANCE, due_accounts.of(LaneName.ISSUANCE), _issue, batches_at_once=4),
    Lane(LaneName.RECONCILIATION, due_accounts.of(LaneName.RECONCILIATION), _reconcile, batches_at_once=4),
    Lane(LaneName.MIRRORING, due_accounts.of(LaneName.MIRRORING), _mirror, batches_at_once=2),
    Lane(LaneName.PUSH, due_accounts.of(LaneName.PUSH), delivery.deliver, batches_at_once=MAX_PUSHES),
)
"""The lanes whose work depends on the account's clock; they run at each step of a test clock."""

LANES: tuple[Lane, ...] = (
    *ENGINE,
    Lane(LaneName.PROBE, due_accounts.of(LaneName.PROBE), delivery.deliver, batches_at_once=MAX_PUSHES),
    Lane(
        LaneName.TEST_CLOCK, due_accounts.of(LaneName.TEST_CLOCK), _advance_clock, batches_at_once=MAX_CLOCKS
    ),
    Lane(LaneName.RETENTION, due_accounts.of(LaneName.RETENTION), _delete_expired_keys, batches_at_once=1),
)
