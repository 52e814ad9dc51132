"""While the gateway cancels a charge for a merchant's payment of the total, other payments arrive."""

import pytest

from fatura.usecases.merchant_actions import charge_release
from tests.support.cancellation_steps import around_the_cancellation, end_requests
from tests.support.sandbox_steps import charges, issued_invoice, move, pass_time, queue_fault, read
from tests.support.world import Answer, Json, World, columns


async def receive(world: World, invoice: Json, *, key: str = "fresh", **body: Json) -> Answer:
    return await world.post(f"/v1/invoices/{invoice['id']}/payments", {"method": "cash", **body}, key=key)


async def pay_part_silently(world: World) -> None:
    """Let the payer pay 3000 cents; the gateway sends no webhook."""
    await world.sql("""
        UPDATE sandbox_charge SET entries = entries || jsonb_build_array(jsonb_build_object('kind', 'payment',
            'reference', 'part_' || charge_id, 'amount_cents', 3000, 'occurred_at', created_at))
    """)


async def check_settled(world: World, invoice: Json, *, paid_cents: int) -> Json:
    """Run all polls. Check that the invoice is paid, and return the invoice."""
    await pass_time(world, days=2)
    found = await read(world, invoice)
    assert (found["status"], found["paidCents"]) == ("paid", paid_cents)
    assert [each["status"] for each in found["charges"]] == ["canceled"]
    assert [each["status"] for each in await charges(world)] == ["canceled"]
    assert await world.events("invoice.canceled") == []
    assert len(await world.events("invoice.paid")) == 1
    assert len(await world.events("invoice.overpaid")) == (paid_cents > 9990)
    assert await world.broken() == []
    return found


@pytest.fixture
async def issued(world: World) -> Json:
    """Return an issued invoice of 9990 cents."""
    await world.set_up_gateway(behaviour="never_pay")
    return await issued_invoice(world)


@pytest.mark.parametrize("is_lost", [False, True], ids=["answered", "lost"])
@pytest.mark.parametrize(
    ("body", "cents"), [({}, 6990), ({"amountCents": 9990}, 9990)], ids=["open", "given"]
)
async def test_the_gateway_has_a_part_that_no_poll_has_found(
    world: World, issued: Json, body: Json, cents: int, *, is_lost: bool
) -> None:
    """The payer has paid 3000 of 9990 cents. If the merchant's request has no amount, Fatura records the open 6990.
    [D-52, D-171]
    """
    await pay_part_silently(world)
    if is_lost:
        await queue_fault(world, "cancel_charge", "timeout_after")

    answer = await receive(world, issued, **body)

    assert answer.status == (409 if is_lost else 200)
    found = await check_settled(world, issued, paid_cents=3000 + cents)
    assert sorted(columns(found["payments"], "source", "amountCents")) == [
        ("gateway", "3000"),
        ("manual", str(cents)),
    ]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("cents", [3000, 9990])
async def test_a_second_person_records_nothing_meanwhile(
    world: World, issued: Json, cents: int, moment: str
) -> None:
    """[D-52, D-171]"""

    async def second() -> None:
        answer = await receive(world, issued, key="other", amountCents=cents)
        assert (answer.status, answer.type) == (409, "engine.invoice_not_payable")

    with around_the_cancellation(**{moment: second}):
        assert (await receive(world, issued)).status == 200

    await check_settled(world, issued, paid_cents=9990)


@pytest.mark.parametrize("fault", ["timeout_before", "timeout_after"])
async def test_a_part_is_refused_while_a_payment_waits_for_the_polls(
    world: World, issued: Json, fault: str
) -> None:
    """The API answers 409 to a payment of the total, but stores it. The merchant then records a part of the same money.
    Fatura must not record both payments. [D-52 crash, D-171]
    """
    await queue_fault(world, "cancel_charge", fault)
    assert (await receive(world, issued, amountCents=9990)).status == 409

    part = await receive(world, issued, key="part", amountCents=5000)

    assert (part.status, part.type) == (409, "engine.invoice_not_payable")
    [charge] = await charges(world)
    if charge["status"] == "open":
        await move(world, charge, "cancel")
    await check_settled(world, issued, paid_cents=9990)


async def test_a_waiting_payment_is_not_replaced_by_another_body(world: World, issued: Json) -> None:
    """A payment of the total is stored, because the gateway's answer was lost.

    A request with the same key names a lower amount, which would need no cancellation. [D-14, D-52 key]
    """
    await queue_fault(world, "cancel_charge", "timeout_after")
    assert (await receive(world, issued, key="once", amountCents=9990)).status == 409

    other = await receive(world, issued, key="once", amountCents=4000)

    assert (other.status, other.type) == (422, "engine.idempotency_key_reused")
    await check_settled(world, issued, paid_cents=9990)
    assert (await receive(world, issued, key="once", amountCents=9990)).json["paidCents"] == 9990


async def test_a_repeat_completes_a_payment_whose_answer_was_lost(world: World, issued: Json) -> None:
    """[D-52 key]"""
    await queue_fault(world, "cancel_charge", "timeout_before")
    assert (await receive(world, issued, key="once")).status == 409

    answer = await receive(world, issued, key="once")

    assert (answer.status, answer.json["status"]) == (200, "paid")
    await check_settled(world, issued, paid_cents=9990)


@pytest.mark.faults
async def test_a_repeat_waits_for_the_first_request(world: World, issued: Json) -> None:
    """[D-14, D-52 key]"""
    answers = list[Answer]()

    async def repeat() -> None:
        answers.append(await receive(world, issued, key="once"))

    with around_the_cancellation(before=repeat):
        assert (await receive(world, issued, key="once")).status == 200

    assert [(each.status, each.type) for each in answers] == [(409, "engine.idempotency_in_progress")]
    await check_settled(world, issued, paid_cents=9990)


async def test_a_refused_cancellation_keeps_the_payment_of_another_person(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two persons record a payment of the total. The gateway refuses the first person's cancellation.

    Before Fatura records the refusal, the second payment replaces the first. The gateway's answer to the second
    cancellation is lost. [D-171]
    """
    cancel_charge = charge_release.cancel

    async def refused_late(*args: object, **named: object) -> object:
        monkeypatch.undo()
        await queue_fault(world, "cancel_charge", "rejected")
        refused = await cancel_charge(*args, **named)  # pyright: ignore[reportArgumentType] - passed on unchanged
        await end_requests(world)
        await queue_fault(world, "cancel_charge", "timeout_after")
        assert (await receive(world, issued, key="other")).status == 409
        return refused

    monkeypatch.setattr(charge_release, "cancel", refused_late)
    answer = await receive(world, issued)

    assert (answer.status, answer.type) == (409, "engine.invoice_not_payable")
    await check_settled(world, issued, paid_cents=9990)


async def test_an_amount_above_what_is_open_cancels_no_charge(world: World, issued: Json) -> None:
    """[D-52, D-67 amounts]"""
    answer = await receive(world, issued, amountCents=9991)

    assert (answer.status, answer.type) == (422, "engine.amount_exceeds_open")
    assert [each["status"] for each in await charges(world)] == ["open"]


async def test_a_slow_cancellation_records_the_payment_soon(world: World, issued: Json) -> None:
    """The cancellation gets no answer. The gateway cancels the charge two minutes later. [D-52, D-171]"""
    await queue_fault(world, "cancel_charge", "timeout_before")
    assert (await receive(world, issued)).status == 409
    await pass_time(world, minutes=2)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled'")

    await pass_time(world, minutes=10)

    assert (await read(world, issued))["status"] == "paid"
    await check_settled(world, issued, paid_cents=9990)
