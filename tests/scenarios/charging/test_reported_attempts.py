"""What happens to an attempt after a person was asked to decide, and when look-ups end (D-113, D-181).

A charge is *invalid* while the gateway's answers about it are invalid, for example `paid` without a payment.
"""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, ChargeState, InvalidAnswerError, TransientError
from tests.scenarios.reconciliation.test_scheduled_looks import looked_at, notify
from tests.support.restore_steps import compare
from tests.support.sandbox_steps import (
    cancel,
    charges,
    end_leases,
    issued_invoice,
    pass_time,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
    stored_charges,
)
from tests.support.sweep_steps import (
    NO_SWEEP,
    double_silently,
    hide_first_charge,
    hide_payment,
    show_payment,
    two_charges,
)
from tests.support.webhook_steps import SECRET
from tests.support.world import World

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("found_by", ["look-up", "webhook"])
async def test_a_right_charge_is_adopted_after_a_wrong_one_was_reported(world: World, found_by: str) -> None:
    """At first, the only valid charge has a wrong amount. Later, a charge with the right amount becomes valid.
    [D-170, D-181]
    """
    invoice, wrong, hidden = await two_charges(world, webhookSecret=SECRET)
    await world.sql("UPDATE sandbox_charge SET amount_cents = 5000 WHERE charge_id = $1", wrong)
    await hide_payment(world, hidden)
    await world.sql(NO_SWEEP)
    await pass_time(world, hours=2, minutes=30)
    [parked] = await stored_charges(world)
    assert (parked["stage"], parked["error_code"]) == ("parked", "amount_differs")
    await world.sql("UPDATE sandbox_charge SET status = 'open', entries = '[]' WHERE charge_id = $1", hidden)
    if found_by == "webhook":
        await notify(world, hidden)
        await looked_at(world)
    await pass_time(world, days=2)
    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == ("issued", hidden)


