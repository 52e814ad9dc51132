"""If the issuance of an invoice fails unexpectedly, Fatura reports the delay and retries later (D-186).

The tests make PostgreSQL refuse the charges of one invoice. Fatura still issues other invoices.
"""

from tests.support.captured_logs import captured_logs
from tests.support.sandbox_steps import charges, connection_id, fail_for, pass_time, read, ready_invoice
from tests.support.unreadable import make_unreadable, mend_names
from tests.support.world import Json, World

REFUSE_CHARGES = (
    """
    CREATE FUNCTION refuse_charge() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.invoice_id = '{invoice_id}' THEN RAISE EXCEPTION 'refused'; END IF;
        RETURN NEW;
    END $$
    """,
    "CREATE TRIGGER refuse_charge BEFORE INSERT ON charge FOR EACH ROW EXECUTE FUNCTION refuse_charge()",
)


async def refuse(world: World, invoice: Json) -> None:
    for statement in REFUSE_CHARGES:
        await world.sql(statement.replace("{invoice_id}", invoice["id"]))


async def mend(world: World) -> None:
    await world.sql("DROP TRIGGER refuse_charge ON charge")


async def statuses(world: World, *invoices: Json) -> list[str]:
    return [(await read(world, each))["status"] for each in invoices]


async def test_an_invoice_that_cannot_be_issued_delays_no_other(world: World) -> None:
    """[D-34, D-186]"""
    first, failing, last = [await ready_invoice(world) for _ in range(3)]
    await refuse(world, failing)

    await world.run("issuance")

    assert await statuses(world, first, failing, last) == ["issued", "ready", "issued"]
    [event] = await world.events("invoice.issue_delayed")
    assert event["data"]["invoice"]["id"] == failing["id"]
    assert event["data"]["error"]["code"] == "unexpected_error"
    assert await world.broken() == []


async def test_an_invoice_that_cannot_be_read_delays_no_other(world: World) -> None:
    """The event `invoice.issue_delayed` cannot be built either, so only the log reports the failure. [D-34, D-186]"""
    first, failing, last = [await ready_invoice(world) for _ in range(3)]
    await make_unreadable(world, failing)

    with captured_logs() as logs:
        await world.run("issuance")
        await pass_time(world, hours=4)

    assert await statuses(world, first, last) == ["issued", "issued"]
    assert 4 <= logs.getvalue().count("charge.attempt_put_off") <= 5
    assert await world.events("invoice.issue_delayed") == []
    await mend_names(world)
    assert await statuses(world, failing) == ["ready"]
    await pass_time(world, hours=1, minutes=10)
    assert await statuses(world, failing) == ["issued"]
    assert len(await charges(world, failing)) == 1
    assert await world.broken() == []


async def test_an_invoice_that_was_put_off_is_retried_every_hour(world: World) -> None:
    """[D-186]"""
    failing = await ready_invoice(world)
    await refuse(world, failing)
    with captured_logs() as logs:
        await world.run("issuance")
        await pass_time(world, hours=4)
    assert 4 <= logs.getvalue().count("charge.attempt_put_off") <= 5
    later = await ready_invoice(world)
    await world.run("issuance")
    assert await statuses(world, failing, later) == ["ready", "issued"]

    await mend(world)
    await pass_time(world, hours=1, minutes=10)

    assert await statuses(world, failing) == ["issued"]
    assert len(await charges(world, failing)) == 1
    assert len(await world.events("invoice.issue_delayed")) == 1
    assert await world.broken() == []


async def test_an_invoice_that_cannot_be_issued_does_not_stop_the_probes_of_its_connection(
    world: World,
) -> None:
    """The first waiting invoice cannot be issued, so the probe checks the credentials instead. [D-55 failing, D-186]"""
    failing = await ready_invoice(world)
    other = await ready_invoice(world)
    await fail_for(world, "create_charge", "rate_limited", seconds=3600)
    await world.run("issuance", "gateway_probe")
    await pass_time(world, minutes=30)
    await refuse(world, failing)
    await world.sql(
        """
        UPDATE invoice SET next_attempt_at = (SELECT min(next_attempt_at) FROM invoice) - interval '1 second'
        WHERE invoice_id = $1::text::uuid
        """,
        failing["id"],
    )
    assert (await world.delete(f"/v1/sandbox/faults?connectionId={await connection_id(world)}")).status < 300

    await pass_time(world, hours=2)

    assert await statuses(world, failing, other) == ["ready", "issued"]
