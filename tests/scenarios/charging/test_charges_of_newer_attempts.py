"""Late look-ups of an old attempt find charges of newer attempts or of other invoices (D-125)."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, ChargeState
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.sandbox_steps import cancel, charge_statuses, charges, pass_time, queue_fault, read
from tests.support.sweep_steps import NO_SWEEP, missing_charges
from tests.support.world import Json, World

STRANGER_ID = f"sbx_{0xD << 124:032x}"


async def _reissued(world: World, *, is_answer_lost: bool) -> tuple[Json, str, str]:
    """Return a reissued invoice, the id of its first charge and the id of its second charge.

    If `is_answer_lost`, the engine got no answer to its request for the second charge.
    """
    invoice = await unpaid_invoice(world)
    first = invoice["gatewayInvoiceId"]
    await world.sql(NO_SWEEP)
    if is_answer_lost:
        await queue_fault(world, "create_charge", "timeout_after")
    assert (await ask(world, invoice)).status == 200
    await world.run("issuance")
    [second] = [each["chargeId"] for each in await charges(world) if each["chargeId"] != first]
    return invoice, first, second


async def _retried(world: World, *, is_answer_lost: bool) -> tuple[Json, str]:
    """Return an invoice whose issuance a person retried, and the id of its only charge.

    The first attempt ended as `charge_missing`, and its charges are gone. If `is_answer_lost`, the engine got no answer
    to its request for the new charge.
    """
    invoice, _, _ = await missing_charges(world)
    await world.sql("DELETE FROM sandbox_charge")
    if is_answer_lost:
        await queue_fault(world, "create_charge", "timeout_after")
    assert (await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")).status == 200
    [new] = await charges(world)
    return invoice, new["chargeId"]


def _show_both_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each search show the charges of the first two attempts."""
    find = SandboxGateway.find_charges

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        return [*await find(self, invoice_id, 1), *await find(self, invoice_id, 2)]

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)


async def _look_up_late(world: World) -> None:
    """Run the next late look-up of each charge immediately. Then let the time of all other late look-ups pass."""
    await world.sql("UPDATE late_charge_check SET next_check_at = '2000-01-01'")
    await world.run("reconciliation")
    await pass_time(world, hours=30)


async def _has_payable_charge(world: World, invoice: Json, charge_id: str) -> None:
    """Check that the invoice has this charge, and that the payer can pay the charge."""
    assert (await charge_statuses(world))[charge_id] == "open"
    found = await read(world, invoice)
    assert found["gatewayInvoiceId"] == charge_id
    assert found["status"] in {"issued", "overdue"}


@pytest.mark.parametrize("is_answer_lost", [True, False])
@pytest.mark.parametrize("is_gone", [True, False])
async def test_a_late_look_up_of_a_replaced_charge_does_not_cancel_the_newer_charge(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_gone: bool, is_answer_lost: bool
) -> None:
    """A merchant reissues an invoice. The gateway may delete the first charge, and each search shows both charges.

    Late look-ups of the first charge run, perhaps before the engine knows the second charge. The invoice has the second
    charge, and the payer can pay this charge. [D-51, D-125]
    """
    invoice, first, second = await _reissued(world, is_answer_lost=is_answer_lost)
    if is_gone:
        await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", first)
    _show_both_attempts(monkeypatch)
    await _look_up_late(world)
    await _has_payable_charge(world, invoice, second)


@pytest.mark.parametrize("is_answer_lost", [True, False])
async def test_a_late_look_up_of_a_parked_attempt_does_not_cancel_the_newer_charge(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_answer_lost: bool
) -> None:
    """The first attempt ended as `charge_missing`, and a person retried. Each search shows the new charge.

    Late look-ups of the first attempt run, perhaps before the engine knows the new charge. The invoice has the new
    charge, and the payer can pay this charge. [D-113, D-125]
    """
    invoice, new = await _retried(world, is_answer_lost=is_answer_lost)
    _show_both_attempts(monkeypatch)
    await _look_up_late(world)
    await _has_payable_charge(world, invoice, new)


async def test_a_late_look_up_does_not_cancel_the_charge_of_a_newer_attempt_with_its_number(
    world: World,
) -> None:
    """The first attempt ended as `charge_missing`, and a person retried.

    As after a restore, the new charge has the reference of the first attempt. Late look-ups of the first attempt find
    the new charge. The payer can still pay the new charge. [D-123, D-125]
    """
    invoice, new = await _retried(world, is_answer_lost=False)
    await world.sql("UPDATE sandbox_charge SET attempt = 1 WHERE charge_id = $1", new)
    await pass_time(world, hours=30)
    await _has_payable_charge(world, invoice, new)


async def test_a_charge_of_another_invoice_does_not_prolong_the_late_look_ups(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merchant cancels an invoice. Each search also shows an open charge of an unknown invoice.

    The late look-ups end after their usual times. The engine emits no event about the unknown invoice's charge.
    [D-125, D-162]
    """
    invoice = await unpaid_invoice(world)
    await world.sql(NO_SWEEP)
    assert (await cancel(world, invoice)).status == 200
    find, get, searches = SandboxGateway.find_charges, SandboxGateway.get_charge, list[int]()
    own, stranger = invoice["gatewayInvoiceId"], uuid4()

    async def get_charge(self: SandboxGateway, charge_id: str) -> Charge:
        if charge_id != STRANGER_ID:
            return await get(self, charge_id)
        shown = await get(self, own)
        return replace(shown, charge_id=STRANGER_ID, invoice_id=stranger, state=ChargeState.OPEN)

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        searches.append(attempt)
        return [*await find(self, invoice_id, attempt), await get_charge(self, STRANGER_ID)]

    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)
    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, days=3)
    assert searches != []
    searches.clear()
    await pass_time(world, days=2)
    assert searches == []
    assert await world.events("invoice.issue_failed") == []
