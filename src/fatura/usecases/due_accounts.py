"""Which accounts have due work, lane by lane, over all accounts (D-5: none to generate while clocks disagree)."""

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
    """Return the accounts with subscriptions to bill; none while this host's clock is off (D-5)."""
    async with deps.db.discovery() as look:
        accounts = await discovery.discover_generation(look, real_now=deps.clock())
    return await _unless_clocks_differ(deps, accounts)


async def _unless_clocks_differ(
    deps: Deps, accounts: list[Account], *, within: timedelta = health.MAX_CLOCK_SKEW
) -> list[Account]:
    """Return the accounts, or none while leases and dates of this host cannot be trusted (D-5)."""
    if accounts and abs(await deps.clock_trust.skew(deps.clock, deps.db.ping)) > within:
        reason = f"the host's clock and the database's differ by more than {within.total_seconds():.0f} s"
        log.error("work.refused", reason=reason)
        return []
    return accounts


async def pricing(deps: Deps) -> list[Account]:
    """Return the accounts with price calls to make, or warnings to tell."""
    async with deps.db.discovery() as look:
        accounts = await discovery.discover_pricing(look, real_now=deps.clock())
    return await _unless_clocks_differ(deps, accounts)


async def issuance(deps: Deps) -> list[Account]:
    """Return the accounts with invoices to issue."""
    async with deps.db.discovery() as look:
        accounts = await discovery.discover_invoices(look, [InvoiceStatus.READY], real_now=deps.clock())
    return await _unless_clocks_differ(deps, accounts)


async def reconciliation(deps: Deps) -> list[Account]:
    """Return the accounts with charges to ask after, or to look for again."""
    async with deps.db.discovery() as look:
        asked_after = await discovery.discover_invoices(
            look, list(polling.POLLED_STATES), real_now=deps.clock()
        )
        looked_for = await discovery.discover_late_charge_checks(look, real_now=deps.clock())
        return list({each.account_id: each for each in (*asked_after, *looked_for)}.values())


async def mirroring(deps: Deps) -> list[Account]:
    """Return the accounts with products to mirror."""
    async with deps.db.discovery() as look:
        return await discovery.discover_mirrors(look, real_now=deps.clock())


async def push(deps: Deps) -> list[Account]:
    """Return the accounts with events to push; none while leases of this host cannot be trusted."""
    return await _push(deps, is_down=False)


async def probes(deps: Deps) -> list[Account]:
    """Return the accounts whose endpoint is down and to be tried again."""
    return await _push(deps, is_down=True)


async def _push(deps: Deps, *, is_down: bool) -> list[Account]:
    async with deps.db.discovery() as look:
        accounts = await discovery.discover_push(look, is_down=is_down, real_now=deps.clock())
    return await _unless_clocks_differ(deps, accounts, within=health.MAX_PUSH_SKEW)


async def expired_keys(deps: Deps) -> list[Account]:
    """Return the accounts with idempotency keys past their time."""
    async with deps.db.discovery() as look:
        return await discovery.discover_expired_keys(look, real_now=deps.clock())


async def advancing_clocks(deps: Deps) -> list[Account]:
    """Return the accounts whose test clock waits for a driver."""
    async with deps.db.discovery() as look:
        accounts = await test_clock.discover_advancing(look, real_now=deps.clock())
    return await _unless_clocks_differ(deps, accounts)
