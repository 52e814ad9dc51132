"""How simulated merchants collect unpaid invoices: by reissues, or by recording payments outside the gateway."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from fatura.domain.calendar import local_date
from tests.faults.payments import Entry, ReceivedByHand
from tests.faults.simulator import invoices
from tests.faults.simulator.actions import Merchant

UNPAID = ("&status=issued", "&status=overdue", "&status=overdue", "&status=ready")


async def reissue_one(merchant: Merchant) -> None:
    if found := await invoices.one_of(merchant, merchant.rng.choice(UNPAID)):
        await reissue(merchant, found)


async def reissue(merchant: Merchant, invoice_id: str) -> None:
    """Reissue an invoice, sometimes with another payment method or due date.

    The answer is 400 if the due date has passed before the request is executed.
    """
    rng, body = merchant.rng, dict[str, Any]()
    if rng.random() < 0.3:
        body["paymentMethod"] = rng.choice(("pix", "boleto", "card"))
    if rng.random() < 0.3:
        today = local_date(merchant.world.schedule.now)
        body["dueDate"] = (today + timedelta(days=rng.randrange(1, 4))).isoformat()
    await merchant.post(f"/v1/invoices/{invoice_id}/reissue", body, allowed=(400, 409, 422))


async def receive_one(merchant: Merchant) -> None:
    if found := await invoices.one_of(merchant, merchant.rng.choice(UNPAID)):
        await receive(merchant, found)


async def receive(merchant: Merchant, invoice_id: str, *, whole: bool = False) -> None:
    """Record a payment of the open amount, or of a part of it. The payment is dated within the last six hours."""
    invoice = await merchant.get(f"/v1/invoices/{invoice_id}")
    open_cents = (invoice["totalCents"] or 0) - invoice["paidCents"] + invoice["refundedCents"]
    if open_cents <= 0:
        return
    rng, now = merchant.rng, merchant.world.schedule.now
    is_whole = whole or rng.random() < 0.6
    amount_cents = open_cents if is_whole else rng.randrange(1, open_cents + 1)
    paid_at = (now - timedelta(hours=rng.uniform(0, 6))).replace(microsecond=0)
    known = merchant.world.received
    entry = Entry(invoice_id, None, "payment", f"hand {len(known)}", amount_cents, paid_at)
    known.append(received := ReceivedByHand(merchant.account_id, entry))
    body = {
        "amountCents": amount_cents,
        "paidAt": _instant(paid_at),
        "method": "transfer",
        "reference": entry.reference,
    }
    answer = await merchant.post(f"/v1/invoices/{invoice_id}/payments", body, allowed=(409, 422))
    received.is_acknowledged = answer.status == 200


def _instant(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


async def collect_all(merchant: Merchant) -> None:
    """For each overdue invoice, choose at random: reissue it, record a payment, or cancel it.

    Skip invoices for which `is_left` is true.
    """
    for found in await invoices.all_of(merchant, "&status=overdue"):
        if invoices.is_left(found["id"]):
            continue
        match merchant.rng.randrange(3):
            case 0:
                await reissue(merchant, found["id"])
            case 1:
                await receive(merchant, found["id"], whole=True)
            case _:
                path = f"/v1/invoices/{found['id']}/cancel"
                await merchant.post(path, allowed=(409,), keyed=False)


def actions(merchant: Merchant) -> list[tuple[int, Callable[[], Awaitable[None]]]]:
    return [(8, lambda: reissue_one(merchant)), (8, lambda: receive_one(merchant))]
