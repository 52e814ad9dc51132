"""Invoices in each state that a pay page shows."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from tests.support.pay_pages import in_base64, png
from tests.support.pix_shop import SETTINGS
from tests.support.sandbox_steps import charges, issued_invoice, move, read, ready_invoice
from tests.support.world import Json, World

LOOK = {"name": "Academia Sol", "color": "#7a0019", "logo": in_base64(png(40, 20))}


@dataclass(frozen=True, slots=True)
class Accounts:
    """A sandbox account, and a live account with a Pix key and a look of its own."""

    shop: World
    live: World


async def url_of(account: World, invoice: Json) -> str:
    return (await read(account, invoice))["payUrl"]


async def preparing(accounts: Accounts) -> str:
    return await url_of(accounts.shop, await ready_invoice(accounts.shop))


async def payable(accounts: Accounts) -> str:
    return await url_of(accounts.live, await live_invoice(accounts.live))


async def sandbox(accounts: Accounts) -> str:
    return await url_of(accounts.shop, await issued_invoice(accounts.shop))


async def sent(accounts: Accounts) -> str:
    return f"{await sandbox(accounts)}?sent"


async def boleto(accounts: Accounts) -> str:
    return await _of_provider(accounts.shop, defaultPaymentMethod="boleto")


async def card(accounts: Accounts) -> str:
    return await _of_provider(accounts.shop, defaultPaymentMethod="card", maxInstallments=3)


async def by_provider(accounts: Accounts) -> str:
    """Return the page of a charge whose only way to pay is a link."""
    url = await _of_provider(accounts.shop)
    await accounts.shop.sql("UPDATE charge SET pix_code = NULL")
    return url


async def overdue(accounts: Accounts) -> str:
    invoice = await issued_invoice(accounts.shop)
    await accounts.shop.advance(days=5)
    return await url_of(accounts.shop, invoice)


async def part_paid(accounts: Accounts) -> str:
    invoice = await live_invoice(accounts.live)
    await _pay(accounts.live, invoice, amountCents=4000)
    return await url_of(accounts.live, invoice)


async def paid(accounts: Accounts) -> str:
    invoice = await live_invoice(accounts.live)
    await _pay(accounts.live, invoice, amountCents=4000)
    await _pay(accounts.live, invoice)
    return await url_of(accounts.live, invoice)


async def refunded(accounts: Accounts) -> str:
    shop = accounts.shop
    invoice = await issued_invoice(shop)
    [charge] = await charges(shop, invoice)
    await move(shop, charge, "pay")
    await shop.run()
    await shop.made(f"/v1/invoices/{invoice['id']}/refunds", {"amountCents": 500})
    await shop.run()
    return await url_of(shop, invoice)


async def canceled(accounts: Accounts) -> str:
    invoice = await issued_invoice(accounts.shop)
    await accounts.shop.made(f"/v1/invoices/{invoice['id']}/cancel")
    return await url_of(accounts.shop, invoice)


async def canceled_after_payment(accounts: Accounts) -> str:
    invoice = await live_invoice(accounts.live)
    await _pay(accounts.live, invoice, amountCents=4000)
    await accounts.live.made(f"/v1/invoices/{invoice['id']}/cancel")
    return await url_of(accounts.live, invoice)


async def expired(accounts: Accounts) -> str:
    invoice = await live_invoice(accounts.live)
    await accounts.live.sql("UPDATE charge SET stage = 'expired', closed_at = now()")
    return await url_of(accounts.live, invoice)


STATES: Mapping[str, Callable[[Accounts], Awaitable[str]]] = {
    each.__name__: each
    for each in (
        *(preparing, payable, sandbox, sent, boleto, card, by_provider, overdue, part_paid, paid, refunded),
        *(canceled, canceled_after_payment, expired),
    )
}
"""Functions that make an invoice and return the URL of its page."""


async def live_invoice(live: World, cents: int = 9990, **settings: str) -> Json:
    """Issue an invoice that is paid with a Pix key."""
    body = {"provider": "pix_key", "credentials": {}, "settings": {**SETTINGS, **settings}}
    await live.put("/v1/integration/pay-page", LOOK)
    await live.made("/v1/integration/gateways", body)
    subscription = await live.enroll(await live.plan(await live.product(cents)))
    await live.run()
    [invoice] = await live.invoices(subscription)
    return await read(live, invoice)


async def _of_provider(shop: World, **terms: Json) -> str:
    """Return the page of a live account whose provider has pages of its own.

    No such provider is built yet, so a sandbox account becomes a live account.
    """
    url = await url_of(shop, await issued_invoice(shop, **terms))
    await shop.sql("UPDATE account SET mode = 'live', clock_offset = interval '0'")
    return url


async def _pay(account: World, invoice: Json, **fields: Json) -> None:
    await account.made(f"/v1/invoices/{invoice['id']}/payments", {"method": "cash", **fields})
    await account.run()
