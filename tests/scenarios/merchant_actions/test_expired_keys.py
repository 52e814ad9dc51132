"""A request uses an expired Idempotency-Key. The key is free again, but ids made from it still exist (D-14)."""

import pytest

from tests.support.cancellation_steps import end_requests
from tests.support.refund_steps import pay
from tests.support.reissue_steps import unpaid_invoice
from tests.support.sandbox_steps import charges, now, pass_time, pay_silently, queue_fault, read
from tests.support.world import Json, World

EXPIRE = "UPDATE idempotency_key SET expires_at = now() - interval '1 second'"
_REFUND = """
    UPDATE sandbox_charge SET entries = entries || jsonb_build_array(jsonb_build_object('kind', 'refund',
        'reference', 'refund_x', 'amount_cents', 4000, 'occurred_at', $1::text))
"""


async def again(world: World, path: str, body: Json, *, first: Json) -> tuple[int, str | None]:
    """Send `first`, let its key expire, and send `body` with this key. Return the status and the type of the answer."""
    answer = await world.post(path, first, key="k")
    assert answer.status in {200, 202}, answer.json
    await world.sql(EXPIRE)
    answer = await world.post(path, body, key="k")
    return answer.status, answer.json.get("type")


REUSED = (422, "engine.idempotency_key_reused")
PAYMENT = {"method": "cash", "amountCents": 1000, "paidAt": "2033-01-01T12:00:00Z"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, (200, None)),
        ({"note": "Paid at the counter."}, (200, None)),
        ({"amountCents": 2500}, REUSED),
        ({"method": "transfer"}, REUSED),
        ({"paidAt": "2033-01-01T12:00:01Z"}, REUSED),
    ],
)
async def test_another_payment_with_an_expired_key_is_refused(
    world: World, change: Json, expected: tuple[int, str | None]
):
    """[D-14, D-52]"""
    invoice = await unpaid_invoice(world)
    path = f"/v1/invoices/{invoice['id']}/payments"
    assert await again(world, path, PAYMENT | change, first=PAYMENT) == expected
    assert (await read(world, invoice))["paidCents"] == 1000
    fresh = await world.post(path, PAYMENT | {"amountCents": 2500}, key="another")
    assert fresh.json["paidCents"] == 3500


async def test_a_payment_of_all_that_is_open_is_repeated_with_an_expired_key(world: World):
    """[D-14, D-52]"""
    invoice = await unpaid_invoice(world)
    path = f"/v1/invoices/{invoice['id']}/payments"
    assert await again(world, path, {"method": "pix"}, first={"method": "pix"}) == (200, None)
    assert (await read(world, invoice))["paidCents"] == 9990


async def test_a_payment_of_all_that_is_open_does_not_repeat_a_part_payment(world: World):
    """A person uses the expired key of a part payment again, and leaves the amount out. [D-14, D-52]"""
    invoice = await unpaid_invoice(world)
    path = f"/v1/invoices/{invoice['id']}/payments"
    assert (
        await again(world, path, {"method": "cash"}, first={"method": "cash", "amountCents": 1000}) == REUSED
    )
    found = await read(world, invoice)
    assert (found["status"], found["paidCents"], len(found["payments"])) == ("issued", 1000, 1)
    assert [each["status"] for each in await charges(world)] == ["open"]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_payment_of_what_a_refund_left_open_is_repeated_with_an_expired_key(
    world: World, *, is_lost: bool
):
    """The gateway has refunded a part payment, and then a manual payment of the rest cancels the charge.

    The gateway's answer to the cancellation shows the refund. If this answer is lost, a poll records the refund.
    [D-14, D-52]
    """
    invoice = await unpaid_invoice(world)
    await pay(world, invoice, amountCents=4000)
    await world.sql(_REFUND, (await now(world)).isoformat())
    path = f"/v1/invoices/{invoice['id']}/payments"
    if is_lost:
        await queue_fault(world, "cancel_charge", "timeout_after")
    first = await world.post(path, {"method": "cash"}, key="k")
    assert first.status == (409 if is_lost else 200)
    await pass_time(world, minutes=30)
    recorded = (await read(world, invoice))["payments"]
    assert [(each["kind"], each["amountCents"]) for each in recorded] == [
        ("payment", 4000),
        ("refund", 4000),
        ("payment", 5990),
    ]

    await world.sql(EXPIRE)
    assert (await world.post(path, {"method": "cash"}, key="k")).status == 200
    assert (await read(world, invoice))["payments"] == recorded


