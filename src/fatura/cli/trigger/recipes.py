"""The recipes of `fatura trigger`: for each event, the requests that cause it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from fatura.cli.trigger.scene import Json, Scene

WARNING_AFTER = timedelta(minutes=16)
EXHAUSTED_AFTER = timedelta(hours=15)
MISSING_AFTER = timedelta(days=1)
OVERPAID_CENTS = 100


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to cause an event. `says` completes the sentence "the command ..."."""

    says: str
    act: Callable[[Scene], Awaitable[None]]
    moves_clock: bool = False


async def _subscribe(scene: Scene) -> None:
    await scene.subscribe()


async def _customize(scene: Scene) -> None:
    await scene.subscribe()
    subscription = f"/v1/subscriptions/{scene.subscription['id']}"
    terms = await scene.client.get(f"{subscription}/terms")
    items = [{"productId": item["productId"]} for item in terms["items"]]
    body: Json = {"periodMonths": 3, "defaultPaymentMethod": "pix", "items": items}
    await scene.post(f"{subscription}/customize", body)


async def _cancel_subscription(scene: Scene) -> None:
    await scene.subscribe()
    await scene.post(f"/v1/subscriptions/{scene.subscription['id']}/cancel")


async def _propagate(scene: Scene) -> None:
    await scene.subscribe(fresh_plan=True)
    plan_id = scene.subscription["planId"]
    plan = await scene.client.get(f"/v1/plans/{plan_id}")
    offer = {name: plan[name] for name in ("name", "periodMonths", "defaultPaymentMethod", "items")}
    await scene.client.put(f"/v1/plans/{plan_id}", offer)
    await scene.post(f"/v1/plans/{plan_id}/propagate", {})


async def _invoice(scene: Scene, *, event: str) -> None:
    await scene.invoice(event)


async def _moved(scene: Scene, *routes: str) -> None:
    """Issue an invoice, and change its charge step by step. Wait for the event of each step."""
    await scene.invoice()
    for route in routes:
        await scene.move(route, {"won": True} if route == "dispute-close" else None)
        await scene.wait_for(EVENT_OF_MOVE[route])


EVENT_OF_MOVE = {
    "pay": "invoice.paid",
    "refuse": "invoice.overdue",
    "refund": "invoice.refunded",
    "dispute": "invoice.disputed",
    "dispute-close": "invoice.dispute_closed",
}


async def _pay_part(scene: Scene) -> None:
    await scene.invoice()
    await scene.move("pay", {"amountCents": 1})


async def _pay_too_much(scene: Scene) -> None:
    invoice = await scene.invoice()
    await scene.move("pay", {"amountCents": invoice["totalCents"] + OVERPAID_CENTS})


async def _cancel_invoice(scene: Scene) -> None:
    await scene.invoice()
    await scene.post(f"/v1/invoices/{scene.invoice_id}/cancel")


async def _erase(scene: Scene) -> None:
    await _cancel_invoice(scene)
    await scene.post(f"/v1/subscriptions/{scene.subscription['id']}/cancel")
    await scene.post(f"/v1/customers/{scene.subscription['customer']['id']}/erase")


async def _pay_canceled(scene: Scene) -> None:
    await _cancel_invoice(scene)
    await scene.move("pay")


async def _reissue(scene: Scene) -> None:
    await scene.invoice()
    await scene.post(f"/v1/invoices/{scene.invoice_id}/reissue", {})


async def _hold(scene: Scene, *, then_pass: timedelta | None = None) -> None:
    await scene.invoice("invoice.held", pricing="endpoint")
    if then_pass is not None:
        await scene.advance(then_pass)


async def _release(scene: Scene) -> None:
    invoice = await scene.invoice("invoice.held", pricing="endpoint")
    for item in invoice["items"]:
        await scene.post(f"/v1/invoices/{scene.invoice_id}/items/{item['id']}/value", {"amount": 4200})


async def _double(scene: Scene) -> None:
    await scene.invoice()
    await scene.move("double")


async def _forget(scene: Scene) -> None:
    await scene.invoice()
    await scene.move("forget")
    await scene.advance(MISSING_AFTER)


RECIPES: Mapping[str, Recipe] = {
    "customer.erased": Recipe("cancels a subscription and its invoice, and erases the customer", _erase),
    "subscription.created": Recipe("subscribes a customer", _subscribe),
    "subscription.customized": Recipe("subscribes a customer, and customizes the terms", _customize),
    "subscription.terms_changed": Recipe("subscribes a customer, and propagates a new version", _propagate),
    "subscription.canceled": Recipe("subscribes a customer, and cancels", _cancel_subscription),
    "invoice.created": Recipe("subscribes a customer", partial(_invoice, event="invoice.created")),
    "invoice.held": Recipe("subscribes a customer to a price that no endpoint answers", _hold),
    "invoice.ready": Recipe("holds an invoice, and enters its price by hand", _release),
    "invoice.issued": Recipe("subscribes a customer", partial(_invoice, event="invoice.issued")),
    "invoice.reissued": Recipe("issues an invoice, and reissues it", _reissue),
    "invoice.partially_paid": Recipe("issues an invoice, and pays one cent", _pay_part),
    "invoice.paid": Recipe("issues an invoice, and pays it", lambda scene: _moved(scene, "pay")),
    "invoice.overpaid": Recipe("issues an invoice, and pays too much", _pay_too_much),
    "invoice.overdue": Recipe(
        "issues an invoice, and refuses its payment", lambda scene: _moved(scene, "refuse")
    ),
    "invoice.canceled": Recipe("issues an invoice, and cancels it", _cancel_invoice),
    "invoice.refunded": Recipe(
        "pays an invoice, and refunds it", lambda scene: _moved(scene, "pay", "refund")
    ),
    "invoice.disputed": Recipe(
        "pays an invoice, and disputes it", lambda scene: _moved(scene, "pay", "dispute")
    ),
    "invoice.dispute_closed": Recipe(
        "pays an invoice, disputes it, and decides the dispute",
        lambda scene: _moved(scene, "pay", "dispute", "dispute-close"),
    ),
    "invoice.pricing_warning": Recipe(
        "holds an invoice for 16 minutes", partial(_hold, then_pass=WARNING_AFTER), moves_clock=True
    ),
    "invoice.pricing_exhausted": Recipe(
        "holds an invoice for 15 hours", partial(_hold, then_pass=EXHAUSTED_AFTER), moves_clock=True
    ),
    "invoice.issue_failed": Recipe("issues an invoice, and makes a second charge of it", _double),
    "invoice.charge_missing": Recipe(
        "issues an invoice, lets the gateway forget its charge, and passes a day", _forget, moves_clock=True
    ),
    "invoice.payment_unexpected": Recipe("cancels an invoice, and pays its charge", _pay_canceled),
}
"""The recipes, by the event that they cause."""
