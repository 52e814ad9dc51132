"""Find the accounts with due work, one function for each lane of background work (D-5).

Most functions return no accounts while this host's clock is wrong, because leases and due dates depend on the clock.
"""

from collections.abc import Awaitable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from fatura.domain.account import Account
from fatura.observability import log
from fatura.store import discovery
from fatura.store.db import Discovery
from fatura.store.sandbox import test_clock
from fatura.usecases.deps import Deps
from fatura.usecases.operations.health import MAX_CLOCK_SKEW, MAX_PUSH_SKEW
from fatura.usecases.transaction import LaneName


class _Discover(Protocol):
    def __call__(self, tx: Discovery, /, *, real_now: datetime) -> Awaitable[Sequence[Account]]: ...


async def generation(deps: Deps) -> Sequence[Account]:
    return await _discovered(
        deps, partial(discovery.discover, lane=LaneName.GENERATION), max_skew=MAX_CLOCK_SKEW
    )


async def pricing(deps: Deps) -> Sequence[Account]:
    return await _discovered(
        deps, partial(discovery.discover, lane=LaneName.PRICING), max_skew=MAX_CLOCK_SKEW
    )


async def issuance(deps: Deps) -> Sequence[Account]:
    due = partial(discovery.discover, lane=LaneName.ISSUANCE)
    return await _discovered(deps, due, max_skew=MAX_CLOCK_SKEW)


async def reconciliation(deps: Deps) -> Sequence[Account]:
    """Return the accounts with charges to poll or late charge checks to make."""
    return await _discovered(deps, partial(discovery.discover, lane=LaneName.RECONCILIATION))


async def mirroring(deps: Deps) -> Sequence[Account]:
    return await _discovered(deps, partial(discovery.discover, lane=LaneName.MIRRORING))


async def push(deps: Deps) -> Sequence[Account]:
    return await _discovered(deps, partial(discovery.discover_push, is_down=False), max_skew=MAX_PUSH_SKEW)


async def probes(deps: Deps) -> Sequence[Account]:
    return await _discovered(deps, partial(discovery.discover_push, is_down=True), max_skew=MAX_PUSH_SKEW)


async def expired_keys(deps: Deps) -> Sequence[Account]:
    return await _discovered(deps, discovery.discover_expired_keys)


async def advancing_clocks(deps: Deps) -> Sequence[Account]:
    return await _discovered(deps, test_clock.discover_advancing, max_skew=MAX_CLOCK_SKEW)


async def _discovered(
    deps: Deps, discover: _Discover, *, max_skew: timedelta | None = None
) -> Sequence[Account]:
    """Return the accounts that `discover` finds.

    Return none if this host's clock differs from the database's by more than `max_skew` (D-5).
    """
    async with deps.db.discovery() as tx:
        accounts = await discover(tx, real_now=deps.clock())
    if not accounts or max_skew is None:
        return accounts
    if abs(await deps.clock_skew.get(deps.clock, deps.db.ping)) <= max_skew:
        return accounts
    seconds = max_skew.total_seconds()
    reason = f"this host's clock differs from the database's by more than {seconds:.0f} s"
    log.error("clock.wrong", reason=reason)
    return []
