"""A search by the reference, or a read, fails while the engine knows some charges of an attempt (D-162, D-181)."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, InvalidAnswerError, TransientError
from tests.scenarios.reconciliation.test_scheduled_looks import looked_at, notify
from tests.support.sandbox_steps import (
    charges,
    end_leases,
    issued_invoice,
    pass_time,
    pay_silently,
    queue_fault,
    read,
    stored_charges,
)
from tests.support.sweep_steps import (
    NO_SWEEP,
    hide_payment,
    show_expired,
    show_payment,
    two_charges,
)
from tests.support.webhook_steps import SECRET
from tests.support.world import Json, World

pytestmark = pytest.mark.faults


async def _reported(world: World) -> tuple[Json, str, str]:
    """Return an invoice and the ids of two charges: one with a wrong amount, and one that is `paid` without a payment.

    The attempt is parked because of the wrong amount.
    """
    invoice, wrong, hidden = await two_charges(world, webhookSecret=SECRET)
    await world.sql("UPDATE sandbox_charge SET amount_cents = 5000 WHERE charge_id = $1", wrong)
    await hide_payment(world, hidden)
    await world.sql(NO_SWEEP)
    await notify(world, wrong)
    await looked_at(world)
    await pass_time(world, hours=2, minutes=30)
    [parked] = await stored_charges(world)
    assert (parked["stage"], parked["error_code"]) == ("parked", "amount_differs")
    return invoice, wrong, hidden


async def test_a_listed_payment_is_recorded_although_reads_of_the_charge_fail(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt is parked because one of two charges has a wrong amount. The payer pays this charge.

    Only searches show the payment, because reads of the charge fail. [D-170, D-181]
    """
    invoice, wrong, hidden = await _reported(world)
    get = SandboxGateway.get_charge

    async def get_charge(self: SandboxGateway, charge_id: str) -> Charge:
        if charge_id == wrong:
            raise InvalidAnswerError("the detail is invalid")
        return await get(self, charge_id)

    await pay_silently(world, wrong)
    await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", hidden)
    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)
    await pass_time(world, days=3)
    monkeypatch.undo()
    await pass_time(world, days=3)
    assert (await read(world, invoice))["paidCents"] == 5000


async def test_an_unanswered_read_hides_no_payment_of_another_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt is parked because one of two charges has a wrong amount. The payer pays this charge.

    Reads of the other charge get no answer. [D-170, D-125]
    """
    invoice, wrong, hidden = await _reported(world)
    await world.sql(
        "UPDATE sandbox_charge SET status = 'canceled', entries = '[]' WHERE charge_id = $1", hidden
    )
    get = SandboxGateway.get_charge

    async def get_charge(self: SandboxGateway, charge_id: str) -> Charge:
        if charge_id == hidden:
            raise TransientError("no answer")
        return await get(self, charge_id)

    await pay_silently(world, wrong)
    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)
    await pass_time(world, days=3)
    assert (await read(world, invoice))["paidCents"] == 5000


async def test_a_retry_after_a_repeated_charge_adopts_another_found_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first charge expired. A reissue made a second charge, which the engine does not know.

    A search shows both charges. Then the payer pays the second charge, and a person retries. [D-113, D-181]
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
    await hide_payment(world, second)
    await world.sql("UPDATE sandbox_charge SET status = 'open' WHERE charge_id = $1", first)
    find = SandboxGateway.find_charges

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        return [*await find(self, invoice_id, 1), *await find(self, invoice_id, 2)]

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, hours=2, minutes=30)
    monkeypatch.setattr(SandboxGateway, "find_charges", find)
    await show_payment(world, second)
    await pass_time(world, days=2)
    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    await pass_time(world, days=2)
    found = await read(world, invoice)
    assert found["paidCents"] == 9990
    assert len(await charges(world)) == 2


async def test_a_late_look_up_does_not_park_an_attempt_that_was_reopened_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt is parked because of a charge with a wrong amount.

    During a late look-up, the payer pays the right charge, and a webhook names it. The search does not show this
    charge. [D-125, D-162]
    """
    invoice, wrong, right = await two_charges(world, webhookSecret=SECRET)
    await world.sql("UPDATE sandbox_charge SET amount_cents = 5000 WHERE charge_id = $1", wrong)
    await world.sql(NO_SWEEP)
    show_expired(monkeypatch, right)
    find, during = SandboxGateway.find_charges, []

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        found = [e for e in await find(self, invoice_id, attempt) if e.charge_id != right]
        if during:
            during.clear()
            await pay_silently(world, right)
            await notify(world, right)
            await looked_at(world)
        return found

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await notify(world, right)
    await end_leases(world)
    await looked_at(world)
    await pass_time(world, days=3)
    [parked] = await stored_charges(world)
    assert (parked["stage"], parked["error_code"]) == ("parked", "amount_differs")
    during.append(1)
    await world.sql("UPDATE late_charge_check SET next_check_at = '2000-01-01', checks_made = 0")
    await world.run("reconciliation")
    await pass_time(world, days=3)
    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"], found["paidCents"]) == ("paid", right, 9990)


async def test_a_listed_part_payment_lowers_the_new_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One charge is canceled, and the attempt is parked as `charge_missing`. Then the payer pays a part of this charge.

    Only searches show the payment, because reads of the charge fail. A person retries. [D-113, D-181]
    """
    invoice, one, hidden = await two_charges(world)
    await world.post(f"/v1/sandbox/charges/{one}/cancel")
    await hide_payment(world, hidden)
    await world.sql(NO_SWEEP)
    await pass_time(world, hours=2, minutes=30)
    [parked] = await stored_charges(world)
    assert (parked["stage"], parked["error_code"]) == ("parked", "charge_missing")
    await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", hidden)
    await show_payment(world, one, cents=4000)
    get = SandboxGateway.get_charge

    async def get_charge(self: SandboxGateway, charge_id: str) -> Charge:
        if charge_id == one:
            raise InvalidAnswerError("the detail is invalid")
        return await get(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)
    await pass_time(world, days=2)
    assert (await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")).status == 200
    assert (await read(world, invoice))["paidCents"] == 4000
    assert [e["amount_cents"] for e in await stored_charges(world)] == [9990, 5990]


async def test_a_search_that_fails_once_lets_no_invoice_adopt_an_expired_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two charges, one is expired and one is open. A webhook names the expired charge, and the next search fails.
    [D-162, D-181]
    """
    invoice, named, other = await two_charges(world, webhookSecret=SECRET)
    await world.sql(NO_SWEEP)
    show_expired(monkeypatch, named)
    find, count = SandboxGateway.find_charges, [0]

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        count[0] += 1
        if count[0] == 1:
            raise TransientError("one 503")
        return await find(self, invoice_id, attempt)

    await notify(world, named)
    await end_leases(world)
    await looked_at(world)
    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, days=2)
    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == ("issued", other)
