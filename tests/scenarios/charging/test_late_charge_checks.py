"""Fatura finds a charge that a gateway created long after the call, emits an event and cancels the charge (D-125)."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, ChargeState, InvalidAnswerError, NotFoundError, PermanentError
from fatura.usecases.charging import late_charge_checks, outcomes
from fatura.usecases.charging.gateway_calls import FoundCharges, GatewayCall
from fatura.usecases.payments import second_charges
from fatura.usecases.transaction import in_transaction, load_account
from tests.support.captured_logs import captured_logs
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.sandbox_steps import (
    believed_absent,
    charges,
    connection_id,
    fail_for,
    park,
    pass_time,
    queue_fault,
    read,
    ready_invoice,
    stored_charges,
)
from tests.support.sweep_steps import double_silently, sweep
from tests.support.world import Json, World

LATE = f"sbx_{0xF << 124:032x}"


async def _appear(world: World, invoice: Json, *, status: str, amount_cents: int = 9990) -> None:
    """Insert a charge into the gateway's storage, as if the first request had arrived late."""
    await world.sql(
        """
        INSERT INTO sandbox_charge (account_id, charge_id, connection_id, invoice_id, attempt, amount_cents,
            currency, payment_method, due_date, status, entries, created_at)
        SELECT $1, $2, $3::text::uuid, $4::text::uuid, 1, $6, 'BRL', 'pix', b.due_date, $5::text,
            CASE $5::text WHEN 'paid' THEN jsonb_build_array(jsonb_build_object('kind', 'payment',
                'reference', 'late', 'amount_cents', $6::bigint, 'occurred_at', b.created_at)) ELSE '[]' END,
            b.created_at + interval '1 second'
        FROM (SELECT v.due_date, v.created_at FROM invoice v WHERE v.account_id = $1) b
        """,
        world.account_id,
        LATE,
        await connection_id(world),
        invoice["id"],
        status,
        amount_cents,
    )


async def _shown_as_expired(self: SandboxGateway, charge_id: str) -> Charge:
    return replace(await self.get_charge(charge_id), state=ChargeState.EXPIRED)


async def _second_charges(world: World) -> list[str]:
    alerts = await world.events("invoice.issue_failed")
    assert all(each["data"]["error"]["code"] == "second_charge" for each in alerts)
    return [each["data"]["error"]["gatewayInvoiceId"] for each in alerts]


async def test_a_late_second_charge_is_canceled_and_emitted_once(world: World) -> None:
    """[D-33, D-125]"""
    invoice = await believed_absent(world)
    known = (await read(world, invoice))["gatewayInvoiceId"]
    assert known is not None
    await _appear(world, invoice, status="open")

    await pass_time(world, days=1, hours=2)

    states = {each["chargeId"]: each["status"] for each in await charges(world)}
    assert states == {known: "open", LATE: "canceled"}
    assert (await read(world, invoice))["gatewayInvoiceId"] == known
    assert await _second_charges(world) == [LATE]
    assert await world.broken() == []


async def test_a_failed_cancellation_is_repeated_after_ten_minutes(world: World) -> None:
    """[D-33, D-125]"""
    invoice = await believed_absent(world)
    await pass_time(world, minutes=20)
    await _appear(world, invoice, status="open")
    await queue_fault(world, "cancel_charge", "timeout_before", times=3)

    await pass_time(world, hours=1, minutes=45)

    assert sorted(each["status"] for each in await charges(world)) == ["canceled", "open"]
    assert await _second_charges(world) == [LATE]


@pytest.mark.faults
async def test_a_refused_cancellation_is_repeated_ever_more_rarely(world: World) -> None:
    """[D-125]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await believed_absent(world)
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    await _appear(world, invoice, status="open")
    await fail_for(world, "cancel_charge", "rejected", seconds=3600)
    with captured_logs() as logs:
        await pass_time(world, days=4)
    assert logs.getvalue().count("second_charge_not_canceled") == 12
    assert await _second_charges(world) == [LATE]

    await world.sql("UPDATE unmatched_charge SET found_at = found_at - interval '400 days'")
    await pass_time(world, days=4)
    assert await world.sql("SELECT FROM late_charge_check WHERE next_check_at IS NOT NULL") == []


@pytest.mark.faults
async def test_checks_without_an_answer_do_not_count(world: World) -> None:
    """[D-125]"""
    invoice = await believed_absent(world)
    await fail_for(world, "list_charges", "rate_limited", seconds=24 * 3600)
    await pass_time(world, hours=24)
    assert (await world.delete(f"/v1/sandbox/faults?connectionId={await connection_id(world)}")).status < 300
    await pass_time(world, hours=2)
    await _appear(world, invoice, status="open")

    await pass_time(world, hours=6)

    assert sorted(each["status"] for each in await charges(world)) == ["canceled", "open"]
    assert await _second_charges(world) == [LATE]


async def test_the_last_check_is_repeated_if_its_answer_is_not_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-33, D-125]"""
    invoice = await believed_absent(world)
    await pass_time(world, hours=23)
    await _appear(world, invoice, status="open")

    async def dies(*_: object) -> None:
        raise RuntimeError("the worker dies")

    with monkeypatch.context() as patched:
        patched.setattr(outcomes, "record", dies)
        await pass_time(world, hours=1, minutes=10)
    assert {each["status"] for each in await charges(world)} == {"open"}

    await pass_time(world, minutes=15)
    assert sorted(each["status"] for each in await charges(world)) == ["canceled", "open"]
    await pass_time(world, days=3)
    assert await _second_charges(world) == [LATE]


