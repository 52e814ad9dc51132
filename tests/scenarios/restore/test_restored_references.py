"""After a restore, no request repeats the reference of a charge that the gateway already has."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Capabilities, Charge, ChargeRequest
from fatura.usecases.restore.matching import MatchKind
from tests.support.reissue_steps import ask, payable
from tests.support.restore_steps import compare, create_unmatched_charge, lost_invoice_id
from tests.support.sandbox_steps import charges, now, read, ready_invoice
from tests.support.world import Json, World


@pytest.fixture
def natural_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the sandbox gateway answer a repeated reference with the existing charge, without a second charge."""
    capabilities, create_charge = SandboxGateway.capabilities, SandboxGateway.create_charge

    def natural(self: SandboxGateway) -> Capabilities:
        return replace(capabilities(self), idempotency="natural_id")

    async def create(self: SandboxGateway, request: ChargeRequest) -> Charge:
        found = await self.find_charges(request.invoice_id, request.attempt)
        return found[0] if found else await create_charge(self, request)

    monkeypatch.setattr(SandboxGateway, "capabilities", natural)
    monkeypatch.setattr(SandboxGateway, "create_charge", create)


async def create_reissued(world: World, invoice_id: UUID) -> list[Charge]:
    """Create a canceled and an open charge at the gateway, as if the invoice was reissued after the backup."""
    first = await create_unmatched_charge(world, invoice_id, 9990)
    await world.made(f"/v1/sandbox/charges/{first.charge_id}/cancel")
    return [first, await create_unmatched_charge(world, invoice_id, 9990, attempt=2)]


async def reissue(world: World, invoice: Json) -> Json:
    due = (await now(world)).date() + timedelta(days=20)
    assert (await ask(world, invoice, dueDate=due.isoformat())).status == 200
    await world.run("issuance")
    return await read(world, invoice)


@pytest.mark.parametrize("is_in_backup", [True, False])
@pytest.mark.usefixtures("natural_ids")
async def test_the_next_reissue_uses_a_new_reference(world: World, *, is_in_backup: bool):
    """The invoice was reissued after the backup. In the backup, it is `ready`, or its cycle is not billed.
    [D-123, D-33, D-51]
    """
    await world.set_up_gateway(behaviour="never_pay")
    if is_in_backup:
        invoice = await ready_invoice(world)
        await create_reissued(world, UUID(invoice["id"]))
        assert (await compare(world)).counts == {MatchKind.ADOPTED: 1, MatchKind.CANCELED: 1}
    else:
        subscription = await world.enroll(await world.plan())
        await create_reissued(world, await lost_invoice_id(world, subscription))
        assert (await compare(world)).counts == {MatchKind.LOST: 2}
        await world.run("generation")
        [invoice] = await world.invoices(subscription)
    await world.run()
    assert [each["number"] for each in (await read(world, invoice))["charges"]] == [2]

    shown = await reissue(world, invoice)

    assert shown["status"] == "issued"
    assert [(each["number"], each["status"]) for each in shown["charges"]] == [(2, "canceled"), (3, "open")]
    assert [each["chargeId"] for each in await payable(world)] == [shown["gatewayInvoiceId"]]
    assert await world.broken() == []


@pytest.mark.usefixtures("natural_ids")
async def test_a_charge_found_later_raises_the_number_of_the_stored_charge(world: World):
    """An earlier comparison found only the first of two charges. [D-123, D-67 reissue]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    first = await create_unmatched_charge(world, UUID(invoice["id"]), 9990)
    await world.made(f"/v1/sandbox/charges/{first.charge_id}/pay", {"amountCents": 4000})
    await compare(world)
    await world.made(f"/v1/sandbox/charges/{first.charge_id}/cancel")
    await create_unmatched_charge(world, UUID(invoice["id"]), 5990, attempt=2)
    assert (await compare(world)).counts == {MatchKind.KNOWN: 1, MatchKind.ADOPTED: 1}
    await world.run()

    shown = await read(world, invoice)
    assert [(each["number"], each["amountCents"]) for each in shown["charges"]] == [(2, 5990)]
    assert (await reissue(world, invoice))["status"] == "issued"
    assert [each["amountCents"] for each in await charges(world)] == [5990, 5990, 9990]
    assert await world.broken() == []


@pytest.mark.usefixtures("natural_ids")
async def test_a_charge_that_answers_two_requests_waits_for_a_person(world: World):
    """The gateway answers the request for the second charge with the first charge. [D-33, D-34, D-113]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await world.run("issuance")
    await world.sql("UPDATE sandbox_charge SET attempt = 2")

    shown = await reissue(world, invoice)

    [first] = await charges(world)
    assert (shown["status"], shown["issueError"]["code"]) == ("ready", "charge_repeated")
    [emitted] = await world.events("invoice.issue_failed")
    assert emitted["data"]["error"]["gatewayInvoiceId"] == first["chargeId"]
    await world.run()
    assert len(await world.events("invoice.issue_failed")) == 1

    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    shown = await read(world, invoice)
    assert (shown["status"], [each["number"] for each in shown["charges"]]) == ("issued", [1, 2, 3])
    assert len(await payable(world)) == 1
    assert await world.broken() == []
