"""The engine forgets no charge that a look-up has shown. It waits for missing and invalid charges (D-181).

A charge is *invalid* while the gateway's answers about it are invalid, for example `paid` without a payment.
"""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, ChargeState
from tests.scenarios.reconciliation.test_scheduled_looks import looked_at, notify
from tests.support.restore_steps import compare, create_unmatched_charge
from tests.support.sandbox_steps import (
    charge_statuses,
    charges,
    end_leases,
    pass_time,
    patch_connection,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
    stored_charges,
)
from tests.support.sweep_steps import (
    NO_SWEEP,
    believe_absent,
    double_silently,
    hide_first_charge,
    hide_payment,
    show_payment,
    two_charges,
)
from tests.support.webhook_steps import SECRET
from tests.support.world import World

pytestmark = pytest.mark.faults


async def test_a_charge_that_was_seen_is_not_believed_absent(world: World) -> None:
    """A look-up shows an open charge and an invalid charge. The next look-ups are empty. [D-181, D-33]"""
    _, valid, hidden = await two_charges(world)
    await hide_payment(world, hidden)
    await world.sql(NO_SWEEP)
    await pass_time(world, seconds=90)
    await queue_fault(world, "list_charges", "unknown", times=3)
    await pass_time(world, minutes=20)

    assert set(await charge_statuses(world)) == {valid, hidden}


async def test_an_invalid_charge_of_a_refused_second_request_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway refuses the second request. A look-up then shows a canceled charge and an invalid charge.
    [D-33, D-181]
    """
    invoice, first = await hide_first_charge(world, monkeypatch)
    hidden = await double_silently(world, {"gatewayInvoiceId": first})
    await world.sql(NO_SWEEP)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled' WHERE charge_id = $1", first)
    await hide_payment(world, hidden)
    await pass_time(world, minutes=4)
    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")

    assert set(await charge_statuses(world)) == {first, hidden}


@pytest.mark.parametrize("state", ["open", "paid"])
async def test_a_search_that_shows_only_an_invalid_charge_hides_no_named_charge(
    world: World, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """A webhook names a charge. The search shows only another charge, which is invalid. [D-162, D-181]"""
    invoice, named, hidden = await two_charges(world, webhookSecret=SECRET)
    find = SandboxGateway.find_charges

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        return [each for each in await find(self, invoice_id, attempt) if each.charge_id != named]

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await hide_payment(world, hidden)
    if state == "paid":
        await pay_silently(world, named)
    await world.sql(NO_SWEEP)
    await notify(world, named)
    await looked_at(world)
    await pass_time(world, days=2)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == ("issued" if state == "open" else "paid", named)


async def test_a_stale_search_does_not_replace_a_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A webhook names a paid charge. A read does not show the payment yet, and the search still shows the charge as
    open. [D-181]
    """
    invoice, other, named = await two_charges(world, webhookSecret=SECRET)
    find = SandboxGateway.find_charges

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        found = await find(self, invoice_id, attempt)
        return [replace(each, state=ChargeState.OPEN, entries=()) for each in found]

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await world.sql(NO_SWEEP)
    await queue_fault(world, "list_charges", "unknown")
    await notify(world, named)
    await looked_at(world)
    await hide_payment(world, named)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await pass_time(world, minutes=20)
    assert (await read(world, invoice))["status"] == "ready"
    await show_payment(world, named)
    await pass_time(world, hours=2)
    assert (await read(world, invoice))["gatewayInvoiceId"] == named
    assert await charge_statuses(world) == {other: "canceled", named: "paid"}


async def test_empty_look_ups_do_not_start_the_hour_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second look-up is empty. The others show a paid charge and an invalid charge.

    The engine waits only one hour for valid data of the invalid charge. [D-181]
    """
    invoice, paid, hidden = await two_charges(world)
    await hide_payment(world, hidden)
    await pay_silently(world, paid)
    await world.sql(NO_SWEEP)
    find, count = SandboxGateway.find_charges, [0]

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        count[0] += 1
        return [] if count[0] % 2 else await find(self, invoice_id, attempt)

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, days=2)

    assert (await read(world, invoice))["status"] == "paid"


@pytest.mark.parametrize("other", [None, "canceled"])
async def test_a_late_look_up_that_shows_only_an_invalid_charge_prevents_a_second_request(
    world: World, other: str | None
) -> None:
    """The engine believed a paid charge absent. In the late look-up, this charge is invalid. [D-125, D-181]"""
    _, one, hidden = await two_charges(world)
    if other is None:
        await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", one)
    else:
        await world.sql("UPDATE sandbox_charge SET status = 'canceled' WHERE charge_id = $1", one)
    await hide_payment(world, hidden)
    await world.sql(NO_SWEEP)
    await believe_absent(world)
    before = len(await charges(world))
    await pass_time(world, minutes=15)
    await patch_connection(world, active=True)
    await pass_time(world, minutes=10)

    assert len(await charges(world)) == before


async def test_a_look_up_that_a_wrong_clock_dated_does_not_stop_issuance(world: World) -> None:
    """[D-5, D-34]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_before")
    await world.run("issuance")
    await pass_time(world, seconds=85)
    assert [each["empty_lookups"] for each in await stored_charges(world)] == [1]
    await world.sql("UPDATE charge SET looked_up_at = looked_up_at + interval '40 days'")
    await end_leases(world)
    await pass_time(world, days=3)

    assert (await read(world, invoice))["status"] == "issued" or await world.events("invoice.issue_delayed")


