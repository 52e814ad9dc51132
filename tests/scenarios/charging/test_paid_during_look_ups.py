"""While an issuance look-up is in progress, a payment of another charge pays the invoice (D-125, D-181).

A charge is *invalid* while the gateway's answers about it are invalid, for example `paid` without a payment.
"""

from collections.abc import Sequence
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from tests.support.sandbox_steps import (
    charges,
    end_leases,
    issued_invoice,
    pass_time,
    pay_silently,
    queue_fault,
    read,
)
from tests.support.sweep_steps import (
    NO_SWEEP,
    during_the_look_up,
    hide_payment,
    missing_charges,
    second_charge_events,
    show_payment,
)
from tests.support.webhook_steps import SECRET
from tests.support.world import World


async def _look_up(world: World) -> None:
    """Let the engine look up the newest charge."""
    await world.sql("UPDATE account SET clock_offset = clock_offset + interval '90 seconds'")
    await end_leases(world)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at WHERE status = 'ready'")
    await world.run("issuance")


@pytest.mark.parametrize("hours", [1, 3])
async def test_a_payment_of_a_replaced_charge_ends_the_wait(
    world: World, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """During the look-up of a reissue, the payer pays the replaced charge. The new charge is invalid. [D-181]"""
    await world.set_up_gateway(behaviour="never_pay", webhookSecret=SECRET)
    invoice = await issued_invoice(world)
    first = invoice["gatewayInvoiceId"]
    await queue_fault(world, "create_charge", "timeout_after")
    assert (await world.post(f"/v1/invoices/{invoice['id']}/reissue", {})).status == 200
    await world.run("issuance")
    await world.sql(NO_SWEEP)
    second = next(each["chargeId"] for each in await charges(world) if each["chargeId"] != first)
    await hide_payment(world, second)

    async def work() -> None:
        await pay_silently(world, first)
        await world.sql("UPDATE late_charge_check SET next_check_at = '2000-01-01'")
        await world.run("reconciliation")

    during_the_look_up(monkeypatch, work)
    await _look_up(world)
    await pass_time(world, hours=hours)
    assert (await read(world, invoice))["status"] == "paid"
    assert await second_charge_events(world) == []
    assert set(await world.broken()) <= {"one_sandbox_charge_per_invoice"}


async def test_a_paid_invoice_keeps_no_found_charges(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """During the look-up of the second attempt, the invalid charge of the first attempt shows its payment. The charge
    of the second attempt is invalid, and is canceled later. [D-125, D-181]
    """
    invoice, one, hidden = await missing_charges(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    new = next(e["chargeId"] for e in await charges(world) if e["chargeId"] not in {one, hidden})
    await hide_payment(world, new)
    find, is_done = SandboxGateway.find_charges, list[bool]()

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        found = await find(self, invoice_id, attempt)
        if attempt == 2 and not is_done:
            is_done.append(True)
            await show_payment(world, hidden)
            await world.sql("UPDATE late_charge_check SET next_check_at = '2000-01-01'")
            await world.run("reconciliation")
        return found

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await _look_up(world)
    assert (await read(world, invoice))["status"] == "paid"
    assert await world.broken() == []
    await world.sql("UPDATE sandbox_charge SET status = 'canceled', entries = '[]' WHERE charge_id = $1", new)
    await pass_time(world, days=3)
    assert (await read(world, invoice))["paidCents"] == 9990
    assert await world.broken() == []
