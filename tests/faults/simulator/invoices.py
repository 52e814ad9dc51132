"""What simulated merchants do with invoices: cancel them, enter values, retry, and act when a person has to decide."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from tests.faults.simulator.actions import Merchant

HELD = "awaiting_value"


async def cancel(merchant: Merchant) -> None:
    """Cancel a random invoice, usually an issued or overdue one."""
    if found := await one_of(merchant, merchant.rng.choice(("", "&status=issued", "&status=overdue"))):
        await merchant.post(f"/v1/invoices/{found}/cancel", allowed=(409,), keyed=False)


async def retry_pricing(merchant: Merchant) -> None:
    if found := await one_of(merchant, f"&status={HELD}"):
        await merchant.post(f"/v1/invoices/{found}/retry-pricing", keyed=False)


async def price_by_hand(merchant: Merchant) -> None:
    if found := await one_of(merchant, f"&status={HELD}"):
        await close_by_hand(merchant, found)


async def close_by_hand(merchant: Merchant, invoice_id: str) -> None:
    """Enter manual values for all pending items. The API answers 409 if an item got its price before this request."""
    for item in (await merchant.get(f"/v1/invoices/{invoice_id}"))["items"]:
        if item["pricingStatus"] == "pending":
            path = f"/v1/invoices/{invoice_id}/items/{item['id']}/value"
            await merchant.post(path, {"amount": merchant.rng.randrange(5000)}, allowed=(409,))


async def retry_issuance(merchant: Merchant) -> None:
    for found in await all_of(merchant, "&status=ready"):
        await issue_again(merchant, found["id"])


async def issue_again(merchant: Merchant, invoice_id: str) -> None:
    """If the engine waits for a person, act as this person: cancel the invoice's charges, then retry issuance (D-113).

    Do nothing while look-ups do not show all charges of the invoice.
    """
    world = merchant.world
    if any(each.visible_at > world.schedule.now for each in world.side.gateway.of_invoice(invoice_id)):
        return
    invoice = await merchant.get(f"/v1/invoices/{invoice_id}")
    if invoice["status"] != "ready":
        return
    if await _needs_operator(merchant, invoice_id):
        for charge in world.side.gateway.of_invoice(invoice_id):
            if world.side.gateway.as_of(charge, world.schedule.now).state != "canceled":
                world.side.gateway.cancel_by_person(charge, now=world.schedule.now)
        await merchant.post(f"/v1/invoices/{invoice_id}/retry-issuance", allowed=(409,), keyed=False)


async def _needs_operator(merchant: Merchant, invoice_id: str) -> bool:
    """Return whether the engine waits for a person.

    A real merchant learns this from the event `invoice.issue_failed`.
    """
    world = merchant.world

    async def work() -> Any:
        return await world.observer.fetchval(
            "SELECT next_attempt_at IS NULL FROM invoice WHERE invoice_id::text = $1 AND status = 'ready'",
            invoice_id,
        )

    return bool(await world.schedule.io("read the alert", work))


async def all_of(merchant: Merchant, query: str) -> list[Any]:
    return (await merchant.get(f"/v1/invoices?pageSize=100{query}"))["data"]


async def one_of(merchant: Merchant, query: str) -> str | None:
    """Return the id of a random invoice, or None if there is none."""
    found = await all_of(merchant, query)
    return merchant.rng.choice(found)["id"] if found else None


def actions(merchant: Merchant) -> list[tuple[int, Callable[[], Awaitable[None]]]]:
    return [
        (9, lambda: cancel(merchant)),
        (3, lambda: retry_pricing(merchant)),
        (3, lambda: price_by_hand(merchant)),
        (4, lambda: retry_issuance(merchant)),
    ]


async def resolve_all(merchant: Merchant) -> None:
    """Act as the person for whom invoices wait, except for invoices for which `is_left` is true.

    Also send valid credentials, activate all connections, and register the webhook.
    """
    await merchant.send_credentials()
    for each in merchant.connections:
        await merchant.call("PATCH", f"/v1/integration/gateways/{each}", {"active": True})
    await merchant.register_webhook()
    for found in await all_of(merchant, f"&status={HELD}"):
        if not is_left(found["id"]):
            await close_by_hand(merchant, found["id"])
    for found in await all_of(merchant, "&status=ready"):
        if not is_left(found["id"]):
            await issue_again(merchant, found["id"])


def is_left(invoice_id: str) -> bool:
    """Return true for one in six invoices. `resolve_all` and `collect_all` skip these invoices.

    If such an invoice waits for a person at the end, its newest event must say what the person has to do.
    """
    return UUID(invoice_id).int % 6 == 0