@pytest.mark.parametrize("error", [TransientError, InvalidAnswerError])
async def test_a_search_that_never_works_blocks_no_named_charge(
    world: World, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """A webhook names the paid charge. The engine can read this charge by its id, but every search fails.
    [D-162, D-181]
    """
    await world.set_up_gateway(behaviour="never_pay", webhookSecret=SECRET)
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    [lost] = await charges(world)
    await world.sql(NO_SWEEP)

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        raise error("the search is broken")

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pay_silently(world)
    await notify(world, lost["chargeId"])
    await looked_at(world)
    await pass_time(world, days=2)
    assert (await read(world, invoice))["status"] == "paid"


async def test_a_list_that_lags_does_not_ask_the_person_again_and_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first search shows an invalid charge. Later searches show this charge as open, but reads of it stay invalid.
    [D-181]
    """
    _, one, hidden = await two_charges(world)
    await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", one)
    await hide_payment(world, hidden)
    await world.sql(NO_SWEEP)
    find, count = SandboxGateway.find_charges, [0]

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        count[0] += 1
        found = await find(self, invoice_id, attempt)
        return (
            found if count[0] == 1 else [replace(each, state=ChargeState.OPEN, entries=()) for each in found]
        )

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, days=3)
    events = await world.events("invoice.issue_failed")
    assert len(events) <= 6


async def test_an_empty_look_up_that_was_dated_ahead_does_not_stop_issuance(world: World) -> None:
    """A host whose clock was far ahead recorded the time of the first empty look-up. [D-5, D-33]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_before")
    await world.run("issuance")
    await pass_time(world, seconds=85)
    assert [each["empty_lookups"] for each in await stored_charges(world)] == [1]
    await world.sql("UPDATE charge SET looked_up_at = looked_up_at + interval '400 days'")
    await end_leases(world)
    await pass_time(world, hours=20)
    assert (await read(world, invoice))["status"] == "issued"


async def test_a_retried_attempt_keeps_no_found_charges(world: World) -> None:
    """The attempt is parked as `charge_missing`, and a person retries.

    The gateway refuses the next charge, and the merchant cancels the invoice. [D-113, D-181]
    """
    invoice, one, hidden = await two_charges(world)
    await world.post(f"/v1/sandbox/charges/{one}/cancel")
    await hide_payment(world, hidden)
    await world.sql(NO_SWEEP)
    await pass_time(world, hours=2, minutes=30)
    [parked] = await stored_charges(world)
    assert (parked["stage"], parked["error_code"]) == ("parked", "charge_missing")
    await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", hidden)
    await queue_fault(world, "create_charge", "rejected")
    assert (await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")).status == 200
    assert (await cancel(world, invoice)).status == 200
    assert await world.broken() == []


async def test_late_look_ups_go_on_while_a_charge_is_invalid(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Look-ups missed the first charge, so the engine sent a second request, which the gateway refused.

    The first charge is invalid for three days, and then shows its payment. [D-33, D-125]
    """
    invoice, first = await hide_first_charge(world, monkeypatch)
    await queue_fault(world, "list_charges", "unknown", times=1)
    await hide_payment(world, first)
    await world.sql(NO_SWEEP)
    await pass_time(world, minutes=4)
    assert [each["stage"] for each in await stored_charges(world)] == ["failed"]
    await pass_time(world, days=3)
    await show_payment(world, first)
    await pass_time(world, days=1)
    assert (await read(world, invoice))["paidCents"] == 9990


async def test_a_retry_after_a_repeated_charge_makes_a_new_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a reissue, a search by the new reference shows the replaced charge, which has another reference.

    A person retries. [D-113, D-181]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await queue_fault(world, "create_charge", "timeout_before")
    await world.post(f"/v1/invoices/{invoice['id']}/reissue", {})
    await world.run("issuance")
    await world.sql(NO_SWEEP)
    find = SandboxGateway.find_charges

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        return await find(self, invoice_id, 1)

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, hours=3)
    monkeypatch.undo()
    for _ in range(3):
        await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
        await pass_time(world, hours=2)
    assert (await read(world, invoice))["status"] == "issued"


async def test_a_restore_records_payments_of_a_replaced_charge(world: World) -> None:
    """The attempt of a reissue was parked as `charge_missing`.

    The restored database lacks a payment of the replaced charge. [D-123, D-181]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    first = invoice["gatewayInvoiceId"]
    await queue_fault(world, "create_charge", "timeout_after")
    assert (await world.post(f"/v1/invoices/{invoice['id']}/reissue", {})).status == 200
    await world.run("issuance")
    await world.sql(NO_SWEEP)
    second = next(each["chargeId"] for each in await charges(world) if each["chargeId"] != first)
    await hide_payment(world, second)
    third = await double_silently(world, {"gatewayInvoiceId": second})
    await world.sql("UPDATE sandbox_charge SET status = 'canceled' WHERE charge_id = $1", third)
    await pass_time(world, hours=2, minutes=30)
    assert (await stored_charges(world))[1]["error_code"] == "charge_missing"
    await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", second)
    await queue_fault(world, "create_charge", "rejected")
    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    assert [e["stage"] for e in await stored_charges(world)] == ["canceled", "failed", "failed"]
    # the payer's bank settles the canceled charge; the backup lacks the payment
    await show_payment(world, first)
    await compare(world)
    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    found = await read(world, invoice)
    assert (found["status"], found["paidCents"]) == ("paid", 9990)


@pytest.mark.parametrize("found_by", ["look-up", "sweep"])
async def test_a_right_charge_that_is_paid_later_pays_the_invoice(world: World, found_by: str) -> None:
    """A charge with a wrong amount was reported. On the third day, the payer pays the right charge.

    No webhook reports the payment. [D-170, D-181]
    """
    invoice, wrong, hidden = await two_charges(world)
    await world.sql("UPDATE sandbox_charge SET amount_cents = 5000 WHERE charge_id = $1", wrong)
    await hide_payment(world, hidden)
    if found_by == "look-up":
        await world.sql(NO_SWEEP)
    await pass_time(world, hours=2, minutes=30)
    await world.sql("UPDATE sandbox_charge SET status = 'open', entries = '[]' WHERE charge_id = $1", hidden)
    await pass_time(world, days=3)
    await pay_silently(world, hidden)
    await pass_time(world, days=4)
    found = await read(world, invoice)
    assert (found["status"], found["paidCents"]) == ("paid", 9990)


@pytest.mark.parametrize("found_by", ["look-up", "sweep"])
@pytest.mark.parametrize("hours", [2, 30, 100])
async def test_a_payment_of_a_canceled_invoice_is_recorded_once_it_is_valid(
    world: World, hours: int, found_by: str
) -> None:
    """The payer pays the charge of a canceled invoice. The charge is invalid for the first `hours` hours.
    [D-50, D-125]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    assert (await cancel(world, invoice)).status == 200
    if found_by == "look-up":
        await world.sql(NO_SWEEP)
    await hide_payment(world, invoice["gatewayInvoiceId"])
    await pass_time(world, hours=hours)
    await show_payment(world, invoice["gatewayInvoiceId"])
    await pass_time(world, days=4)
    assert (await read(world, invoice))["paidCents"] == 9990
