"""The gateway loses a request for a refund, and the repeat is held up for hours.

Then Fatura first looks up the refund. It repeats the request only if enough of the payment is left.
"""

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Capabilities, Charge, RefundRequest, TransientError, UnknownOutcomeError
from fatura.usecases.accounts import suspension
from tests.support.operator import OPERATOR
from tests.support.refund_steps import paid_invoice, refund, refunded_at_gateway
from tests.support.sandbox_steps import move, patch_connection, read
from tests.support.world import Json, World

HELD_BY = ["suspension", "inactive connection", "rate limit"]


class LosingGateway:
    """A gateway that loses the first request for a refund, and whose idempotency keys expire.

    When the test calls `make_the_lost_one`, the gateway makes the lost refund after all. Every later request makes
    another refund, because the gateway has forgotten the key. While `is_limited`, the gateway refuses later requests
    with 429.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_limited = True
        self.calls: list[str] = []
        self._lost: tuple[SandboxGateway, RefundRequest] | None = None
        self._refund_charge, get_charge = SandboxGateway.refund_charge, SandboxGateway.get_charge
        losing = self

        async def refund_charge(gateway: SandboxGateway, request: RefundRequest) -> Charge:
            losing.calls.append("refund")
            if losing._lost is None:
                losing._lost = gateway, request
                raise UnknownOutcomeError("no answer")
            if losing.is_limited:
                raise TransientError("too many requests")
            return await losing._refund_charge(gateway, replace(request, refund_id=uuid4()))

        async def noted(gateway: SandboxGateway, charge_id: str) -> Charge:
            losing.calls.append("look-up")
            return await get_charge(gateway, charge_id)

        monkeypatch.setattr(SandboxGateway, "refund_charge", refund_charge)
        monkeypatch.setattr(SandboxGateway, "get_charge", noted)

    async def make_the_lost_one(self) -> None:
        assert self._lost is not None
        await self._refund_charge(*self._lost)


async def jump(world: World, **duration: float) -> None:
    await world.sql("UPDATE account SET clock_offset = clock_offset + $1::interval", timedelta(**duration))
    await world.run()


async def hold(world: World, by: str) -> None:
    if by == "suspension":
        await suspension.suspend(world.deps, world.account_id, asked_by=OPERATOR)
    elif by == "inactive connection":
        await patch_connection(world, active=False)


async def release(world: World, gateway: LosingGateway, held_by: str) -> None:
    gateway.is_limited = False
    if held_by == "suspension":
        await suspension.resume(world.deps, world.account_id, asked_by=OPERATOR)
    elif held_by == "inactive connection":
        await patch_connection(world, active=True)


@pytest.fixture
async def paid(world: World) -> Json:
    return await paid_invoice(world)


@pytest.fixture
async def losing(world: World, paid: Json, monkeypatch: pytest.MonkeyPatch) -> LosingGateway:
    """Return a gateway that lost a refund of 40.00. A look-up did not find the refund, and the repeat got a 429."""
    gateway = LosingGateway(monkeypatch)
    assert (await refund(world, paid, amountCents=4000)).status == 202
    await jump(world, seconds=20)
    (row,) = await world.sql("SELECT stage, unknown_since IS NOT NULL AS is_unknown FROM refund_request")
    assert (row["stage"], row["is_unknown"]) == ("planned", True)
    assert gateway.calls == ["refund", "look-up", "refund"]
    gateway.calls.clear()
    return gateway


@pytest.mark.parametrize("held_by", HELD_BY)
async def test_a_refund_that_was_held_up_is_looked_up_before_its_repeat(
    world: World, paid: Json, losing: LosingGateway, held_by: str
) -> None:
    """[D-53 lost answer, D-151, D-242]"""
    await hold(world, held_by)
    for _ in range(5):
        await jump(world, hours=1.1)
    calls = losing.calls.copy()
    assert "look-up" in calls
    if held_by == "rate limit":
        assert calls == ["look-up", "refund"] * (len(calls) // 2)
    else:
        assert "refund" not in calls

    await losing.make_the_lost_one()
    await release(world, losing, held_by)
    await jump(world, hours=1.1)

    after = await read(world, paid)
    assert (after["refundedCents"], [each["status"] for each in after["refunds"]]) == (4000, ["done"])
    assert await refunded_at_gateway(world) == [4000]
    assert await world.broken() == []


@pytest.mark.parametrize("held_by", HELD_BY)
async def test_a_refund_that_was_made_late_is_found_while_it_is_held_up(
    world: World, paid: Json, losing: LosingGateway, held_by: str
) -> None:
    """[D-53 lost answer, D-151, D-242]"""
    await hold(world, held_by)
    await losing.make_the_lost_one()

    await jump(world, hours=1.1)

    (row,) = await world.sql("SELECT stage FROM refund_request")
    assert row["stage"] == "done"
    assert await refunded_at_gateway(world) == [4000]


@pytest.mark.parametrize("held_by", ["suspension", "rate limit"])
async def test_a_lost_refund_is_not_repeated_after_a_dispute_has_taken_its_money(
    world: World, paid: Json, losing: LosingGateway, held_by: str
) -> None:
    """[D-53 lost answer, D-151]"""
    (charge,) = (await world.get("/v1/sandbox/charges")).json["data"]
    await move(world, charge, "dispute")
    await hold(world, held_by)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    for _ in range(4):
        await jump(world, hours=1.1)
    await release(world, losing, held_by)

    await jump(world, hours=1.1)

    (found,) = (await read(world, paid))["refunds"]
    assert (found["status"], found["error"]["code"]) == ("failed", "not_left")
    assert await refunded_at_gateway(world) == []
    assert await world.broken() == []


@pytest.mark.parametrize("is_made", [False, True])
async def test_a_planned_repeat_is_not_sent_if_the_gateway_stops_deduplicating_refunds(
    world: World, paid: Json, losing: LosingGateway, monkeypatch: pytest.MonkeyPatch, *, is_made: bool
) -> None:
    """[D-53 lost answer]"""
    capabilities = SandboxGateway.capabilities

    def by_look_up(gateway: SandboxGateway) -> Capabilities:
        return replace(capabilities(gateway), refunds="lookup")

    monkeypatch.setattr(SandboxGateway, "capabilities", by_look_up)
    losing.is_limited = False
    if is_made:
        await losing.make_the_lost_one()

    for _ in range(4):
        await jump(world, minutes=2)

    assert set(losing.calls) == {"look-up"}
    (found,) = (await read(world, paid))["refunds"]
    assert found["status"] == ("done" if is_made else "failed")
    assert found["error"] is None if is_made else found["error"]["code"] == "not_made"
    assert await refunded_at_gateway(world) == ([4000] if is_made else [])
    assert await world.broken() == []
