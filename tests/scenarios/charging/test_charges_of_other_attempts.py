"""A search by the reference of a reissue also shows the first charge, which is stored already (D-121, D-181).

A charge is *invalid* while the gateway's answers about it are invalid, for example `paid` without a payment.
"""

from collections.abc import Sequence
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from tests.support.sandbox_steps import (
    charges,
    issued_invoice,
    pass_time,
    queue_fault,
    read,
    stored_charges,
)
from tests.support.sweep_steps import NO_SWEEP, hide_payment, show_expired
from tests.support.world import Json, World

pytestmark = pytest.mark.faults


async def _reissued(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[Json, str, str]:
    """Return a reissued invoice, the id of its expired first charge and the id of its second charge.

    The engine got no answer to its request for the second charge. Each search shows both charges.
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    first = invoice["gatewayInvoiceId"]
    show_expired(monkeypatch, first)
    await pass_time(world, days=20)
    await queue_fault(world, "create_charge", "timeout_after")
    answer = await world.post(f"/v1/invoices/{invoice['id']}/reissue", {})
    assert answer.status == 200, answer.body
    await world.run("issuance")
    await world.sql(NO_SWEEP)
    second = next(each["chargeId"] for each in await charges(world) if each["chargeId"] != first)
    await world.sql("UPDATE sandbox_charge SET status = 'open' WHERE charge_id = $1", first)
    find = SandboxGateway.find_charges

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        return [*await find(self, invoice_id, 1), *await find(self, invoice_id, 2)]

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    return invoice, first, second


async def test_the_invoice_adopts_the_charge_that_is_not_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine does not treat the expired first charge as a duplicate of the second charge. [D-181]"""
    invoice, _, second = await _reissued(world, monkeypatch)
    await pass_time(world, hours=2)
    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == ("issued", second)
    assert await world.events("invoice.issue_failed") == []


@pytest.mark.parametrize("second_is", ["deleted", "canceled"])
async def test_one_retry_makes_a_new_charge(
    world: World, monkeypatch: pytest.MonkeyPatch, second_is: str
) -> None:
    """The second charge is invalid, so the engine asks a person. The person removes it and retries. The search then
    shows only charges that nobody can pay. [D-113, D-181]
    """
    invoice, first, second = await _reissued(world, monkeypatch)
    await hide_payment(world, second)
    await pass_time(world, hours=2, minutes=30)
    error = (await read(world, invoice))["issueError"]
    assert (error["code"], second in error["detail"]) == ("charge_missing", True)
    if second_is == "deleted":
        await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", second)
    else:
        await world.sql(
            "UPDATE sandbox_charge SET status = 'canceled', entries = '[]' WHERE charge_id = $1", second
        )
    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    await pass_time(world, hours=3)
    found = await read(world, invoice)
    assert found["status"] in {"issued", "overdue"}
    assert found["gatewayInvoiceId"] not in {first, second}
    assert len(await stored_charges(world)) == 3
    assert await world.events("invoice.canceled") == []
