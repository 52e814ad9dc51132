"""After gateway faults and killed workers, each invoice has one charge, unless the gateway refused the charge."""

import asyncio
import random
from datetime import datetime

import pytest

from fatura.workers.lanes import ENGINE
from tests.support.sandbox_steps import (
    charges,
    connection_id,
    end_leases,
    pass_time,
    queue_fault,
    read,
    ready_invoice,
    stored_charges,
    table_held,
    until_waiting,
)
from tests.support.world import Json, World, run_until_idle

FAULTS = (
    "timeout_before",
    "timeout_after",
    "server_error",
    "rate_limited",
    "unauthorized",
    "hang",
    "rejected",
)


@pytest.fixture
def early_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the time-out of gateway calls to two seconds."""
    monkeypatch.setattr("fatura.gateways.port.CALL_TIMEOUT_SECONDS", 2)


@pytest.mark.faults
@pytest.mark.usefixtures("early_deadline")
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failed_creation_ends_with_one_charge(world: World, fault: str, times: int) -> None:
    """After a refusal, no charge exists and a person must act. After any other fault, one charge exists.
    [D-33, D-46]
    """
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", fault, times=times)

    await pass_time(world, hours=20)

    refused = fault == "rejected"
    status, count = ("ready", 0) if refused else ("issued", 1)
    assert (await read(world, invoice))["status"] == status
    assert len(await charges(world, invoice)) == count
    assert len(await world.events("invoice.issued")) == count
    assert len(await world.events("invoice.issue_failed")) == refused
    assert await world.broken() == []


@pytest.mark.faults
@pytest.mark.usefixtures("early_deadline")
@pytest.mark.parametrize(("looking_up", "times"), [*((fault, 1) for fault in FAULTS), ("server_error", 12)])
@pytest.mark.parametrize("creating", ["timeout_before", "timeout_after"])
async def test_a_failed_look_up_decides_nothing(
    world: World, creating: str, looking_up: str, times: int
) -> None:
    """[D-33, D-46]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", creating)
    await queue_fault(world, "list_charges", looking_up, times=times)

    await pass_time(world, hours=20)

    issued = await read(world, invoice)
    (charge,) = await charges(world)
    assert (issued["status"], issued["gatewayInvoiceId"]) == ("issued", charge["chargeId"])
    # `invoice.issue_delayed` is emitted after an hour of failures.
    # One failed look-up delays the charge by less than an hour. Twelve delay it by more than an hour.
    # Refused credentials are reported immediately.
    is_delayed = times == 12 or looking_up == "unauthorized"
    assert len(await world.events("invoice.issue_delayed")) == is_delayed
    assert await world.broken() == []


@pytest.mark.faults
@pytest.mark.usefixtures("early_deadline")
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failed_poll_is_repeated(world: World, fault: str) -> None:
    """[D-35 polling, D-46]"""
    invoice = await ready_invoice(world)
    await world.run("issuance")
    await pass_time(world, days=2, hours=11, minutes=50)
    await queue_fault(world, "get_charge", fault, times=5)

    await world.advance(invoice["dueDate"])
    assert (await read(world, invoice))["status"] == "issued"

    await pass_time(world, hours=2)
    assert (await read(world, invoice))["status"] == "paid"
    assert len(await world.events("invoice.paid")) == 1
    assert len(await world.events("invoice.overdue", "invoice.canceled")) == 0
    assert [charge["status"] for charge in await charges(world)] == ["paid"]


@pytest.mark.faults
@pytest.mark.usefixtures("early_deadline")
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failed_mirroring_is_repeated(world: World, fault: str) -> None:
    """[spec 2.2 mirroring, D-46]"""
    await world.set_up_gateway(productCatalog=True)
    await queue_fault(world, "create_product", fault, times=3)

    product = await world.product(name="Gold")
    await pass_time(world, hours=1)

    mirrored = (await world.get("/v1/sandbox/products")).json["data"]
    assert [each["productId"] for each in mirrored] == ([] if fault == "rejected" else [product["id"]])


@pytest.mark.parametrize("fault", ["timeout_before", "server_error"])
async def test_a_charge_is_believed_absent_after_two_empty_look_ups_a_minute_apart(
    world: World, fault: str
) -> None:
    """An empty look-up does not count if it runs less than 80 s after the request for the charge. [D-33]"""
    await ready_invoice(world)
    await queue_fault(world, "create_charge", fault)
    await queue_fault(world, "create_charge", "rejected")  # refuses the second request
    await world.run("issuance")
    seen: list[tuple[str, int]] = []
    for seconds in (6, 76, 55, 10):
        await pass_time(world, seconds=seconds)
        (attempt,) = await stored_charges(world)
        seen.append((attempt["stage"], attempt["empty_lookups"]))

    assert seen == [("unknown", 0), ("unknown", 1), ("unknown", 1), ("failed", 0)]
    assert len(await world.events("invoice.issue_failed")) == 1


