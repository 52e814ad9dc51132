"""After a restore, the gateway has several charges of an invoice. The invoice adopts one of them (D-181)."""

from dataclasses import replace
from uuid import UUID

import pytest

from fatura.domain.sandbox import SandboxCharge
from fatura.gateways.adapters.sandbox import adapter
from fatura.gateways.port import Charge, ChargeState
from tests.support.restore_steps import compare, create_unmatched_charge
from tests.support.sandbox_steps import charges, pass_time, pay_silently, queue_fault, read, ready_invoice
from tests.support.sweep_steps import second_charge_events, sweep
from tests.support.world import Json, World

TOTAL = 9990


@pytest.fixture
def expired(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return an empty set. If a test adds the id of an unpaid charge, the gateway shows the charge as expired."""
    ids: set[str] = set()
    as_charge = adapter.as_charge

    def shown(stored: SandboxCharge) -> Charge:
        charge = as_charge(stored)
        is_expired = charge.charge_id in ids and charge.state is ChargeState.OPEN
        return replace(charge, state=ChargeState.EXPIRED) if is_expired else charge

    monkeypatch.setattr(adapter, "as_charge", shown)
    return ids


async def two_charges(world: World, *cents: int) -> tuple[Json, str, str]:
    """Return an invoice and the ids of its two charges, the older charge first. The database lacks both charges."""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    older, newer = [
        (await create_unmatched_charge(world, UUID(invoice["id"]), each, attempt=attempt)).charge_id
        for attempt, each in enumerate(cents or (TOTAL, TOTAL), 1)
    ]
    return invoice, older, newer


async def expire(world: World, expired: set[str], *charge_ids: str) -> None:
    """Make charges expire at the gateway. `is_double` exempts them from the invariant of one charge per invoice."""
    expired.update(charge_ids)
    await world.sql(
        "UPDATE sandbox_charge SET is_double = true WHERE charge_id = ANY($1::text[])", list(charge_ids)
    )


async def states(world: World) -> dict[str, str]:
    return {each["chargeId"]: each["status"] for each in await charges(world)}


@pytest.mark.parametrize(("is_paid", "status"), [(False, "issued"), (True, "paid")])
async def test_the_successor_of_an_expired_charge_is_adopted(
    world: World, expired: set[str], *, is_paid: bool, status: str
):
    """[D-181, D-123]"""
    invoice, older, newer = await two_charges(world)
    await expire(world, expired, older)
    if is_paid:
        await pay_silently(world, newer)
    await compare(world)
    await world.run()

    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"]) == (status, newer)
    assert await world.events("invoice.issue_failed") == []
    assert await world.broken() == []


async def test_the_newest_of_two_expired_charges_is_adopted(world: World, expired: set[str]):
    """[D-181]"""
    invoice, older, newer = await two_charges(world)
    await expire(world, expired, older, newer)
    await compare(world)
    await world.run()

    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"]) == ("overdue", newer)
    assert await world.broken() == []


@pytest.mark.parametrize("is_newer_paid", [False, True])
async def test_the_paid_one_of_two_charges_is_adopted(world: World, *, is_newer_paid: bool):
    """The other charge is canceled and reported. [D-181, D-125]"""
    invoice, *found = await two_charges(world)
    other, paid = found if is_newer_paid else found[::-1]
    await pay_silently(world, paid)
    await compare(world)
    await world.run()

    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"], shown["paidCents"]) == ("paid", paid, TOTAL)
    assert await states(world) == {paid: "paid", other: "canceled"}
    assert await second_charge_events(world) == [other]
    assert await world.events("invoice.payment_unexpected") == []
    assert await world.broken() == []


async def test_two_paid_charges_are_both_recorded(world: World):
    """[D-181, D-50]"""
    invoice, older, newer = await two_charges(world)
    await pay_silently(world)
    await compare(world)
    await world.run()

    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"], shown["paidCents"]) == ("paid", newer, 2 * TOTAL)
    assert await states(world) == {older: "paid", newer: "paid"}
    assert len(await world.events("invoice.overpaid")) == 1
    assert await world.broken() == ["one_sandbox_charge_per_invoice"]


async def test_the_charge_of_the_rest_is_adopted(world: World):
    """The older charge was paid, but had a lower amount than the invoice. The newer charge is for the rest.
    [D-181, D-67 reissue]
    """
    invoice, older, newer = await two_charges(world, 9000, TOTAL - 9000)
    await pay_silently(world, older)
    await compare(world)
    await world.run()

    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"], shown["paidCents"]) == ("issued", newer, 9000)
    assert await states(world) == {older: "paid", newer: "open"}
    assert await world.events("invoice.issue_failed") == []
    assert await world.broken() == ["one_sandbox_charge_per_invoice"]


async def test_a_charge_with_the_right_amount_is_adopted(world: World):
    """The newer charge has another amount than the invoice. [D-181]"""
    invoice, older, newer = await two_charges(world, TOTAL, TOTAL + 1)
    await compare(world)
    await world.run()

    assert (await read(world, invoice))["gatewayInvoiceId"] == older
    assert await states(world) == {older: "open", newer: "canceled"}
    assert await second_charge_events(world) == [newer]
    assert await world.broken() == []


async def test_the_cancellation_of_the_other_charge_is_repeated(world: World):
    """[D-181, D-125]"""
    _, older, newer = await two_charges(world)
    await queue_fault(world, "cancel_charge", "rejected")
    await compare(world)
    await world.run()
    assert await states(world) == {older: "open", newer: "open"}

    await pass_time(world, minutes=11)
    assert await states(world) == {older: "canceled", newer: "open"}
    assert await second_charge_events(world) == [older]
    assert await world.broken() == []


async def test_an_event_names_at_most_six_charges_with_other_amounts(world: World):
    """A canceled charge is not named. [D-181]"""
    invoice, *_ = await two_charges(world, TOTAL + 1, TOTAL + 2)
    more = [
        (
            await create_unmatched_charge(world, UUID(invoice["id"]), TOTAL + attempt, attempt=attempt)
        ).charge_id
        for attempt in range(3, 10)
    ]
    *_, canceled, newest = more
    await world.made(f"/v1/sandbox/charges/{canceled}/cancel")
    await compare(world)
    await world.run()

    [emitted] = await world.events("invoice.issue_failed")
    detail = emitted["data"]["error"]["detail"]
    assert [each["chargeId"] in detail for each in await charges(world)].count(True) == 6
    assert newest in detail
    assert canceled not in detail
    assert detail.endswith(", and 2 more.")


async def test_charges_with_other_amounts_are_left_until_one_is_paid(world: World):
    """The invoice adopts the paid charge, and the other charge is canceled. [D-181, D-170]"""
    invoice, older, newer = await two_charges(world, TOTAL + 1, TOTAL + 2)
    await compare(world)
    await world.run()
    [emitted] = await world.events("invoice.issue_failed")
    error = emitted["data"]["error"]
    assert (error["code"], error["gatewayInvoiceId"]) == ("amount_differs", newer)
    assert error["detail"] == (
        f"The gateway's charge {newer} is for {TOTAL + 2} cents; check it there. "
        f"Check the invoice's other charges too: {older} ({TOTAL + 1} cents)."
    )
    await sweep(world)
    assert await states(world) == {older: "open", newer: "open"}

    await pay_silently(world, older)
    await sweep(world)
    await world.run()

    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"], shown["paidCents"]) == ("paid", older, TOTAL + 1)
    assert await states(world) == {older: "paid", newer: "canceled"}
    assert await world.broken() == []


@pytest.mark.parametrize("is_open_again", [False, True])
async def test_an_expired_charge_with_another_amount_is_replaced_after_a_retry(
    world: World, expired: set[str], *, is_open_again: bool
):
    """The invoice's older charge is canceled already. After the retry, the engine cancels the expired charge.

    [D-181, D-113, D-125]
    """
    invoice, older, newer = await two_charges(world, TOTAL, TOTAL + 1)
    await world.made(f"/v1/sandbox/charges/{older}/cancel")
    await expire(world, expired, newer)
    await compare(world)
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    await pass_time(world, days=2)
    assert (await read(world, invoice))["issueError"]["code"] == "amount_differs"
    assert len(await world.events("invoice.issue_failed")) == 1

    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    await world.run()
    own = (await read(world, invoice))["gatewayInvoiceId"]
    assert own not in {None, older, newer}
    if is_open_again:
        expired.clear()
    await pass_time(world, hours=7)

    assert await states(world) == {older: "canceled", newer: "canceled", own: "open"}
    assert len(await world.events("invoice.issue_failed")) == 1 + is_open_again


async def test_found_charges_that_the_gateway_deletes_wait_for_a_person(world: World):
    """After the person has checked the gateway, a retry makes a new charge. [D-181, D-113]"""
    invoice, older, newer = await two_charges(world)
    await compare(world)
    await world.sql("DELETE FROM sandbox_charge")
    await world.run()
    await pass_time(world, minutes=50)
    assert (await read(world, invoice))["issueError"] is None
    await pass_time(world, hours=2)

    shown = await read(world, invoice)
    assert (shown["status"], shown["issueError"]["code"]) == ("ready", "charge_missing")
    assert all(charge_id in shown["issueError"]["detail"] for charge_id in (older, newer))
    assert len(await world.events("invoice.issue_failed")) == 1

    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    assert (await read(world, invoice))["status"] == "issued"
    assert len(await charges(world)) == 1
    assert await world.broken() == []


async def test_a_deleted_charge_that_appears_again_is_adopted(world: World):
    """The gateway shows one of two charges again, and the invoice adopts this charge an hour later. [D-181]"""
    invoice, _, newer = await two_charges(world)
    await compare(world)
    await world.sql("CREATE TABLE kept AS SELECT * FROM sandbox_charge WHERE charge_id = $1", newer)
    await world.sql("DELETE FROM sandbox_charge")
    await pass_time(world, hours=3)
    await world.sql("INSERT INTO sandbox_charge SELECT * FROM kept")

    await sweep(world)
    await pass_time(world, hours=2)

    assert (await read(world, invoice))["gatewayInvoiceId"] == newer
    assert await world.broken() == []


async def test_a_deleted_charge_does_not_delay_the_others_for_long(world: World):
    """[D-181]"""
    invoice, older, newer = await two_charges(world)
    await compare(world)
    await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", newer)
    await world.run()
    assert (await read(world, invoice))["status"] == "ready"

    await pass_time(world, hours=3)
    assert (await read(world, invoice))["gatewayInvoiceId"] == older
    assert await world.broken() == []


async def test_a_charge_that_was_left_out_is_canceled_if_it_appears_again(world: World):
    """For three hours, the gateway does not know the newer charge, so the invoice adopts the older one. No sweep runs.
    [D-181, D-125]
    """
    invoice, older, newer = await two_charges(world)
    await compare(world)
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    await world.sql("CREATE TABLE kept AS SELECT * FROM sandbox_charge WHERE charge_id = $1", newer)
    await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", newer)
    await pass_time(world, hours=3)
    assert (await read(world, invoice))["gatewayInvoiceId"] == older

    await world.sql("INSERT INTO sandbox_charge SELECT * FROM kept")
    await pass_time(world, hours=6)

    assert await states(world) == {older: "open", newer: "canceled"}
    assert await second_charge_events(world) == [newer]
    assert await world.broken() == []


@pytest.mark.parametrize("is_paid", [False, True])
async def test_an_expired_charge_that_was_not_adopted_is_looked_at_again(
    world: World, expired: set[str], *, is_paid: bool
):
    """The charge becomes payable again or is paid late, without a webhook or sweep. [D-181, D-125, D-50]"""
    invoice, older, newer = await two_charges(world)
    await expire(world, expired, older)
    await compare(world)
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    await pass_time(world, hours=2)
    assert await second_charge_events(world) == []

    expired.clear()
    if is_paid:
        await pay_silently(world, older)
    await pass_time(world, hours=6)

    assert (await states(world))[older] == ("paid" if is_paid else "canceled")
    assert await second_charge_events(world) == [older]
    shown = await read(world, invoice)
    assert (shown["gatewayInvoiceId"], shown["paidCents"]) == (newer, TOTAL if is_paid else 0)


async def test_looks_at_a_charge_that_was_left_out_end(world: World):
    """[D-181, D-125]"""
    _, _, newer = await two_charges(world)
    await compare(world)
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", newer)
    await pass_time(world, hours=3)
    assert len(await world.sql("SELECT FROM unmatched_charge WHERE next_look_at IS NOT NULL")) == 1
    await pass_time(world, days=1)
    assert await world.sql("SELECT FROM unmatched_charge WHERE next_look_at IS NOT NULL") == []
    assert await second_charge_events(world) == []
    assert await world.broken() == []


@pytest.mark.parametrize("is_canceled", [False, True])
async def test_a_sandbox_payment_of_a_parked_charge_is_recorded_without_a_sweep(
    world: World, *, is_canceled: bool
):
    """[D-46, D-162, D-170]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    found = (await create_unmatched_charge(world, UUID(invoice["id"]), TOTAL + 1)).charge_id
    if is_canceled:
        await world.made(f"/v1/sandbox/charges/{found}/cancel")
    await compare(world)
    await pass_time(world, hours=1)

    await world.made(f"/v1/sandbox/charges/{found}/pay", {"amountCents": TOTAL + 1})
    await pass_time(world, minutes=5)

    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"]) == ("paid", TOTAL + 1)
    assert await world.broken() == []
