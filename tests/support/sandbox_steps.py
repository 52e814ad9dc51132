"""Steps of the charge scenarios: create invoices, read and move sandbox charges, queue faults."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from tests.support.populated import connected
from tests.support.world import Answer, Json, Merchant, World


async def connection_id(merchant: Merchant) -> str:
    return (await merchant.get("/v1/integration")).json["gateways"][0]["connectionId"]


async def patch_connection(merchant: Merchant, **changes: Json) -> Json:
    answer = await merchant.patch(f"/v1/integration/gateways/{await connection_id(merchant)}", changes)
    assert answer.status == 200, answer.body
    return answer.json


async def queue_fault(merchant: Merchant, operation: str, fault: str, *, times: int = 1) -> Json:
    """Make the next `times` calls of an operation fail on the account's first connection."""
    body = {
        "connectionId": await connection_id(merchant),
        "operation": operation,
        "fault": fault,
        "times": times,
    }
    return await merchant.made("/v1/sandbox/faults", body)


async def charges(merchant: Merchant, invoice: Json | None = None) -> list[Json]:
    """Return the charges in the sandbox gateway, either of one invoice or of all invoices."""
    query = f"?invoiceId={invoice['id']}" if invoice else ""
    return (await merchant.get(f"/v1/sandbox/charges{query}")).json["data"]


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


async def move(merchant: Merchant, charge: Json, deed: str) -> Json:
    return await merchant.made(f"/v1/sandbox/charges/{charge['chargeId']}/{deed}")


async def end_leases(world: World) -> None:
    """Expire the leases of invoices. They last 60 s of real time, whatever the test clock shows."""
    await world.sql(
        "UPDATE invoice SET lease_until = now() - interval '1 second' WHERE account_id = $1", world.account_id
    )


async def cancel(world: World, invoice: Json, *, key: str = "fresh") -> Answer:
    return await world.post(f"/v1/invoices/{invoice['id']}/cancel", key=key)


async def cancel_refused(world: World, invoice: Json) -> str:
    """Try to cancel an invoice. Check that this is refused and changes nothing. Return the error's detail."""
    before = await read(world, invoice)
    answer = await cancel(world, invoice)
    assert (answer.status, answer.type) == (409, "engine.invoice_not_cancelable")
    assert await read(world, invoice) == before
    return answer.json["detail"]


async def attempts(world: World) -> list[Json]:
    """Return the rows of `charge_attempt`."""
    found = await world.sql(
        "SELECT to_json(a) AS row FROM charge_attempt a WHERE a.account_id = $1 ORDER BY a.invoice_id, a.attempt",
        world.account_id,
    )
    return [json.loads(record["row"]) for record in found]


async def park(world: World) -> None:
    """Park a ready invoice: a look-up finds its charge with a wrong amount, which a person must resolve."""
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    await world.sql("UPDATE sandbox_charge SET amount_cents = 999")
    await pass_time(world, minutes=5)
    assert [each["state"] for each in await attempts(world)] == ["parked"]


@asynccontextmanager
async def table_held(world: World, table: str) -> AsyncGenerator[None]:
    """Lock a table against writers during the block."""
    async with connected(world.database_url) as connection, connection.transaction():
        await connection.execute(f"LOCK TABLE {table} IN SHARE MODE")
        yield


@asynccontextmanager
async def row_held(world: World, table: str, **key: str) -> AsyncGenerator[None]:
    ((column, value),) = key.items()
    async with connected(world.database_url, world.account_id) as connection, connection.transaction():
        held = await connection.fetch(f"SELECT FROM {table} WHERE {column} = $1 FOR UPDATE", value)
        assert len(held) == 1
        yield


async def until_waiting(world: World) -> None:
    """Wait until any statement in the database waits for a lock."""
    waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with asyncio.timeout(4):
        while not await world.sql(waiting):  # noqa: ASYNC110 - another connection begins to wait
            await asyncio.sleep(0.01)
