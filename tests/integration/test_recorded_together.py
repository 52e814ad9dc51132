"""If several answers arrive at the same time, the engine records them in one transaction.

If this transaction fails, the engine records each answer in a separate transaction.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fatura.gateways.port import Charge, ChargeRequest
from fatura.usecases.charging import issuance
from fatura.usecases.charging.gateway_calls import GatewayCall
from fatura.usecases.transaction import in_transaction, load_account
from tests.support.world import World

INVOICES = 5
_ISSUED = "SELECT count(*) AS invoices, count(DISTINCT xmin::text) AS transactions FROM invoice WHERE status = 'issued'"


class _SimultaneousGateway:
    """A gateway that withholds its answers to all `create_charge` calls and sends them at one moment.

    If `charge_id` is given, each answer has this charge id.
    """

    def __init__(self, gateway: Any, moment: asyncio.Barrier, *, charge_id: str | None = None) -> None:
        self._gateway = gateway
        self._moment = moment
        self._charge_id = charge_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gateway, name)

    async def create_charge(self, request: ChargeRequest) -> Charge:
        charge = await self._gateway.create_charge(request)
        await self._moment.wait()
        return replace(charge, charge_id=self._charge_id or charge.charge_id)


async def _reserved(world: World) -> Sequence[GatewayCall]:
    plan = await world.plan()
    for _ in range(INVOICES):
        await world.enroll(plan)
    await world.run("generation")
    account = await load_account(world.deps, world.account_id)
    _, calls = await in_transaction(world.deps, account, issuance._reserve_due, limit=INVOICES)
    return calls


async def test_answers_that_arrive_together_are_recorded_in_one_transaction(world: World) -> None:
    """[D-33, D-28]"""
    moment = asyncio.Barrier(INVOICES)
    calls = [
        replace(each, gateway=_SimultaneousGateway(each.gateway, moment)) for each in await _reserved(world)
    ]
    await issuance.call_and_record(world.deps, await load_account(world.deps, world.account_id), calls)

    [issued] = await world.sql(_ISSUED)
    assert (issued["invoices"], issued["transactions"]) == (INVOICES, 1)
    assert len(await world.events("invoice.issued")) == INVOICES
    assert await world.broken() == []


async def test_a_refused_answer_delays_no_other(world: World) -> None:
    """[D-33]"""
    moment = asyncio.Barrier(INVOICES)
    calls = [
        replace(
            each,
            gateway=_SimultaneousGateway(each.gateway, moment, charge_id="the same" if place < 2 else None),
        )
        for place, each in enumerate(await _reserved(world))
    ]
    await issuance.call_and_record(world.deps, await load_account(world.deps, world.account_id), calls)

    [issued] = await world.sql(_ISSUED)
    assert issued["invoices"] == INVOICES - 1
    assert len(await world.events("invoice.issued")) == INVOICES - 1
