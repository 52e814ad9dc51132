"""An event reports each charge that late look-ups cannot read for a day, and reports it once (D-125).

A charge is *invalid* while the gateway's answers about it are invalid, for example `paid` without a payment.
"""

from collections.abc import Sequence
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, TransientError
from tests.support.reissue_steps import unpaid_invoice
from tests.support.sandbox_steps import cancel, pass_time, read
from tests.support.sweep_steps import (
    NO_SWEEP,
    TRIPLE_ID,
    double_silently,
    hide_payment,
    missing_charges,
    show_payment,
)
from tests.support.world import Json, World


async def canceled(world: World) -> tuple[Json, str]:
    """Return a canceled invoice, and the id of its charge."""
    invoice = await unpaid_invoice(world)
    assert (await cancel(world, invoice)).status == 200
    await world.sql(NO_SWEEP)
    return invoice, invoice["gatewayInvoiceId"]


async def reported(world: World) -> list[str]:
    """Return the charges that events report as missing, oldest event first."""
    errors = [each["data"]["error"] for each in await world.events("invoice.issue_failed")]
    return [each["gatewayInvoiceId"] for each in errors if each["code"] == "charge_missing"]


async def invalid_copy(world: World, invoice: Json, *, charge_id: str = TRIPLE_ID) -> str:
    """Create a copy of the invoice's charge at the gateway, and make it invalid."""
    copy = await double_silently(world, invoice, charge_id=charge_id)
    await hide_payment(world, copy)
    return copy


async def make_valid(world: World, charge_id: str) -> None:
    await world.sql("UPDATE sandbox_charge SET status = 'canceled' WHERE charge_id = $1", charge_id)


async def test_a_charge_that_becomes_invalid_after_another_was_reported(world: World) -> None:
    """The invoice's own charge is reported. Then it becomes valid, and a copy of it appears and stays invalid.

    No late look-up is complete in between. [D-125]
    """
    invoice, own = await canceled(world)
    await hide_payment(world, own)
    await pass_time(world, days=2)
    assert await reported(world) == [own]
    copy = await invalid_copy(world, invoice)
    await make_valid(world, own)
    await pass_time(world, days=20)
    assert await reported(world) == [own, copy]


async def test_a_charge_that_becomes_invalid_beside_a_reported_one(world: World) -> None:
    """Both charges stay invalid. On the fourth day, the copy shows its payment. [D-125]"""
    invoice, own = await canceled(world)
    await hide_payment(world, own)
    await pass_time(world, days=2)
    copy = await invalid_copy(world, invoice)
    await pass_time(world, days=4)
    assert await reported(world) == [own, copy]
    await show_payment(world, copy)
    await pass_time(world, days=2)
    assert (await read(world, invoice))["paidCents"] == 9990


async def test_an_invalid_copy_of_a_parked_attempt(world: World) -> None:
    """The parked attempt named the hidden charge. A copy appears an hour later, and stays invalid. [D-125, D-181]"""
    _, one, hidden = await missing_charges(world)
    await pass_time(world, hours=1)
    copy = await invalid_copy(world, {"gatewayInvoiceId": one})
    await pass_time(world, days=20)
    assert await reported(world) == [hidden, copy]


async def test_a_charge_that_is_invalid_for_hours_is_not_reported(world: World) -> None:
    """For 23 hours, the invoice's own charge is invalid. Then it becomes valid, and a copy is invalid for 6 hours.
    [D-125]
    """
    invoice, own = await canceled(world)
    await hide_payment(world, own)
    await pass_time(world, hours=23)
    copy = await invalid_copy(world, invoice)
    await make_valid(world, own)
    await pass_time(world, hours=6)
    await make_valid(world, copy)
    await pass_time(world, days=3)
    assert await reported(world) == []


async def test_a_charge_that_becomes_invalid_after_failed_searches(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches fail for two days. The first search that works shows an invalid charge, which is reported a day later.
    [D-125]
    """
    _, own = await canceled(world)
    find, is_down = SandboxGateway.find_charges, [True]

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        if is_down:
            raise TransientError("503")
        return await find(self, invoice_id, attempt)

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, days=2)
    await hide_payment(world, own)
    is_down.clear()
    await pass_time(world, hours=20)
    assert await reported(world) == []
    await pass_time(world, days=2)
    assert await reported(world) == [own]


async def test_a_charge_that_the_list_shows_only_sometimes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two charges stay invalid, but every second search does not show the copy. [D-125]"""
    invoice, own = await canceled(world)
    await hide_payment(world, own)
    copy = await invalid_copy(world, invoice)
    find, searches = SandboxGateway.find_charges, list[int]()

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        searches.append(attempt)
        await world.sql(
            "UPDATE sandbox_charge SET attempt = $2 WHERE charge_id = $1", copy, 1 + len(searches) % 2 * 6
        )
        return await find(self, invoice_id, attempt)

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, days=5)
    assert await reported(world) == [own, copy]


async def test_at_most_ten_charges_are_reported(world: World) -> None:
    """Twelve charges stay invalid. [D-125]"""
    invoice, own = await canceled(world)
    await hide_payment(world, own)
    for number in range(11):
        await invalid_copy(world, invoice, charge_id=f"sbx_{number:032x}")
    await pass_time(world, days=10)
    assert len(await reported(world)) == len(set(await reported(world))) == 10
    assert await world.broken() == []
