"""How simulated merchants refund payments: in part, in full or too much. Some repeat a request with the same key."""

from datetime import timedelta
from typing import Any

from tests.faults.payments import AskedRefund
from tests.faults.simulator import invoices
from tests.faults.simulator.actions import Merchant

EVERY_SECONDS = 30_000
REPEATED_AFTER_SECONDS = (5, 600, 7200, timedelta(hours=26).total_seconds())
"""Pauses before a request is repeated. The engine keeps the request's Idempotency-Key longer than each pause (D-14)."""


async def make(merchant: Merchant) -> None:
    """Refund invoices at random times until faults are switched off."""
    world, rng = merchant.world, merchant.rng
    while world.faults.on:
        await world.schedule.sleep(rng.expovariate(1 / EVERY_SECONDS))
        if not world.faults.on:
            return
        found = await invoices.all_of(merchant, "")
        paid = [each for each in found if each["paidCents"]] if rng.random() < 0.95 else found
        if paid:
            await refund(merchant, rng.choice(paid))


async def refund(merchant: Merchant, invoice: Any) -> None:
    """Refund a part of an invoice's payments, all of them, or too much. Sometimes repeat the request later."""
    world, rng = merchant.world, merchant.rng
    left_cents = max(invoice["paidCents"] - invoice["refundedCents"], 1)
    part_cents = rng.randrange(left_cents) + 1
    amount_cents = rng.choice((None, left_cents, part_cents, part_cents, left_cents + part_cents))
    asked = AskedRefund(invoice["id"], f"refund {len(world.refunds) + 1}", amount_cents)
    world.refunds.append(asked)
    body: dict[str, Any] = {"reason": asked.reason}
    if amount_cents is not None:
        body["amountCents"] = amount_cents
    for number in range(rng.choice((1, 1, 1, 2, 3))):
        if number:
            await world.schedule.sleep(rng.choice(REPEATED_AFTER_SECONDS))
        answer = await merchant.post(
            f"/v1/invoices/{asked.invoice_id}/refunds",
            body,
            allowed=(409, 422),
            keyed=False,
            key=asked.reason.replace(" ", "-"),
        )
        asked.statuses.append(answer.status)
