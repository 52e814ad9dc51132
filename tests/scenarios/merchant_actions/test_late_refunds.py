"""Refunds that the gateway makes after the engine has recorded them as failed."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Capabilities, Charge, RefundRequest, RefundState, UnknownOutcomeError
from tests.support.refund_steps import paid_invoice, refund, refunded_at_gateway, slow
from tests.support.sandbox_steps import pass_time, queue_fault, read
from tests.support.world import Json, World


@pytest.fixture
async def paid(world: World) -> Json:
    return await paid_invoice(world)


class LateGateway:
    """A gateway that does not deduplicate refunds, and loses the first request for a refund.

    When the test calls `make_the_lost_one`, the gateway makes the lost refund after all.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lost: tuple[SandboxGateway, RefundRequest] | None = None
        self.sent: list[UUID] = []
        self._refund_charge = SandboxGateway.refund_charge
        capabilities, late = SandboxGateway.capabilities, self

        def only_looks_up(gateway: SandboxGateway) -> Capabilities:
            return replace(capabilities(gateway), refunds="lookup")

        async def refund_charge(gateway: SandboxGateway, request: RefundRequest) -> Charge:
            late.sent.append(request.refund_id)
            if late.lost is None:
                late.lost = gateway, request
                raise UnknownOutcomeError("no answer")
            return await late._refund_charge(gateway, request)

        monkeypatch.setattr(SandboxGateway, "capabilities", only_looks_up)
        monkeypatch.setattr(SandboxGateway, "refund_charge", refund_charge)

    async def make_the_lost_one(self) -> None:
        assert self.lost is not None
        await self._refund_charge(*self.lost)


@pytest.mark.parametrize("amount_cents", [4000, 9990])
@pytest.mark.parametrize("found_by", ["look-up", "poll"])
async def test_a_late_refund_replaces_the_next_one(
    world: World, paid: Json, monkeypatch: pytest.MonkeyPatch, amount_cents: int, found_by: str
) -> None:
    """[D-151 late]"""
    late = LateGateway(monkeypatch)
    assert (await refund(world, paid, amountCents=amount_cents)).status == 202
    await pass_time(world, minutes=5)
    assert (await read(world, paid))["refunds"][0]["error"]["code"] == "not_made"
    if found_by == "poll":
        await queue_fault(world, "get_charge", "server_error")
        assert (await refund(world, paid, amountCents=amount_cents, key="second")).status == 202
    await late.make_the_lost_one()
    if found_by == "poll":
        await world.sql("UPDATE invoice SET next_attempt_at = created_at")
        await world.run("reconciliation")

    answer = await refund(world, paid, amountCents=amount_cents, key="second")

    after = await read(world, paid)
    assert (answer.status, answer.type) == (422, "engine.refund_refused")
    assert answer.json["meta"]["code"] == "made_late"
    assert ([each["status"] for each in after["refunds"]], after["refundedCents"]) == (
        ["done", "failed"],
        amount_cents,
    )
    assert (await refunded_at_gateway(world), len(late.sent)) == ([amount_cents], 1)
    if amount_cents == 4000:
        assert (await refund(world, paid, key="rest")).status == 200
        assert sorted(await refunded_at_gateway(world)) == [4000, 5990]
    assert await world.broken() == []


@pytest.mark.faults
@pytest.mark.parametrize("made_after_hours", [1, 12])
async def test_a_refund_that_is_made_after_it_failed_is_found(
    world: World, paid: Json, monkeypatch: pytest.MonkeyPatch, made_after_hours: int
) -> None:
    """No poll of the charge is scheduled. While the gateway works on the refund, the look-ups continue. [D-151 late]"""
    get_charge = SandboxGateway.get_charge
    late = LateGateway(monkeypatch)
    assert (await refund(world, paid)).status == 202
    await pass_time(world, minutes=5)
    assert (await read(world, paid))["refunds"][0]["error"]["code"] == "not_made"
    await world.sql("UPDATE invoice SET next_attempt_at = NULL")
    await pass_time(world, hours=made_after_hours)
    await late.make_the_lost_one()
    monkeypatch.setattr(SandboxGateway, "get_charge", slow(RefundState.PENDING, get_charge))
    await pass_time(world, hours=26)
    assert (await read(world, paid))["refunds"][0]["status"] == "failed"
    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)

    await pass_time(world, hours=2)

    after = await read(world, paid)
    assert ([each["status"] for each in after["refunds"]], after["refundedCents"]) == (["done"], 9990)
    assert await world.broken() == []


async def test_look_ups_of_a_failed_refund_end_after_a_day(
    world: World, paid: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-151 late]"""
    LateGateway(monkeypatch)
    await refund(world, paid)
    await pass_time(world, minutes=5)
    (row,) = await world.sql("SELECT next_attempt_at - closed_at AS after FROM refund_request")
    assert row["after"] == timedelta(minutes=10)

    await pass_time(world, hours=25)

    (row,) = await world.sql("SELECT stage, next_attempt_at FROM refund_request")
    assert (row["stage"], row["next_attempt_at"]) == ("failed", None)
    assert await world.broken() == []


async def test_a_refund_after_one_of_unknown_outcome_waits_for_a_look_up(
    world: World, paid: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second refund is sent only after a successful look-up that does not show the first refund. [D-151 late]"""
    late = LateGateway(monkeypatch)
    await refund(world, paid)
    await pass_time(world, minutes=5)
    await queue_fault(world, "get_charge", "server_error")
    assert (await refund(world, paid, key="second")).status == 202
    assert len(late.sent) == 1

    await pass_time(world, minutes=5)

    after = await read(world, paid)
    assert [each["status"] for each in after["refunds"]] == ["failed", "done"]
    assert (len(late.sent), await refunded_at_gateway(world)) == (2, [9990])
    assert await world.broken() == []
