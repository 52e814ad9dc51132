"""Steps of the webhook scenarios: register an endpoint, emit events, move the clock."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID

from tests.support.receiver import Received, Receiver
from tests.support.world import Json, Merchant, World

INSERT_EVENTS = """
    WITH counted AS (
        UPDATE account_counter SET last_sequence = last_sequence + $2::int, untaken_events = webhook_enabled
        WHERE account_id = $1
        RETURNING last_sequence - $2::int AS before
    )
    INSERT INTO event (account_id, sequence, event_id, type, created_at, data, invoice_id, stored_at)
    SELECT $1, counted.before + n, gen_random_uuid(), $4, now() + a.clock_offset, '{"n":' || n || '}',
        CASE WHEN $3::int > 0 THEN md5('invoice ' || n % $3::int)::uuid END, now()
    FROM counted, account a, generate_series(1, $2::int) n WHERE a.account_id = $1
"""
"""Inserts events directly, for tests that concern only the delivery of events."""


async def register(merchant: Merchant, receiver: Receiver) -> Json:
    answer = await merchant.put("/v1/integration/webhook", {"url": receiver.url})
    assert answer.status == 200, answer.body
    return answer.json


async def emit(
    world: World, count: int, *, invoices: int = 0, type_: str = "invoice.payment_unexpected"
) -> None:
    """Insert `count` events, spread evenly over `invoices` invoices. If `invoices` is 0, the events have no invoice."""
    await world.sql(INSERT_EVENTS, world.account_id, count, invoices, type_)


async def skip(world: World, duration: timedelta) -> None:
    """Advance the account's clock without running a worker."""
    await world.sql(
        "UPDATE account SET clock_offset = clock_offset + $2 WHERE account_id = $1",
        world.account_id,
        duration,
    )


async def fail_for_ten_minutes(world: World) -> None:
    """Move the start of the webhook's failures ten minutes of real time into the past (D-65)."""
    await world.sql(
        "UPDATE webhook SET real_failing_since = real_failing_since - interval '10 minutes' WHERE account_id = $1",
        world.account_id,
    )


async def event_at(merchant: Merchant, sequence: int) -> Json:
    (found,) = (await merchant.get(f"/v1/events?cursor={sequence - 1}&limit=1")).json["data"]
    return found


async def deliveries(merchant: Merchant, sequence: int) -> Json:
    event = await event_at(merchant, sequence)
    answer = await merchant.get(f"/v1/events/{event['id']}/deliveries")
    assert answer.status == 200, answer.body
    return answer.json


async def redeliver(merchant: Merchant, sequence: int) -> Json:
    event = await event_at(merchant, sequence)
    answer = await merchant.post(f"/v1/events/{event['id']}/redeliver")
    assert answer.status == 202, answer.body
    return answer.json


async def webhook(merchant: Merchant) -> Json:
    return (await merchant.get("/v1/integration/webhook")).json


async def orders(world: World, received: Iterable[Received]) -> dict[UUID, list[int]]:
    """Return the numbers of the received events by invoice, in order of their first arrival."""
    rows = await world.sql("SELECT sequence, invoice_id FROM event WHERE account_id = $1", world.account_id)
    invoice_of = {row["sequence"]: row["invoice_id"] for row in rows}
    found: dict[UUID, list[int]] = defaultdict(list)
    for each in received:
        invoice_id = invoice_of[each.sequence]
        if invoice_id is not None and each.sequence not in found[invoice_id]:
            found[invoice_id].append(each.sequence)
    return found


def gaps(attempts: Iterable[Json]) -> list[timedelta]:
    """Return the times between attempts on the account's clock."""
    instants = [datetime.fromisoformat(each["createdAt"]) for each in attempts]
    return [later - earlier for earlier, later in pairwise(instants)]
