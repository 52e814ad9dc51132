"""For each lane of background work, find the accounts that have due work (D-5).

Most lanes find no accounts while this host's clock is wrong, because leases and due dates depend on the clock.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
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


_MAX_SKEWS: Mapping[LaneName, timedelta] = {
    LaneName.GENERATION: MAX_CLOCK_SKEW,
    LaneName.PRICING: MAX_CLOCK_SKEW,
    LaneName.ISSUANCE: MAX_CLOCK_SKEW,
    LaneName.TEST_CLOCK: MAX_CLOCK_SKEW,
    LaneName.PUSH: MAX_PUSH_SKEW,
    LaneName.PROBE: MAX_PUSH_SKEW,
}
"""Lanes that find no accounts while this host's clock differs from the database's by more than this (D-5)."""
_DISCOVER: Mapping[LaneName, _Discover] = {
    LaneName.PUSH: partial(discovery.discover_push, is_down=False),
    LaneName.PROBE: partial(discovery.discover_push, is_down=True),
    LaneName.TEST_CLOCK: test_clock.discover_advancing,
    LaneName.RETENTION: discovery.discover_expired_keys,
}


def of(lane: LaneName) -> Callable[[Deps], Awaitable[Sequence[Account]]]:
    """Return the function that finds the accounts with due work of a lane."""
    return partial(_find, lane=lane)


async def _find(deps: Deps, *, lane: LaneName) -> Sequence[Account]:
    discover = _DISCOVER.get(lane) or partial(discovery.discover, lane=lane)
    max_skew = _MAX_SKEWS.get(lane)
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
