"""A gateway that does not deduplicate refunds gets many refunds at once (D-53)."""

from dataclasses import replace
from typing import Any

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.usecases.payments import refund_calls
from fatura.usecases.transaction import load_account
from tests.support.refund_steps import pay, refunded_at_gateway, store
from tests.support.sandbox_steps import issued_invoice
from tests.support.world import World


async def test_each_refund_is_sent_after_its_look_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight refunds are due. A batch settles at most two refunds, and each look-up takes 9 seconds. [D-53 lookup]"""
    await world.set_up_gateway(behaviour="never_pay")
    capabilities, get_charge = SandboxGateway.capabilities, SandboxGateway.get_charge
    account = await load_account(world.deps, world.account_id)
    for _ in range(8):
        invoice = await issued_invoice(world)
        await pay(world, invoice)
        await store(world, account, invoice)
    monkeypatch.setattr(
        SandboxGateway, "capabilities", lambda self: replace(capabilities(self), refunds="lookup")
    )
    looks = 0

    async def slow(gateway: Any, charge_id: str) -> Any:
        nonlocal looks
        looks += 1
        await world.sql("UPDATE account SET clock_offset = clock_offset + interval '9 seconds'")
        return await get_charge(gateway, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", slow)
    await world.sql("UPDATE account SET clock_offset = clock_offset + interval '1 minute'")
    for _ in range(40):
        account = await load_account(world.deps, world.account_id)
        await refund_calls.settle_due(world.deps, account, limit=2)
    assert (len(await refunded_at_gateway(world)), looks) == (8, 8)
