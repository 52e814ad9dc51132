"""The answer to an issuance call arrives while the account is frozen after a restore. The charge is not forgotten."""

from collections.abc import Awaitable, Callable
from typing import Literal
from uuid import UUID

import pytest

from fatura.usecases.charging import issuance
from fatura.usecases.restore import comparison
from fatura.usecases.transaction import in_transaction, load_account
from tests.support.restore_steps import compare, create_unmatched_charge
from tests.support.sandbox_steps import charge_statuses, charges, pass_time, read, ready_invoice
from tests.support.world import World

Arrival = Literal["before the comparison", "after the comparison"]


async def _freeze_during_call(world: World, arrival: Arrival) -> None:
    """Reserve a call, freeze the account, and make the call before or after the comparison."""
    account = await load_account(world.deps, world.account_id)
    _, calls = await in_transaction(world.deps, account, issuance._reserve_due, limit=1)
    await comparison.freeze(world.deps, world.account_id)
    steps: list[Callable[[], Awaitable[object]]] = [
        lambda: issuance.call_and_record(world.deps, account, calls),
        lambda: compare(world),
    ]
    for step in steps if arrival == "before the comparison" else reversed(steps):
        await step()


@pytest.mark.parametrize("arrival", ["before the comparison", "after the comparison"])
async def test_a_charge_answered_during_the_freeze_is_recorded(world: World, arrival: Arrival) -> None:
    """[D-123, D-33]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)

    await _freeze_during_call(world, arrival)

    assert (await read(world, invoice))["status"] == "issued"
    await pass_time(world, hours=26)
    assert len(await charges(world)) == 1
    assert len(await world.events("invoice.issued")) == 1
    assert await world.broken() == []


@pytest.mark.parametrize("arrival", ["before the comparison", "after the comparison"])
async def test_a_charge_answered_during_the_freeze_and_a_lost_one_leave_one_payable(
    world: World, arrival: Arrival
) -> None:
    """The backup lacks a charge of the invoice. Before the freeze, a worker reserved another one. [D-123, D-125]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    lost = await create_unmatched_charge(world, UUID(invoice["id"]), invoice["totalCents"], attempt=2)

    await _freeze_during_call(world, arrival)
    await pass_time(world, hours=26)

    shown = await read(world, invoice)
    assert shown["status"] == "issued"
    statuses = await charge_statuses(world)
    assert (len(statuses), statuses[shown["gatewayInvoiceId"]]) == (2, "open")
    assert sorted(statuses.values()) == ["canceled", "open"]
    assert lost.charge_id in statuses
    assert await world.broken() == []