async def test_a_refused_search_does_not_stop_the_adoption_of_a_named_charge(world: World) -> None:
    """A webhook names the paid charge. The gateway refuses all searches by the reference. [D-162, D-181]"""
    await world.set_up_gateway(behaviour="never_pay", webhookSecret=SECRET)
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    [lost] = await charges(world)
    await world.sql(NO_SWEEP)
    await queue_fault(world, "list_charges", "rejected", times=1000)
    await pay_silently(world)
    await notify(world, lost["chargeId"])
    await looked_at(world)
    await pass_time(world, days=2)

    assert (await read(world, invoice))["status"] == "paid"


async def test_a_paid_canceled_charge_of_a_parked_attempt_is_adopted(world: World) -> None:
    """A search showed a canceled charge, and the attempt was parked. Then the gateway shows a payment of the charge.
    [D-181]
    """
    invoice, canceled, hidden = await two_charges(world)
    await world.post(f"/v1/sandbox/charges/{canceled}/cancel")
    await hide_payment(world, hidden)
    await world.sql(NO_SWEEP)
    await pass_time(world, hours=2)
    [parked] = await stored_charges(world)
    assert (parked["stage"], parked["error_code"]) == ("parked", "charge_missing")
    await show_payment(world, canceled)
    await pass_time(world, days=2)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"], found["paidCents"]) == ("paid", canceled, 9990)
    assert await world.broken() == []


async def test_an_invalid_charge_of_the_highest_number_hides_no_other_found_charge(world: World) -> None:
    """`fatura restored` found two charges. Then the older was paid, and the newer became invalid. [D-123, D-181]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    paid = await create_unmatched_charge(world, UUID(invoice["id"]), 9990, attempt=1)
    hidden = await create_unmatched_charge(world, UUID(invoice["id"]), 9990, attempt=3)
    await compare(world)
    await world.sql(NO_SWEEP)
    await pay_silently(world, paid.charge_id)
    await hide_payment(world, hidden.charge_id)
    await pass_time(world, days=3)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"], found["paidCents"]) == ("paid", paid.charge_id, 9990)


async def test_a_charge_that_was_shown_wrongly_once_is_not_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look-up shows an open charge and an invalid charge. The next one, which lags, shows only the open charge.

    The payer has paid the invalid charge. Later, this charge becomes valid. [D-181, D-50]
    """
    invoice, valid, hidden = await two_charges(world)
    await hide_payment(world, hidden)
    await world.sql(NO_SWEEP)
    find, count = SandboxGateway.find_charges, [0]

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        count[0] += 1
        return [
            each for each in await find(self, invoice_id, attempt) if count[0] != 2 or each.charge_id == valid
        ]

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, minutes=20)
    await show_payment(world, hidden)
    await pass_time(world, days=3)

    found = await read(world, invoice)
    assert (found["status"], found["paidCents"]) == ("paid", 9990)
    assert await charge_statuses(world) == {valid: "canceled", hidden: "paid"}


async def test_an_invalid_found_charge_does_not_block_later_invoices(world: World) -> None:
    """`fatura restored` found a paid charge and an invalid charge. If the invoice stayed `ready`, it would block all
    later cycles. [D-57, D-181]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    paid = await create_unmatched_charge(world, UUID(invoice["id"]), 9990, attempt=1)
    hidden = await create_unmatched_charge(world, UUID(invoice["id"]), 9990, attempt=3)
    await compare(world)
    await pay_silently(world, paid.charge_id)
    await hide_payment(world, hidden.charge_id)
    await pass_time(world, days=40)

    found = await world.invoices()
    assert len(found) == 2
    assert "ready" not in [each["status"] for each in found]


async def test_a_request_that_a_wrong_clock_dated_does_not_delay_the_next_cycle(world: World) -> None:
    """A host whose clock was 400 days ahead sent the request.

    The look-up finds the charge at once, so the engine never corrects the time of the request. [D-5, D-57]
    """
    await world.set_up_gateway(behaviour="never_pay")
    await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    await world.sql(
        "UPDATE charge SET sent_at = sent_at + interval '400 days', first_sent_at = now() + interval '400 days'"
    )
    await end_leases(world)
    await pass_time(world, days=40)

    found = await world.invoices()
    assert len(found) == 2
    assert "ready" not in [each["status"] for each in found]