async def test_a_charge_that_appears_late_is_found_by_the_second_look_up(world: World) -> None:
    """[D-33]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_before")
    await world.run("issuance")
    await pass_time(world, seconds=10)
    await _appear(world, invoice, amount_cents=9990)

    await pass_time(world, hours=1)

    assert (await read(world, invoice))["gatewayInvoiceId"] == LATE
    assert [charge["chargeId"] for charge in await charges(world)] == [LATE]


async def test_a_found_charge_with_another_amount_waits_for_a_person(world: World) -> None:
    """[D-33]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_before")
    await world.run("issuance")
    await _appear(world, invoice, amount_cents=999)

    await pass_time(world, days=2)

    assert (await read(world, invoice))["status"] == "ready"
    (emitted,) = await world.events("invoice.issue_failed")
    assert emitted["data"]["error"]["code"] == "amount_differs"
    assert emitted["data"]["error"]["gatewayInvoiceId"] == LATE
    assert [charge["chargeId"] for charge in await charges(world)] == [LATE]


LATE = f"sbx_{0:032x}"


async def _appear(world: World, invoice: Json, *, amount_cents: int) -> None:
    """Insert a charge of the invoice into the gateway's storage. The engine has no record of this charge."""
    await world.sql(
        """
        INSERT INTO sandbox_charge (account_id, charge_id, connection_id, invoice_id, attempt, amount_cents,
            currency, payment_method, due_date, status, created_at)
        VALUES ($1, $2, $3::text::uuid, $4::text::uuid, 1, $5, 'BRL', 'pix', $6::text::date, 'open', now())
        """,
        world.account_id,
        LATE,
        await connection_id(world),
        invoice["id"],
        amount_cents,
        invoice["dueDate"],
    )


@pytest.mark.parametrize(
    ("stopped_at", "charges_made"),
    [("sandbox_charge", 0), ("account_counter", 1)],
    ids=["calling", "recording"],
)
async def test_a_worker_that_dies_during_a_call_leaves_one_charge(
    world: World, stopped_at: str, charges_made: int
) -> None:
    """Before another worker sends a new request, it looks up the charge at the gateway. [D-33]"""
    invoice = await ready_invoice(world)
    async with table_held(world, stopped_at):
        dying = asyncio.create_task(world.run("issuance"))
        await until_waiting(world)
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
    assert (await read(world, invoice))["status"] == "ready"
    assert [each["stage"] for each in await stored_charges(world)] == ["sending"]
    assert len(await charges(world)) == charges_made

    await world.run("issuance")
    assert (await read(world, invoice))["status"] == "ready"  # the dead worker's lease has not expired
    await end_leases(world)
    await pass_time(world, minutes=5)

    (charge,) = await charges(world)
    assert (await read(world, invoice))["gatewayInvoiceId"] == charge["chargeId"]
    assert await world.broken() == []


async def test_two_look_ups_are_a_minute_apart_on_the_account_s_clock(world: World) -> None:
    """[D-33]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "server_error")

    await pass_time(world, minutes=10)

    issued = await read(world, invoice)
    took = datetime.fromisoformat(issued["issuedAt"]) - datetime.fromisoformat(issued["createdAt"])
    # The first look-up that counts runs 80 s (LOOKUP_COUNTS_AFTER) after the request. The second look-up runs 60 s
    # after the first.
    assert 140 <= took.total_seconds() < 145


STATUS_OF = {
    "open": {"issued", "overdue"},
    "paid": {"paid"},
    "refunded": {"paid"},
    "refused": {"overdue"},
    "canceled": {"canceled"},
}
"""An invoice's possible statuses, by the status of its charge."""


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(4))
async def test_charges_and_invoices_agree_after_random_faults(world: World, seed: int) -> None:
    """[D-33, D-46]"""
    chance = random.Random(seed)  # noqa: S311 - a repeatable sequence, no secret
    await world.set_up_gateway(behaviour=("pay_on_due", "pay_at_once", "never_pay", "refuse")[seed])
    plan = await world.plan()
    for _ in range(6):
        await world.enroll(plan, chargeDay=chance.randint(1, 28))

    for _ in range(15):
        operation = chance.choice(["create_charge", "get_charge", "list_charges"])
        await queue_fault(world, operation, chance.choice(FAULTS[:-2]), times=chance.randint(1, 4))
        deeds = [
            world.post(f"/v1/sandbox/charges/{each['chargeId']}/{deed}")
            for each in await charges(world)
            if (deed := chance.choice(["pay", "refuse", "cancel", "refund", "wait", "wait"])) != "wait"
        ]
        await asyncio.gather(*deeds, *(run_until_idle(world.deps, ENGINE) for _ in range(3)))
        await pass_time(world, days=chance.choice([0.01, 0.1, 1, 5]))
    await pass_time(world, days=10)

    found = {each["id"]: each["status"] for each in await world.invoices()}
    made = await charges(world)
    assert sorted(each["invoiceId"] for each in made) == sorted(found)
    assert [each for each in made if found[each["invoiceId"]] not in STATUS_OF[each["status"]]] == []
    # Count the refunds, not the charges with the status `refunded`: a charge that is paid after its
    # cancellation keeps the status `canceled` when it is refunded.
    refunds = """SELECT FROM sandbox_charge WHERE entries @> '[{"kind": "refund"}]'"""
    assert len(await world.events("invoice.refunded")) == len(await world.sql(refunds))
    assert await world.broken() == []


async def test_a_payment_of_a_charge_with_unknown_outcome_is_recorded(world: World) -> None:
    """[D-50, D-33]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    (charge,) = await charges(world, invoice)
    await world.made(f"/v1/sandbox/charges/{charge['chargeId']}/pay", {"amountCents": 1})
    assert (await read(world, invoice))["status"] == "ready"

    await pass_time(world, minutes=5)
    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"], found["paidCents"]) == (
        "issued",
        charge["chargeId"],
        1,
    )