async def test_a_payment_that_a_host_with_another_clock_completed_is_repeated_with_an_expired_key(
    world: World,
):
    """A host whose clock was 2 seconds ahead recorded an earlier part payment. [D-14, D-52]"""
    invoice = await unpaid_invoice(world)
    path = f"/v1/invoices/{invoice['id']}/payments"
    assert (await world.post(path, {"method": "cash", "amountCents": 4000}, key="a")).status == 200
    await world.sql("ALTER TABLE payment_entry DISABLE TRIGGER USER")
    await world.sql("UPDATE payment_entry SET recorded_at = recorded_at + interval '2 seconds'")
    await world.sql("ALTER TABLE payment_entry ENABLE TRIGGER USER")
    assert await again(world, path, {"method": "cash"}, first={"method": "cash"}) == (200, None)
    found = await read(world, invoice)
    assert sorted(each["amountCents"] for each in found["payments"]) == [4000, 5990]


@pytest.mark.parametrize(
    ("first", "body", "expected"),
    [
        ({"amountCents": 1000}, {"amountCents": 1000}, (200, None)),
        ({"amountCents": 1000}, {"amountCents": 2500}, REUSED),
        ({"amountCents": 1000}, {}, REUSED),
        ({}, {}, (200, None)),
        ({}, {"amountCents": 1000}, REUSED),
    ],
)
async def test_another_refund_with_an_expired_key_is_refused(
    world: World, first: Json, body: Json, expected: tuple[int, str | None]
):
    """A refund without an amount returns all that is left. [D-14, D-53]"""
    invoice = await unpaid_invoice(world)
    await pay_silently(world)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await world.run("reconciliation")
    path = f"/v1/invoices/{invoice['id']}/refunds"
    assert await again(world, path, body, first=first) == expected
    assert (await read(world, invoice))["refundedCents"] == first.get("amountCents", 9990)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, (200, None)),
        ({"dueDate": "2033-12-01"}, (200, None)),
        ({"dueDate": "2033-12-20"}, REUSED),
        ({"paymentMethod": "boleto"}, REUSED),
        ({"installments": 3}, REUSED),
    ],
)
async def test_another_reissue_with_an_expired_key_is_refused(
    world: World, change: Json, expected: tuple[int, str | None]
):
    """If a charge is sent late, its due date moves to a later day.

    Therefore, Fatura accepts a repeat whose due date is earlier than the charge's. [D-14, D-51]
    """
    invoice = await unpaid_invoice(world)
    first = {"dueDate": "2033-12-10", "paymentMethod": "card", "installments": 2}
    assert (
        await again(world, f"/v1/invoices/{invoice['id']}/reissue", first | change, first=first) == expected
    )
    await world.run("issuance")
    assert sorted(each["status"] for each in await charges(world)) == ["canceled", "open"]


@pytest.mark.parametrize(
    ("action", "first", "change", "expected"),
    [
        ("payments", {"method": "cash"}, {}, (409, "engine.invoice_not_payable")),
        ("payments", {"method": "cash"}, {"amountCents": 9990}, (409, "engine.invoice_not_payable")),
        ("payments", {"method": "cash"}, {"amountCents": 1000}, REUSED),
        ("payments", {"method": "cash"}, {"method": "transfer"}, REUSED),
        ("reissue", {"paymentMethod": "pix"}, {}, (409, "engine.invoice_not_reissuable")),
        ("reissue", {"paymentMethod": "pix"}, {"paymentMethod": "card"}, REUSED),
    ],
)
async def test_another_request_with_the_expired_key_of_a_stored_one_is_refused(
    world: World, action: str, first: Json, change: Json, expected: tuple[int, str]
):
    """The gateway answers neither cancellations nor polls, so the first request stays stored. [D-14, D-171]"""
    invoice = await unpaid_invoice(world)
    path = f"/v1/invoices/{invoice['id']}/{action}"
    await queue_fault(world, "cancel_charge", "timeout_before", times=2)
    assert (await world.post(path, first, key="k")).status == 409
    await world.sql("DELETE FROM idempotency_key")
    await end_requests(world)

    again = await world.post(path, first | change, key="k")

    assert (again.status, again.type) == expected
    await world.sql(EXPIRE)
    assert (await world.post(path, first, key="k")).status == (409 if expected == REUSED else 200)
    assert await world.broken() == []
