"""The only known charge cannot be paid or cannot be read, so the engine searches for others (D-162, D-181)."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import (
    Charge,
    GatewayError,
    InvalidAnswerError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from tests.scenarios.reconciliation.test_scheduled_looks import looked_at, notify
from tests.support.sandbox_steps import (
    charges,
    end_leases,
    pass_time,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
    stored_charges,
)
from tests.support.sweep_steps import NO_SWEEP, show_expired, show_payment, two_charges
from tests.support.webhook_steps import SECRET
from tests.support.world import Json, World

pytestmark = pytest.mark.faults


async def lost_charge(world: World) -> tuple[Json, str]:
    """Return an invoice whose answer was lost, and the id of its only charge at the gateway."""
    await world.set_up_gateway(behaviour="never_pay", webhookSecret=SECRET)
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    [lost] = await charges(world)
    await world.sql(NO_SWEEP)
    return invoice, lost["chargeId"]


async def name_charge(world: World, charge_id: str) -> None:
    """Let a webhook name an open charge, which the invoice may then adopt."""
    await notify(world, charge_id)
    await end_leases(world)
    await looked_at(world)


def fail_searches(monkeypatch: pytest.MonkeyPatch, error: GatewayError) -> None:
    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        raise error

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)


def _fail_reads(monkeypatch: pytest.MonkeyPatch, unreadable: str) -> None:
    get = SandboxGateway.get_charge

    async def get_charge(self: SandboxGateway, charge_id: str) -> Charge:
        if charge_id == unreadable:
            raise InvalidAnswerError("the detail is invalid")
        return await get(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)


@pytest.mark.parametrize("error", [TransientError("down"), InvalidAnswerError("broken")])
async def test_a_payment_of_a_closed_charge_is_recorded_although_no_search_works(
    world: World, monkeypatch: pytest.MonkeyPatch, error: GatewayError
) -> None:
    """A webhook names the only charge. Then the charge expires, and the gateway shows its payment. [D-162, D-181]"""
    invoice, lost = await lost_charge(world)
    show_expired(monkeypatch, lost)
    fail_searches(monkeypatch, error)
    await show_payment(world, lost)
    await notify(world, lost)
    await looked_at(world)
    await pass_time(world, days=2)
    assert (await read(world, invoice))["paidCents"] == 9990


async def test_a_part_payment_cancels_no_invoice_while_no_search_works(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook names one of two charges. The named charge has a part payment and is canceled. The other charge is
    open. The detail of `invoice.issue_delayed` names the known charge. [D-34, D-181]
    """
    invoice, named, other = await two_charges(world, webhookSecret=SECRET)
    await world.sql(NO_SWEEP)
    await name_charge(world, named)
    await show_payment(world, named, cents=4000)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled' WHERE charge_id = $1", named)
    with monkeypatch.context() as patched:
        fail_searches(patched, InvalidAnswerError("broken"))
        await pass_time(world, days=1)
    found = await read(world, invoice)
    assert (found["status"], found["paidCents"]) == ("ready", 4000)
    [delayed] = await world.events("invoice.issue_delayed")
    assert named in delayed["data"]["error"]["detail"]

    await pass_time(world, hours=2)
    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == ("issued", other)


async def test_a_listed_payment_prevents_another_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook names the only charge. The list shows its payment, but reads of it fail. A person retries.
    [D-113, D-181]
    """
    invoice, lost = await lost_charge(world)
    await name_charge(world, lost)
    await pay_silently(world, lost)
    _fail_reads(monkeypatch, lost)
    await pass_time(world, days=2)
    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    await pass_time(world, days=1)
    assert (await read(world, invoice))["paidCents"] == 9990
    assert [each["chargeId"] for each in await charges(world)] == [lost]


async def test_a_listed_part_payment_of_a_canceled_charge_cancels_no_invoice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook names the only charge. The list shows it as canceled with a part payment, but reads of it fail. The
    engine asks a person. [D-170, D-181]
    """
    invoice, lost = await lost_charge(world)
    await name_charge(world, lost)
    await show_payment(world, lost, cents=4000)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled' WHERE charge_id = $1", lost)
    _fail_reads(monkeypatch, lost)
    await pass_time(world, days=2)
    found = await read(world, invoice)
    assert (found["status"], found["issueError"]["code"], found["paidCents"]) == (
        "ready",
        "charge_missing",
        4000,
    )
    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    assert [each["amount_cents"] for each in await stored_charges(world)] == [9990, 5990]


@pytest.mark.parametrize(
    "answer",
    [
        NotFoundError("unknown reference"),
        PermanentError("bad_request", "one 400"),
        TransientError("one 503"),
        None,
    ],
)
@pytest.mark.parametrize("other_state", ["open", "paid"])
async def test_one_search_without_a_result_cancels_no_invoice(
    world: World, monkeypatch: pytest.MonkeyPatch, other_state: str, answer: GatewayError | None
) -> None:
    """A webhook names one of two charges, which the merchant cancels as a duplicate. The first search shows nothing,
    or fails. [D-33, D-162, D-181]
    """
    invoice, named, other = await two_charges(world, webhookSecret=SECRET)
    await world.sql(NO_SWEEP)
    if other_state == "paid":
        await pay_silently(world, other)
    find, count = SandboxGateway.find_charges, [0]

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        count[0] += 1
        if count[0] > 1:
            return await find(self, invoice_id, attempt)
        if answer is not None:
            raise answer
        return []

    await name_charge(world, named)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled' WHERE charge_id = $1", named)
    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, days=2)
    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == (
        "issued" if other_state == "open" else "paid",
        other,
    )


async def test_the_invoice_adopts_a_closed_charge_after_two_searches_without_a_result(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook names the only charge, which a person has canceled. The gateway refuses all searches. [D-27, D-181]"""
    invoice, lost = await lost_charge(world)
    await name_charge(world, lost)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled'")
    fail_searches(monkeypatch, PermanentError("no", "not allowed"))
    await pass_time(world, seconds=100)
    assert (await read(world, invoice))["status"] == "ready"
    await pass_time(world, minutes=10)
    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == ("canceled", lost)
