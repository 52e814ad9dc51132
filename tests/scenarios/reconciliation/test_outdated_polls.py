"""The merchant reissues an invoice while a poll waits for the gateway, so the answer is about the old charge."""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, ChargeState, NotFoundError, PermanentError
from fatura.usecases.reconciliation import polling
from fatura.usecases.reconciliation.invoice_polls import Poll
from tests.scenarios.merchant_actions.test_refused_later_requests import send
from tests.scenarios.reconciliation.test_missing_charges import FORGET, missing, poll
from tests.support.cancellation_steps import end_requests
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.sandbox_steps import charges, connection_id, now, pass_time, read
from tests.support.world import Json, World

Gateway = dict[str, ChargeState | None]
"""The state that the gateway shows for each charge id. None means that the gateway does not know the charge."""


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Gateway:
    states: Gateway = {}
    get_charge, cancel_charge = SandboxGateway.get_charge, SandboxGateway.cancel_charge

    async def get(gateway: SandboxGateway, charge_id: str) -> Charge:
        state = states.get(charge_id, ChargeState.OPEN)
        if state is None:
            raise NotFoundError("not known")
        found = await get_charge(gateway, charge_id)
        return replace(found, state=state) if charge_id in states else found

    async def cancel(gateway: SandboxGateway, charge_id: str) -> Charge:
        found = await cancel_charge(gateway, charge_id)
        return replace(found, state=ChargeState.EXPIRED) if charge_id in states else found

    monkeypatch.setattr(SandboxGateway, "get_charge", get)
    monkeypatch.setattr(SandboxGateway, "cancel_charge", cancel)
    return states


@contextmanager
def between_answer_and_record(meanwhile: Callable[[], Awaitable[object]]) -> Generator[None]:
    """Call `meanwhile` after the gateway has answered the next poll, and before the answer is recorded."""
    ask_gateway = polling.ask

    async def ask_and_wait(each: Poll) -> Poll:
        answered = await ask_gateway(each)
        patch.undo()
        await meanwhile()
        return answered

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(polling, "ask", ask_and_wait)
        yield


async def reissue(world: World, invoice: Json, *, issues: bool = True) -> None:
    due_date = ((await now(world)).date() + timedelta(days=20)).isoformat()
    assert (await ask(world, invoice, dueDate=due_date)).status == 200
    if issues:
        await world.run("issuance")
        assert (await read(world, invoice))["status"] == "issued"


async def check_still_issued(world: World, invoice: Json) -> None:
    await end_requests(world)
    await pass_time(world, hours=2)
    found = await read(world, invoice)
    assert (found["status"], found["charges"][-1]["status"]) == ("issued", "open")
    at_gateway = {each["chargeId"]: each["status"] for each in await charges(world)}
    assert at_gateway[found["gatewayInvoiceId"]] == "open"


async def expired(world: World, shown: Gateway) -> Json:
    """Return an issued invoice whose charge has expired."""
    invoice = await unpaid_invoice(world)
    shown[invoice["gatewayInvoiceId"]] = ChargeState.EXPIRED
    await poll(world)
    assert (await read(world, invoice))["status"] == "overdue"
    return invoice


async def test_a_missing_charge_is_shown_as_canceled(world: World) -> None:
    """[D-51, D-56, D-27]"""
    invoice = await missing(world)
    await world.sql(FORGET, await connection_id(world))
    await world.sql("UPDATE sandbox_charge SET status = 'canceled'")
    with between_answer_and_record(lambda: reissue(world, invoice)):
        await poll(world)
    await check_still_issued(world, invoice)


async def test_an_expired_charge_is_shown_as_canceled(world: World, shown: Gateway) -> None:
    """[D-51, D-27]"""
    invoice = await expired(world, shown)
    shown[invoice["gatewayInvoiceId"]] = ChargeState.CANCELED
    with between_answer_and_record(lambda: reissue(world, invoice)):
        await poll(world)
    await check_still_issued(world, invoice)


async def test_an_overdue_charge_is_shown_as_paid_in_part(world: World, shown: Gateway) -> None:
    """The charge of the reissue is not due yet, so the invoice is not overdue. [D-51, D-26]"""
    invoice = await expired(world, shown)
    await world.sql("UPDATE account SET clock_offset = clock_offset + interval '5 days'")
    await world.made(f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/pay", {"amountCents": 4000})
    shown[invoice["gatewayInvoiceId"]] = ChargeState.PAID
    with between_answer_and_record(lambda: reissue(world, invoice)):
        await poll(world)
    await check_still_issued(world, invoice)


async def test_an_expired_charge_is_unknown(world: World, shown: Gateway) -> None:
    """The invoice was reissued, so its old charge is not reported as missing. [D-51, D-56]"""
    invoice = await expired(world, shown)
    shown[invoice["gatewayInvoiceId"]] = None
    await poll(world)
    await pass_time(world, hours=0.9)
    await world.sql("UPDATE charge SET unknown_since = unknown_since - interval '1 hour'")
    with between_answer_and_record(lambda: reissue(world, invoice, issues=False)):
        await poll(world)
    assert await world.events("invoice.charge_missing") == []
    await world.run("issuance")
    await check_still_issued(world, invoice)


@pytest.mark.parametrize("action", ["payment", "cancel"])
async def test_a_charge_that_was_canceled_meanwhile_is_not_reported_as_payable(
    world: World, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """The gateway refuses to cancel a charge that is canceled already. [D-185, D-122]"""
    invoice = await unpaid_invoice(world)
    cancel_charge, get_charge = SandboxGateway.cancel_charge, SandboxGateway.get_charge

    async def cancel_once(gateway: SandboxGateway, charge_id: str) -> Charge:
        if (await get_charge(gateway, charge_id)).state is ChargeState.CANCELED:
            raise PermanentError("already_canceled", "The charge is canceled already.")
        return await cancel_charge(gateway, charge_id)

    monkeypatch.setattr(SandboxGateway, "cancel_charge", cancel_once)

    async def act() -> None:
        assert (await send(world, invoice, action, key="a")).status == 200

    with between_answer_and_record(act):
        await poll(world)
    await pass_time(world, hours=1)
    assert await world.events("invoice.issue_failed") == []
    assert await world.broken() == []