@pytest.mark.parametrize(("status", "unexpected"), [("open", 0), ("paid", 1)])
async def test_a_late_charge_of_a_canceled_invoice_is_canceled_or_emitted(
    world: World, status: str, unexpected: int
) -> None:
    """[D-27 payment unexpected, D-125]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    for fault in ("timeout_before", "rate_limited"):
        await queue_fault(world, "create_charge", fault)
    await world.run("issuance")
    for seconds in (81, 61):
        await pass_time(world, seconds=seconds)
    assert (await world.post(f"/v1/invoices/{invoice['id']}/cancel")).status == 200
    await _appear(world, invoice, status=status)

    await pass_time(world, days=1, hours=2)

    (charge,) = await charges(world)
    assert charge["status"] == ("canceled" if status == "open" else "paid")
    assert len(await world.events("invoice.payment_unexpected")) == unexpected
    assert await _second_charges(world) == [LATE]
    assert await world.broken() == []


async def test_late_checks_keep_the_reason_of_a_stopped_invoice(world: World) -> None:
    """[D-33, D-34, D-125]"""
    invoice = await ready_invoice(world)
    for _ in range(2):
        await queue_fault(world, "create_charge", "timeout_before")
    await world.run("issuance")
    for seconds in (81, 61):
        await pass_time(world, seconds=seconds)
    await _appear(world, invoice, status="open", amount_cents=999)
    await pass_time(world, minutes=5)
    stopped = await read(world, invoice)
    assert (stopped["status"], stopped["issueError"]["code"]) == ("ready", "amount_differs")

    await pass_time(world, days=2)

    checked = await read(world, invoice)
    assert (checked["status"], checked["issueError"]["code"]) == ("ready", "amount_differs")
    assert "stopped_issuance_has_error" not in await world.broken()


async def test_a_parked_charge_with_another_amount_is_reported_once(world: World) -> None:
    """The gateway has two charges with wrong amounts, and each sweep starts new late look-ups. After `retry-issuance`,
    Fatura reports both charges as second charges. [D-125, D-170]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await park(world)
    await _appear(world, invoice, status="open", amount_cents=998)
    wrong = [each["chargeId"] for each in await charges(world)]
    for _ in range(2):
        await sweep(world)
        await pass_time(world, days=2)

    errors = [each["data"]["error"] for each in await world.events("invoice.issue_failed")]
    assert [each["code"] for each in errors] == ["amount_differs"] * 2
    assert all(sum(charge_id in each["detail"] for each in errors) == 1 for charge_id in wrong)

    assert (await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")).status == 200
    await sweep(world)
    errors = [each["data"]["error"] for each in (await world.events("invoice.issue_failed"))[2:]]
    assert sorted(each["gatewayInvoiceId"] for each in errors) == sorted(wrong)
    assert await world.broken() == []


async def test_a_charge_that_is_parked_while_issuance_retries_is_not_sent_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt to issue the invoice fails while a late look-up finds a charge with a wrong amount. [D-33, D-34]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_before")
    await queue_fault(world, "create_charge", "rate_limited", times=2)
    await world.run("issuance")
    for seconds in (81, 61):
        await pass_time(world, seconds=seconds)
    assert [each["stage"] for each in await stored_charges(world)] == ["absent"]
    await _appear(world, invoice, status="open", amount_cents=999)
    await world.sql("UPDATE late_charge_check SET next_check_at = '2000-01-01'")
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    find_charges = late_charge_checks._find_charges

    async def during_issuance(call: GatewayCall) -> FoundCharges | None:
        found = await find_charges(call)
        await world.run("issuance")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(late_charge_checks, "_find_charges", during_issuance)
        await world.run("reconciliation")
    assert [each["stage"] for each in await stored_charges(world)] == ["parked"]
    other = await ready_invoice(world)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at WHERE next_attempt_at IS NOT NULL")
    await world.run("issuance")

    assert (await read(world, other))["status"] == "issued"
    stopped = await read(world, invoice)
    assert (stopped["status"], stopped["issueError"]["code"]) == ("ready", "amount_differs")
    assert [each["chargeId"] for each in await charges(world, invoice)] == [LATE]
    assert await world.sql("SELECT FROM invoice WHERE status = 'ready' AND next_attempt_at IS NOT NULL") == []
    assert "stopped_issuance_has_error" not in await world.broken()


async def test_a_replaced_charge_that_is_payable_again_is_canceled(world: World) -> None:
    """A reissue cancels and replaces the charge. Then the gateway opens the replaced charge again. [D-51, D-125]"""
    invoice = await unpaid_invoice(world)
    await ask(world, invoice)
    await world.run("issuance")
    replaced = invoice["gatewayInvoiceId"]
    await world.sql("UPDATE sandbox_charge SET status = 'open' WHERE charge_id = $1", replaced)

    await pass_time(world, minutes=15)

    states = {each["chargeId"]: each["status"] for each in await charges(world)}
    assert states == {replaced: "canceled", (await read(world, invoice))["gatewayInvoiceId"]: "open"}
    assert await _second_charges(world) == [replaced]
    assert await world.broken() == []


async def test_a_replaced_expired_charge_that_is_payable_again_is_canceled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The invoice is still `ready`, because the gateway refuses the next charge. [D-51, D-125]"""
    invoice = await unpaid_invoice(world)
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    await queue_fault(world, "create_charge", "rejected")
    with monkeypatch.context() as patch:
        patch.setattr(SandboxGateway, "cancel_charge", _shown_as_expired)
        await ask(world, invoice)
    await pass_time(world, minutes=15)

    assert (await read(world, invoice))["status"] == "ready"
    [replaced] = await charges(world, invoice)
    assert replaced["status"] == "canceled"


async def test_an_expired_charge_that_was_not_replaced_is_left_payable(world: World) -> None:
    """Fatura has stored the charge as expired, but the gateway shows it as open. [D-125]"""
    invoice = await unpaid_invoice(world)
    [stored] = await stored_charges(world)
    await world.sql("UPDATE charge SET stage = 'expired', closed_at = confirmed_at")
    account = await load_account(world.deps, world.account_id)
    await in_transaction(world.deps, account, second_charges.plan_checks, [UUID(stored["charge_id"])])
    await pass_time(world, minutes=15)

    assert [each["status"] for each in await charges(world, invoice)] == ["open"]
    assert await world.events("invoice.issue_failed") == []


@pytest.mark.parametrize("error", [PermanentError("gone", "archived"), InvalidAnswerError("no reference")])
async def test_a_second_charge_is_canceled_although_the_known_charge_cannot_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The gateway returns no usable answer about the charge that a reissue has replaced. [D-51, D-125]"""
    invoice = await unpaid_invoice(world)
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    await ask(world, invoice)
    await world.run("issuance")
    replaced = invoice["gatewayInvoiceId"]
    second = await double_silently(world, invoice)
    find_charges, get_charge = SandboxGateway.find_charges, SandboxGateway.get_charge

    async def without_replaced(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        found = await find_charges(self, invoice_id, attempt)
        return [each for each in found if each.charge_id != replaced]

    async def unreadable(self: SandboxGateway, charge_id: str) -> Charge:
        if charge_id == replaced:
            raise error
        return await get_charge(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "find_charges", without_replaced)
    monkeypatch.setattr(SandboxGateway, "get_charge", unreadable)
    await pass_time(world, minutes=15)

    states = {each["chargeId"]: each["status"] for each in await charges(world)}
    assert states[second] == "canceled"
    assert await _second_charges(world) == [second]


async def test_a_late_check_is_empty_if_the_gateway_does_not_know_the_reference(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some gateways answer a search without results with 404. [D-125]"""
    await believed_absent(world)

    async def not_found(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        raise NotFoundError("no such reference")

    monkeypatch.setattr(SandboxGateway, "find_charges", not_found)
    await pass_time(world, days=1, hours=2)

    [checked] = await world.sql("SELECT checks_made, next_check_at FROM late_charge_check")
    assert (checked["checks_made"], checked["next_check_at"]) == (4, None)


async def test_a_second_charge_is_reported_again_after_it_was_canceled(world: World) -> None:
    """The engine has canceled the second charge at the gateway. Then the gateway opens the charge again. [D-125]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await believed_absent(world)
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    await _appear(world, invoice, status="open")
    await pass_time(world, hours=2)
    assert await _second_charges(world) == [LATE]

    await world.sql("UPDATE sandbox_charge SET status = 'open' WHERE charge_id = $1", LATE)
    await pass_time(world, hours=6)
    assert await _second_charges(world) == [LATE] * 2
