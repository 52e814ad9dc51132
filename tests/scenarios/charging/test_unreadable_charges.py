"""Late look-ups search for charges, some of which the gateway shows wrongly or does not show (D-125, D-181).

A charge is *invalid* while the gateway's answers about it are invalid, for example `paid` without a payment.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, ChargeState, InvalidAnswerError, PermanentError, TransientError
from fatura.usecases.charging import gateway_calls
from tests.scenarios.reconciliation.test_scheduled_looks import looked_at, notify, other_calls_succeed
from tests.support.sandbox_steps import (
    cancel,
    charge_statuses,
    charges,
    issued_invoice,
    pass_time,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
)
from tests.support.sweep_steps import (
    NO_SWEEP,
    double_silently,
    hide_payment,
    missing_charges,
    show_payment,
    sweep,
    two_charges,
)
from tests.support.webhook_steps import SECRET
from tests.support.world import Json, World

pytestmark = pytest.mark.faults


def _count_calls(monkeypatch: pytest.MonkeyPatch, *, error: Exception | None = None) -> list[str]:
    """Return a list that records `find` for each search and `get` for each read. Searches raise a given `error`."""
    find, get, calls = SandboxGateway.find_charges, SandboxGateway.get_charge, list[str]()

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        calls.append("find")
        if error is not None:
            raise error
        return await find(self, invoice_id, attempt)

    async def get_charge(self: SandboxGateway, charge_id: str) -> Charge:
        calls.append("get")
        return await get(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)
    return calls


def _fail_first_read(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    get, count = SandboxGateway.get_charge, [0]

    async def get_charge(self: SandboxGateway, charge_id: str) -> Charge:
        if charge_id == failing:
            count[0] += 1
            if count[0] == 1:
                raise TransientError("one 503")
        return await get(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)


async def _named_as_missing(world: World) -> list[str]:
    errors = [each["data"]["error"] for each in await world.events("invoice.issue_failed")]
    return [each["gatewayInvoiceId"] for each in errors if each["code"] == "charge_missing"]


async def _canceled_with_invalid_charge(world: World) -> Json:
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    assert (await cancel(world, invoice)).status == 200
    await world.sql(NO_SWEEP)
    await hide_payment(world, invoice["gatewayInvoiceId"])
    return invoice


async def test_pauses_grow_while_the_own_charge_is_invalid(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charge of a canceled invoice stays invalid. After a day, one event `invoice.issue_failed` names the charge.
    [D-125]
    """
    invoice = await _canceled_with_invalid_charge(world)
    await pass_time(world, hours=20)
    assert await _named_as_missing(world) == []
    await pass_time(world, days=2)
    calls = _count_calls(monkeypatch)
    await pass_time(world, days=3)
    assert 1 <= calls.count("find") <= 4
    assert await _named_as_missing(world) == [invoice["gatewayInvoiceId"]]
    assert await world.broken() == []


async def test_look_ups_of_an_invalid_charge_end_after_400_days(world: World) -> None:
    """The charge of a canceled invoice stays invalid. [D-125]"""
    await _canceled_with_invalid_charge(world)
    await pass_time(world, days=3)
    [planned] = await world.sql("SELECT next_check_at FROM late_charge_check")
    assert planned["next_check_at"] is not None
    await world.sql("UPDATE late_charge_check SET incomplete_since = incomplete_since - interval '400 days'")
    await pass_time(world, days=2)
    [planned] = await world.sql("SELECT next_check_at FROM late_charge_check")
    assert planned["next_check_at"] is None


