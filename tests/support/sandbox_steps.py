"""Steps of the charge scenarios: create invoices, read and move sandbox charges, queue faults."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from tests.support.populated import Connection, connected
from tests.support.world import Answer, Json, Merchant, World


async def connection_id(merchant: Merchant) -> str:
    return (await merchant.get("/v1/integration/gateways")).json["data"][0]["connectionId"]


async def patch_connection(merchant: Merchant, **changes: Json) -> Json:
    answer = await merchant.patch(f"/v1/integration/gateways/{await connection_id(merchant)}", changes)
    assert answer.status == 200, answer.body
    return answer.json


async def queue_fault(merchant: Merchant, operation: str, fault: str, *, times: int = 1) -> Json:
    """Make the next `times` calls of an operation fail on the account's first connection."""
    return await _queue(merchant, operation=operation, fault=fault, times=times)


async def fail_for(merchant: Merchant, operation: str, fault: str, *, seconds: int) -> Json:
    """Make all calls of an operation fail for `seconds` of real time on the account's first connection."""
    return await _queue(merchant, operation=operation, fault=fault, seconds=seconds)


async def _queue(merchant: Merchant, **fault: Json) -> Json:
    body = {"connectionId": await connection_id(merchant), **fault}
    return await merchant.made("/v1/sandbox/faults", body)


async def charges(merchant: Merchant, invoice: Json | None = None) -> list[Json]:
    """Return the charges in the sandbox gateway, either of one invoice or of all invoices."""
    query = f"?invoiceId={invoice['id']}" if invoice else ""
    return (await merchant.get(f"/v1/sandbox/charges{query}")).json["data"]


async def charge_statuses(merchant: Merchant) -> dict[str, str]:
    """Return the status of each charge in the sandbox gateway, by the charge's id."""
    return {each["chargeId"]: each["status"] for each in await charges(merchant)}


async def ready_invoice(world: World, **terms: Json) -> Json:
    """Generate an invoice that is due in three days and not yet issued."""
    subscription = await world.enroll(await world.plan(**terms))
    await world.run("generation")
    return (await world.invoices(subscription))[0]


async def issued_invoice(world: World, **terms: Json) -> Json:
    invoice = await ready_invoice(world, **terms)
    await world.run("issuance")
    issued = await read(world, invoice)
    assert issued["status"] == "issued"
    return issued


async def read(merchant: Merchant, invoice: Json) -> Json:
    return (await merchant.get(f"/v1/invoices/{invoice['id']}")).json


async def now(merchant: Merchant) -> datetime:
    """Return the time on the account's clock."""
    return datetime.fromisoformat((await merchant.get("/v1/test-clock")).json["now"])


async def pass_time(merchant: Merchant, **duration: float) -> None:
    """Advance the account's clock by a duration, and do all work that becomes due on the way."""
    target = await now(merchant) + timedelta(**duration)
    await merchant.advance(target.isoformat(timespec="milliseconds").replace("+00:00", "Z"))


async def skip_days(world: World, count: int) -> None:
    """Advance the account's clock day by day, and run all lanes after each day.

    While a connection is failing, this is faster than `pass_time`, which stops every 15 minutes for a probe.
    """
    for _ in range(count):
        await world.sql("UPDATE account SET clock_offset = clock_offset + interval '1 day'")
        await world.run()


async def move(merchant: Merchant, charge: Json, deed: str) -> Json:
    return await merchant.made(f"/v1/sandbox/charges/{charge['chargeId']}/{deed}")


SILENTLY = {
    kind: f"""
    UPDATE sandbox_charge SET status = '{status}', entries = entries || jsonb_build_array(jsonb_build_object(
        'kind', '{kind}', 'reference', '{kind}_' || charge_id, 'amount_cents', amount_cents, 'occurred_at', created_at
    ))
    """  # noqa: S608 - written here
    for kind, status in (("payment", "paid"), ("refund", "refunded"))
}
"""Statements that pay or refund charges at the sandbox gateway without notifying the engine."""


async def pay_silently(world: World, charge_id: str | None = None) -> None:
    """Pay a charge, or all charges, at the gateway without notifying the engine."""
    await world.sql(f"{SILENTLY['payment']} WHERE $1::text IS NULL OR charge_id = $1", charge_id)


async def refund_silently(world: World, charge_id: str | None = None) -> None:
    """Refund a charge, or all charges, at the gateway without notifying the engine."""
    await world.sql(f"{SILENTLY['refund']} WHERE $1::text IS NULL OR charge_id = $1", charge_id)


async def end_leases(world: World) -> None:
    """Expire the leases of invoices and charges. Advancing the test clock does not expire them: they use real time."""
    await world.sql(
        "UPDATE invoice SET lease_until = now() - interval '1 second' WHERE account_id = $1", world.account_id
    )
    await world.sql(
        "UPDATE charge SET call_ends_at = NULL WHERE account_id = $1 AND call_ends_at IS NOT NULL",
        world.account_id,
    )


async def cancel(world: World, invoice: Json, *, key: str = "fresh") -> Answer:
    return await world.post(f"/v1/invoices/{invoice['id']}/cancel", key=key)


async def cancel_refused(world: World, invoice: Json) -> str:
    """Try to cancel an invoice. Check that the API refuses and nothing changes. Return the error's detail."""
    before = await read(world, invoice)
    answer = await cancel(world, invoice)
    assert (answer.status, answer.type) == (409, "engine.invoice_not_cancelable")
    assert await read(world, invoice) == before
    return answer.json["detail"]


async def stored_charges(world: World) -> list[Json]:
    found = await world.sql(
        "SELECT to_json(c) AS row FROM charge c WHERE c.account_id = $1 ORDER BY c.invoice_id, c.number",
        world.account_id,
    )
    return [json.loads(record["row"]) for record in found]


async def believed_absent(world: World) -> Json:
    """Return an invoice whose first request for a charge was lost.

    The engine then believed that the charge was absent, and created one with a second request.
    """
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_before")
    await world.run("issuance")
    for seconds in (81, 61):
        await pass_time(world, seconds=seconds)
    return invoice


async def park(world: World) -> None:
    """Let a look-up find a ready invoice's charge with a wrong amount. The engine parks it for a person's decision."""
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    await world.sql("UPDATE sandbox_charge SET amount_cents = 999")
    await pass_time(world, minutes=5)
    assert [each["stage"] for each in await stored_charges(world)] == ["parked"]


@asynccontextmanager
async def table_held(world: World, table: str) -> AsyncGenerator[None]:
    """Lock a table against writers during the block."""
    async with connected(world.database_url) as connection, connection.transaction():
        await connection.execute(f"LOCK TABLE {table} IN SHARE MODE")
        yield


@asynccontextmanager
async def reads_held(world: World, table: str) -> AsyncGenerator[Connection]:
    """Lock a table against reads during the block. Yield the connection that holds the lock."""
    async with connected(world.database_url, world.account_id) as connection, connection.transaction():
        await connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield connection


@asynccontextmanager
async def row_held(world: World, table: str, **key: str) -> AsyncGenerator[None]:
    ((column, value),) = key.items()
    async with connected(world.database_url, world.account_id) as connection, connection.transaction():
        held = await connection.fetch(f"SELECT FROM {table} WHERE {column} = $1 FOR UPDATE", value)
        assert len(held) == 1
        yield


async def until_waiting(world: World, *, statements: int = 1) -> None:
    """Wait until at least this many statements in the database are waiting for a lock."""
    waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with asyncio.timeout(4):
        while len(await world.sql(waiting)) < statements:  # noqa: ASYNC110 - another connection begins to wait
            await asyncio.sleep(0.01)
