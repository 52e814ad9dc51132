"""The samples in docs/reference/events.md have the same fields as real events."""

import pytest

from fatura.domain.events import CATALOGUE
from fatura.views.samples.events import sample_json
from tests.support.event_fields import fields, fields_of_sample
from tests.support.price_server import Reply, price_server
from tests.support.world import World


@pytest.mark.parametrize("type_", CATALOGUE)
def test_every_event_type_has_a_sample(type_: str) -> None:
    """[D-36, D-37]"""
    shown = sample_json(type_)
    assert list(shown) == ["id", "sequence", "type", "createdAt", "data"]
    assert shown["type"] == type_
    (subject,) = set(shown["data"]) - {"error", "change", "entry", "refund", "previousGatewayConnectionId"}
    assert type_.startswith(subject)


async def test_samples_have_the_fields_of_real_events(world: World) -> None:
    """[D-37, spec 6.5, spec 6.6]"""
    async with price_server() as prices:
        prices.answers(Reply("no", status=500))
        pricing = {"mode": "endpoint", "url": prices.url(), "capCents": 1000}
        usage = await world.made("/v1/products", {"name": "Usage", "pricing": pricing})
        held = await world.enroll(await world.plan(usage, await world.product(100)))
        plain = await world.enroll(await world.plan())
        terms = {"periodMonths": 1, "defaultPaymentMethod": "pix", "items": [{"productId": usage["id"]}]}
        await world.made(f"/v1/subscriptions/{held['id']}/customize", terms)
        await world.advance(days=1)
        await world.set_up_gateway(behaviour="refuse")
        await world.advance(days=4)
        await world.made(f"/v1/subscriptions/{plain['id']}/cancel")
        paid = await world.enroll(await world.plan())
        await world.set_up_gateway(behaviour="pay_at_once")
        await world.advance(days=4)
        (invoice,) = await world.invoices(paid)
        charge = f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}"
        await world.made(f"{charge}/pay", {"amountCents": 1})
        await world.made(f"{charge}/dispute")
        await world.made(f"{charge}/dispute-close", {"won": True})
        await world.made(f"{charge}/refund")
        await world.run()
        seen = {event["type"]: event for event in await world.events()}
    assert seen.keys() >= {
        "subscription.created",
        "subscription.customized",
        "subscription.canceled",
        "invoice.created",
        "invoice.held",
        "invoice.issued",
        "invoice.paid",
        "invoice.overdue",
        "invoice.overpaid",
        "invoice.refunded",
        "invoice.disputed",
        "invoice.dispute_closed",
        "invoice.pricing_warning",
        "invoice.pricing_exhausted",
    }
    for type_, event in seen.items():
        assert fields(event) == fields_of_sample(type_), type_
