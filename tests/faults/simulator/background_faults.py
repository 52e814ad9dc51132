"""Faults that occur independently of I/O: outages of the database, endpoints and gateways, and new gateway tokens.

This module also makes refunds and disputes, and sends the gateway's webhooks, which may arrive twice, late, or never.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from uuid import UUID

from fatura.domain.payments import EntryKind
from tests.faults.simulator.actions import Merchant
from tests.faults.simulator.gateway import HOOK_HEADER
from tests.faults.simulator.gateway_state import SimCharge
from tests.faults.simulator.merchants import PRICE, WEBHOOK
from tests.faults.simulator.process import ConnectionCutError
from tests.faults.simulator.side import World

EVERY_SECONDS = 15_000
MOVED_PERCENT = 2
"""Percentage of the charges to which `_move_money` may add an entry."""
POLLED_FOR = timedelta(days=110)
"""The engine polls a paid charge for at least this long after the first payment (D-55)."""
SWEPT_FOR = timedelta(days=125)
"""The nightly sweep checks a charge for at least this long after the charge was created (D-161)."""


async def make(world: World, merchants: Sequence[Merchant]) -> None:
    """Inject faults at random times until faults are switched off."""
    kinds: list[tuple[int, Callable[[World, Sequence[Merchant]], Awaitable[None]]]] = [
        (3, _stop_database),
        (2, _stop_endpoint),
        (1, _change_token),
        (4, _send_webhooks),
        (3, _move_money),
        (1, _refuse_calls),
        (1, _refuse_polls),
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
    """Make the gateway refuse an account's credentials. The merchant sends new credentials within about an hour."""
    merchant = world.rng.choice(merchants)
    world.side.gateway.token_of[UUID(merchant.account_id)] += 1
    await world.schedule.sleep(world.rng.randrange(60, 4000))
    await merchant.send_credentials()


async def _send_webhooks(world: World, _merchants: Sequence[Merchant]) -> None:
    charges = list(world.side.gateway.charges.values())
    for charge in world.rng.sample(charges, k=min(2, len(charges))):
        await send_webhook(world, charge)


async def send_webhook(world: World, charge: SimCharge) -> None:
    """Send the gateway's webhook for a charge to the engine, once or twice."""
    path = f"/gateways/{charge.account_id}/{charge.connection_id}/webhook"
    headers = {"Content-Type": "application/json", HOOK_HEADER: str(charge.account_id)}
    body = json.dumps({"chargeId": charge.charge_id, "id": f"evt_{world.rng.getrandbits(64):x}"}).encode()
    for _ in range(world.rng.choice((1, 1, 2))):
        try:
            answer = await world.rng.choice(world.processes).call("POST", path, headers, body)
        except ConnectionCutError:
            continue
        if answer.status not in {200, 503}:
            world.report_problem(
                f"a gateway's webhook was answered {answer.status} {answer.body.decode()[:200]}"
            )


async def _move_money(world: World, _merchants: Sequence[Merchant]) -> None:
    """Add a refund or a step of a dispute to some charges. The gateway sends a webhook for half of these changes."""
    gateway, rng, now = world.side.gateway, world.rng, world.schedule.now
    for charge in list(gateway.charges.values()):
        is_chosen = rng.randrange(100) < MOVED_PERCENT
        if is_chosen and gateway.move_money(charge, now=now, rng=rng) and rng.randrange(2):
            await send_webhook(world, charge)


async def _refuse_calls(world: World, merchants: Sequence[Merchant]) -> None:
    """Refuse all calls of a random connection for 1 to 30 days."""
    connections = [each for merchant in merchants for each in merchant.connections]
    if connections:
        until = world.schedule.now + timedelta(days=world.rng.choice((1, 2, 4, 30)))
        world.side.gateway.refuses_until[UUID(world.rng.choice(connections))] = until


async def _refuse_polls(world: World, merchants: Sequence[Merchant]) -> None:
    """Refuse the polls of a random connection for 1 to 30 days. Calls of other kinds succeed."""
    connections = [each for merchant in merchants for each in merchant.connections]
    if connections:
        until = world.schedule.now + timedelta(days=world.rng.choice((1, 2, 4, 30)))
        world.side.gateway.refuses_polls_until[UUID(world.rng.choice(connections))] = until


async def send_missing_webhooks(world: World, *, only_unpolled: bool) -> None:
    """Send a webhook for each charge with entries that the gateway has not returned to the engine yet.

    Omit charges that the nightly sweep finds (D-161). With `only_unpolled`, also omit charges that the engine polls
    without a webhook (D-55).
    """
    swept_from = world.schedule.now - SWEPT_FOR
    for charge in list(world.side.gateway.charges.values()):
        world.side.gateway.as_of(charge, world.schedule.now)
        if len(charge.entries) <= charge.told or charge.created_at >= swept_from:
            continue
        if not (only_unpolled and _is_polled(charge)):
            await send_webhook(world, charge)


def _is_polled(charge: SimCharge) -> bool:
    """Return whether a poll finds the charge's newest entry (D-55).

    A poll finds it if it happened less than POLLED_FOR after the first payment, and the charge is not canceled.
    """
    payments = [each.occurred_at for each in charge.entries if each.kind is EntryKind.PAYMENT]
    return charge.state != "canceled" and charge.entries[-1].occurred_at < min(payments) + POLLED_FOR
