"""Faults that occur independently of I/O: outages of database and endpoints, changed gateway tokens, refunds.

This module also sends the gateway's webhooks, which may arrive twice, late, or never.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from uuid import UUID

from tests.faults.simulator.actions import Merchant
from tests.faults.simulator.gateway import HOOK_HEADER
from tests.faults.simulator.gateway_state import SimCharge
from tests.faults.simulator.merchants import PRICE, WEBHOOK
from tests.faults.simulator.process import ConnectionCutError
from tests.faults.simulator.side import World

EVERY_SECONDS = 15_000
REVERSED_PERCENT = 12


async def make(world: World, merchants: Sequence[Merchant]) -> None:
    """Inject faults at random times until faults are switched off."""
    kinds: list[tuple[int, Callable[[World, Sequence[Merchant]], Awaitable[None]]]] = [
        (3, _stop_database),
        (2, _stop_endpoint),
        (1, _change_token),
        (4, _send_webhooks),
        (3, _refund),
    ]
    while world.faults.on:
        await world.schedule.sleep(world.rng.expovariate(1 / EVERY_SECONDS))
        if world.faults.on:
            await world.rng.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0](
                world, merchants
            )


async def _stop_database(world: World, _merchants: Sequence[Merchant]) -> None:
    world.connections.goes_away_for = world.rng.choice((1, 3, 8, 30))


async def _stop_endpoint(world: World, merchants: Sequence[Merchant]) -> None:
    kind = world.rng.choice((PRICE, WEBHOOK, WEBHOOK))
    hours = world.rng.choice((0.2, 4, 14, 60, 130))
    account_id = world.rng.choice(merchants).account_id
    world.merchants.down_until[kind, account_id] = world.schedule.now + timedelta(hours=hours)


async def _change_token(world: World, merchants: Sequence[Merchant]) -> None:
    """Make the gateway refuse an account's credentials. The merchant sends new ones within about an hour."""
    merchant = world.rng.choice(merchants)
    world.side.gateway.token_of[UUID(merchant.account_id)] += 1
    await world.schedule.sleep(world.rng.randrange(60, 4000))
    await merchant.send_credentials()


async def _send_webhooks(world: World, _merchants: Sequence[Merchant]) -> None:
    charges = list(world.side.gateway.charges.values())
    for charge in world.rng.sample(charges, k=min(2, len(charges))):
        await _send_webhook(world, charge)


async def _send_webhook(world: World, charge: SimCharge) -> None:
    """Send the gateway's webhook for a charge, once or twice."""
    path = f"/gateways/{charge.account_id}/{charge.connection_id}/webhook"
    headers = {"Content-Type": "application/json", HOOK_HEADER: str(charge.account_id)}
    for _ in range(world.rng.choice((1, 1, 2))):
        try:
            answer = await world.rng.choice(world.processes).call(
                "POST", path, headers, json.dumps({"chargeId": charge.charge_id}).encode()
            )
        except ConnectionCutError:
            continue
        if answer.status not in {200, 503}:
            world.report_problem(
                f"a gateway's webhook was answered {answer.status} {answer.body.decode()[:200]}"
            )


async def _refund(world: World, _merchants: Sequence[Merchant]) -> None:
    """Refund or dispute some paid charges, and send webhooks for them."""
    for charge in list(world.side.gateway.charges.values()):
        paid = charge.state == "paid" and charge.reversal is None
        if paid and world.rng.randrange(100) < REVERSED_PERCENT // 6:
            charge.reversal = world.rng.choice(("refunded", "disputed"))
            await _send_webhook(world, charge)
