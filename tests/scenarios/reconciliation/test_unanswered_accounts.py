"""While no gateway of an account has answered lately, a worker makes few concurrent calls for the account (D-55)."""

from typing import Never

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import TransientError
from fatura.usecases.answering_accounts import FIRST_CALLS
from fatura.usecases.charging import late_charge_checks
from fatura.usecases.payments import refund_calls
from fatura.usecases.reconciliation import polling, unmatched_charges
from fatura.usecases.transaction import load_account
from tests.support.refund_steps import store
from tests.support.sandbox_steps import issued_invoice, pay_silently
from tests.support.world import World

DUE = FIRST_CALLS + 2
PARTS = {
    "polls": polling.reconcile,
    "looks": unmatched_charges.look,
    "late look-ups": late_charge_checks.check,
    "refunds": refund_calls.settle_due,
}
LATE_LOOK_UPS = """
    INSERT INTO late_charge_check (account_id, charge_id, connection_id, next_check_at)
    SELECT c.account_id, c.charge_id, c.connection_id, c.created_at FROM charge c
    ON CONFLICT (account_id, charge_id) DO UPDATE SET next_check_at = EXCLUDED.next_check_at
"""
LOOKS = """
    INSERT INTO unmatched_charge (account_id, connection_id, gateway_charge_id, found_at, next_look_at)
    SELECT v.account_id, v.connection_id, 'sbx_' || v.invoice_id, v.created_at, v.created_at FROM invoice v
"""


@pytest.mark.parametrize("part", PARTS)
async def test_a_batch_makes_few_calls(world: World, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """More work is due than a worker may do in one batch. [D-55 fair]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoices = [await issued_invoice(world) for _ in range(DUE)]
    account = await load_account(world.deps, world.account_id)
    if part == "refunds":
        await pay_silently(world)
        await world.sql("UPDATE invoice SET next_attempt_at = created_at")
        await world.run("reconciliation")
        for each in invoices:
            await store(world, account, each)
        await world.sql("UPDATE refund_request SET next_attempt_at = created_at")
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await world.sql(LATE_LOOK_UPS)
    await world.sql(LOOKS)
    world.deps.answering._until.clear()
    calls: list[object] = []

    async def unanswered(*args: object) -> Never:
        calls.append(args)
        raise TransientError("no answer")

    for name in ("get_charge", "find_charges", "refund_charge"):
        monkeypatch.setattr(SandboxGateway, name, unanswered)

    assert await PARTS[part](world.deps, account, limit=64) == FIRST_CALLS

    # a late look-up searches, and then reads the attempt's own charge
    assert len(calls) == FIRST_CALLS * (2 if part == "late look-ups" else 1)
