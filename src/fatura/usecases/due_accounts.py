"""Find the accounts with due work, one function for each lane of background work (D-5).

Most functions return none while this host's clock is wrong, because leases and due dates depend on it.
"""

from datetime import timedelta

from fatura.domain.account import Account
from fatura.domain.invoice_states import InvoiceStatus
from fatura.observability import log
from fatura.store import discovery
from fatura.store.sandbox import test_clock
from fatura.usecases.charging import polling
from fatura.usecases.deps import Deps
from fatura.usecases.operations import health


async def generation(deps: Deps) -> list[Account]:
    """Return the accounts with subscriptions to bill."""
    async with deps.db.discovery() as tx:
        accounts = await discovery.discover_generation(tx, real_now=deps.clock())
    return await _if_clock_is_right(deps, accounts)


async def pricing(deps: Deps) -> list[Account]:
    """Return the accounts with price calls or warnings due."""
    async with deps.db.discovery() as tx:
        accounts = await discovery.discover_pricing(tx, real_now=deps.clock())
    return await _if_clock_is_right(deps, accounts)


async def issuance(deps: Deps) -> list[Account]:
    """Return the accounts with invoices to issue."""
    async with deps.db.discovery() as tx:
        accounts = await discovery.discover_invoices(tx, [InvoiceStatus.READY], real_now=deps.clock())
    return await _if_clock_is_right(deps, accounts)


async def reconciliation(deps: Deps) -> list[Account]:
    """Return the accounts with charges to poll or late charge checks to make."""
    async with deps.db.discovery() as tx:
        to_poll = await discovery.discover_invoices(tx, list(polling.POLLED_STATES), real_now=deps.clock())
        to_check = await discovery.discover_late_charge_checks(tx, real_now=deps.clock())
    return list({each.account_id: each for each in (*to_poll, *to_check)}.values())


async def mirroring(deps: Deps) -> list[Account]:
    """Return the accounts with products to copy to gateways."""
    async with deps.db.discovery() as tx:
        return await discovery.discover_mirrors(tx, real_now=deps.clock())


async def push(deps: Deps) -> list[Account]:
    """Return the accounts with events to deliver to an endpoint that is up."""
    return await _push(deps, is_down=False)


async def probes(deps: Deps) -> list[Account]:
    """Return the accounts with events to deliver to an endpoint that is down."""
    return await _push(deps, is_down=True)


async def _push(deps: Deps, *, is_down: bool) -> list[Account]:
    async with deps.db.discovery() as tx:
        accounts = await discovery.discover_push(tx, is_down=is_down, real_now=deps.clock())
    return await _if_clock_is_right(deps, accounts, max_skew=health.MAX_PUSH_SKEW)


async def expired_keys(deps: Deps) -> list[Account]:
    """Return the accounts with expired idempotency keys."""
    async with deps.db.discovery() as tx:
        return await discovery.discover_expired_keys(tx, real_now=deps.clock())


async def advancing_clocks(deps: Deps) -> list[Account]:
    """Return the accounts whose test clock is advancing and not leased by a worker."""
    async with deps.db.discovery() as tx:
        accounts = await test_clock.discover_advancing(tx, real_now=deps.clock())
    return await _if_clock_is_right(deps, accounts)


async def _if_clock_is_right(
    deps: Deps, accounts: list[Account], *, max_skew: timedelta = health.MAX_CLOCK_SKEW
) -> list[Account]:
    """Return the accounts, but none if this host's clock differs too much from the database's (D-5)."""
    if accounts and abs(await deps.clock_skew.get(deps.clock, deps.db.ping)) > max_skew:
        seconds = max_skew.total_seconds()
        log.error(
            "clock.wrong",
            reason=f"this host's clock differs from the database's by more than {seconds:.0f} s",
        )
        return []
    return accounts
