"""For each lane of background work, find the accounts that have due work (D-5).

No account is found while this host's clock is wrong, because leases, due dates and expiries depend on the clock.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Protocol

from fatura.domain.account import Account
from fatura.store import discovery, push_discovery
from fatura.store.connections import connection_health
from fatura.store.db import Discovery
from fatura.store.retention import progress
from fatura.store.sandbox import test_clock
from fatura.usecases.database_clock import MAX_CLOCK_SKEW, MAX_PUSH_SKEW, WrongClockError
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import LaneName


class _Discover(Protocol):
    def __call__(self, tx: Discovery, /, *, real_now: datetime) -> Awaitable[Sequence[Account]]: ...


_PUSHING = frozenset({LaneName.PUSH, LaneName.PROBE, LaneName.TEST_CLOCK})
"""The lanes that deliver events.

No account is found for these lanes if this host's clock is wrong by more than MAX_PUSH_SKEW.
"""
_DISCOVER: Mapping[LaneName, _Discover] = {
    LaneName.PUSH: partial(push_discovery.discover_push, is_down=False),
    LaneName.PROBE: partial(push_discovery.discover_push, is_down=True),
    LaneName.GATEWAY_PROBE: connection_health.discover_probes,
    LaneName.TEST_CLOCK: test_clock.discover_advancing,
}


def of(lane: LaneName) -> Callable[[Deps], Awaitable[Sequence[Account]]]:
    """Return the function that finds the accounts in which this lane has due work."""
    return partial(_find, lane=lane)


async def _find(deps: Deps, *, lane: LaneName) -> Sequence[Account]:
    discover = _DISCOVER.get(lane) or partial(discovery.discover, lane=lane)
    if lane is LaneName.RETENTION:
        discover = partial(progress.discover_old, kept_for=deps.settings.retention)
    async with deps.db.discovery() as tx:
        accounts = await discover(tx, real_now=deps.clock())
    if not accounts:
        return accounts
    try:
        at_most = MAX_PUSH_SKEW if lane in _PUSHING else MAX_CLOCK_SKEW
        await deps.clock.check(deps.db.ping, at_most=at_most)
    except WrongClockError:
        return []
    return accounts