async def test_pauses_grow_after_a_person_retried(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt ended as `charge_missing`, and a person retried. The new charge is paid, and the old one stays
    invalid. [D-113, D-125]
    """
    invoice, one, hidden = await missing_charges(world)
    await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", one)
    assert (await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")).status == 200
    await pay_silently(world, (await read(world, invoice))["gatewayInvoiceId"])
    await pass_time(world, days=3)
    calls = _count_calls(monkeypatch)
    await pass_time(world, days=3)
    assert len(calls) <= 15
    assert await _named_as_missing(world) == [hidden]


async def test_an_invalid_copy_of_an_adopted_charge_is_reported_after_a_day(world: World) -> None:
    """After an hour, the invoice adopts the valid charge. On the fourth day, the gateway shows the payment of the other
    charge. [D-125, D-181]
    """
    invoice, valid, hidden = await two_charges(world)
    await hide_payment(world, hidden)
    await world.sql(NO_SWEEP)
    await pass_time(world, hours=20)
    assert (await read(world, invoice))["gatewayInvoiceId"] == valid
    assert await _named_as_missing(world) == []
    await pass_time(world, days=3)
    assert await _named_as_missing(world) == [hidden]
    await show_payment(world, hidden)
    await pass_time(world, days=2)
    assert (await read(world, invoice))["paidCents"] == 9990


@pytest.mark.parametrize(
    "error", [PermanentError("no", "not allowed"), InvalidAnswerError("broken"), TransientError("down")]
)
async def test_look_ups_whose_search_never_works_become_rare(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A webhook names the charge, and the invoice adopts it. Each search is refused or fails. [D-125, D-162]"""
    await world.set_up_gateway(behaviour="never_pay", webhookSecret=SECRET)
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    [lost] = await charges(world)
    await world.sql(NO_SWEEP)
    calls = _count_calls(monkeypatch, error=error)
    await notify(world, lost["chargeId"])
    await looked_at(world)
    await pass_time(world, days=2)
    assert (await read(world, invoice))["status"] == "issued"
    await pass_time(world, days=2)
    calls.clear()
    await pass_time(world, days=3)
    assert calls.count("find") <= 4


async def test_a_charge_whose_last_read_got_no_answer_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt waits as `charge_missing`. Before the last late look-up, the canceled charge becomes payable. The
    look-up's read of this charge gets no answer. [D-125, D-181]
    """
    invoice, one, hidden = await missing_charges(world, webhookSecret=SECRET)
    await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", hidden)
    await pass_time(world, hours=8)
    await world.sql("UPDATE sandbox_charge SET status = 'open' WHERE charge_id = $1", one)
    _fail_first_read(monkeypatch, one)
    await pass_time(world, days=2)
    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == ("issued", one)


@pytest.mark.parametrize("has_sweep", [True, False])
async def test_a_payment_is_recorded_although_one_read_gets_no_answer(
    world: World, monkeypatch: pytest.MonkeyPatch, *, has_sweep: bool
) -> None:
    """The attempt waits as `charge_missing`. The payer pays the canceled charge before the last late look-up.
    [D-125, D-181]
    """
    invoice, one, hidden = await missing_charges(world)
    await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", hidden)
    await pass_time(world, hours=8)
    await show_payment(world, one)
    await world.sql("UPDATE sandbox_charge SET status = 'paid' WHERE charge_id = $1", one)
    _fail_first_read(monkeypatch, one)
    await pass_time(world, days=1)
    if has_sweep:
        await sweep(world)
    await pass_time(world, days=5)
    assert (await read(world, invoice))["paidCents"] == 9990


async def test_a_read_that_hangs_hides_no_listed_payment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt waits as `charge_missing`. The list shows a part payment of the canceled charge. The read of the
    other charge hangs. [D-125, D-181]
    """
    invoice, one, hidden = await missing_charges(world)
    await world.sql("UPDATE sandbox_charge SET status = 'open' WHERE charge_id = $1", hidden)
    await show_payment(world, one, cents=4000)
    get = SandboxGateway.get_charge

    async def get_charge(self: SandboxGateway, charge_id: str) -> Charge:
        if charge_id == hidden:
            await asyncio.sleep(60)
        return await get(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)
    monkeypatch.setattr(gateway_calls.port, "CALL_TIMEOUT_SECONDS", 0.5)
    for _ in range(2):
        await world.sql("UPDATE late_charge_check SET next_check_at = '2000-01-01'")
        await world.sql("UPDATE unmatched_charge SET next_look_at = '2900-01-01'")
        await world.run("reconciliation")
        await other_calls_succeed(world)
    assert (await read(world, invoice))["paidCents"] == 4000


@pytest.mark.parametrize("has_copy", [True, False])
@pytest.mark.parametrize("has_sweep", [True, False])
async def test_a_canceled_copy_does_not_end_the_look_ups_of_an_invalid_charge(
    world: World, *, has_copy: bool, has_sweep: bool
) -> None:
    """The payer pays the charge of a canceled invoice. The charge is invalid for 30 hours. With `has_copy`, the list
    also shows a canceled copy of the charge. [D-50, D-125]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    if has_copy:
        await double_silently(world, invoice, status="canceled")
    assert (await cancel(world, invoice)).status == 200
    if not has_sweep:
        await world.sql(NO_SWEEP)
    await hide_payment(world, invoice["gatewayInvoiceId"])
    await pass_time(world, hours=30)
    await show_payment(world, invoice["gatewayInvoiceId"])
    await pass_time(world, days=4)
    assert (await read(world, invoice))["paidCents"] == 9990


async def test_a_charge_that_only_the_list_shows_wrongly_is_read_by_its_id(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The payer pays the charge of a canceled invoice. The list never shows the payment. [D-50, D-125]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    copy = await double_silently(world, invoice)
    await world.sql(NO_SWEEP)
    assert (await cancel(world, invoice)).status == 200
    await show_payment(world, invoice["gatewayInvoiceId"])
    find = SandboxGateway.find_charges

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        found = await find(self, invoice_id, attempt)
        return [replace(each, state=ChargeState.PAID, entries=()) for each in found]

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, days=4)
    assert (await read(world, invoice))["paidCents"] == 9990
    assert (await charge_statuses(world))[copy] == "canceled"
    assert await _named_as_missing(world) == []
    planned = await world.sql("SELECT FROM late_charge_check WHERE next_check_at IS NOT NULL")
    assert planned == []
