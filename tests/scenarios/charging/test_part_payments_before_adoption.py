"""A closed charge has a part payment. The invoice adopts this charge if searches show no other charge (D-181)."""

import pytest

from fatura.gateways.port import NotFoundError
from tests.scenarios.charging.test_searches_beside_named_charges import (
    fail_searches,
    lost_charge,
    name_charge,
)
from tests.support.sandbox_steps import pass_time, read
from tests.support.sweep_steps import show_expired, show_payment
from tests.support.world import World

PAY_REST = """
    UPDATE sandbox_charge SET status = 'paid', entries = entries || jsonb_build_array(jsonb_build_object(
        'kind', 'payment', 'reference', 'rest', 'amount_cents', 5990, 'occurred_at', created_at
    )) WHERE charge_id = $1
"""


@pytest.mark.parametrize("state", ["expired", "canceled"])
async def test_a_part_payment_of_an_adopted_closed_charge_is_not_unexpected(
    world: World, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """A webhook names the only charge. The payer pays a part, and then the charge expires or is canceled.

    No search shows another charge, so the invoice adopts this charge. The engine records the part payment without
    `invoice.payment_unexpected`. Later, the payer pays the rest, and the engine records the rest. [D-33, D-181]
    """
    invoice, lost = await lost_charge(world)
    await name_charge(world, lost)
    await show_payment(world, lost, cents=4000)
    if state == "expired":
        show_expired(monkeypatch, lost)
    else:
        await world.sql("UPDATE sandbox_charge SET status = 'canceled' WHERE charge_id = $1", lost)
    with monkeypatch.context() as patched:
        fail_searches(patched, NotFoundError("no"))
        await pass_time(world, hours=3)
    found = await read(world, invoice)
    assert (found["gatewayInvoiceId"], found["paidCents"]) == (lost, 4000)
    assert await world.events("invoice.payment_unexpected") == []

    await world.sql(PAY_REST, lost)
    await pass_time(world, days=3)
    assert (await read(world, invoice))["paidCents"] == 9990
    assert await world.broken() == []
