"""If the work on one database row fails unexpectedly, the work on the account's other rows is not delayed (D-186)."""

import pytest

from tests.support.captured_logs import captured_logs
from tests.support.refund_steps import refund
from tests.support.refused_writes import refuse
from tests.support.sandbox_steps import (
    charges,
    issued_invoice,
    pass_time,
    pay_silently,
    queue_fault,
    read,
    stored_charges,
)
from tests.support.sweep_steps import double_silently, second_charge_events, stored_sweep, sweep
from tests.support.unreadable import make_unreadable, mend_names
from tests.support.world import Json, World


@pytest.fixture
async def three(world: World) -> list[Json]:
    """Return three issued invoices."""
    await world.set_up_gateway(behaviour="never_pay")
    return [await issued_invoice(world) for _ in range(3)]


async def test_an_invoice_that_cannot_be_polled_delays_no_other_poll(world: World, three: list[Json]) -> None:
    """[D-35 polling, D-186]"""
    first, failing, last = three
    await pay_silently(world)
    await make_unreadable(world, failing)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")

    with captured_logs() as logs:
        await world.run("reconciliation")

    assert [(await read(world, each))["status"] for each in (first, last)] == ["paid", "paid"]
    assert logs.getvalue().count("charge.poll_put_off") == 1
    assert "ValidationError" in logs.getvalue()
    await mend_names(world)
    assert (await read(world, failing))["status"] == "issued"
    await pass_time(world, minutes=11)
    assert (await read(world, failing))["status"] == "paid"
    assert await world.broken() == []


async def test_a_refund_that_cannot_be_sent_delays_no_other_refund(world: World, three: list[Json]) -> None:
    """[D-53, D-186]"""
    await pay_silently(world)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await world.run("reconciliation")
    for each in three:
        await queue_fault(world, "refund_charge", "rate_limited")
        assert (await refund(world, each)).json["refunds"][0]["status"] == "pending"
    first, failing, last = three
    await refuse(
        world,
        "refund_request",
        "UPDATE",
        f"NEW.lease_until IS NOT NULL AND NEW.invoice_id = '{failing['id']}'",
    )

    with captured_logs() as logs:
        await pass_time(world, minutes=30)

    assert "refund.put_off" in logs.getvalue()
    statuses = [(await read(world, each))["refunds"][0]["status"] for each in (first, failing, last)]
    assert statuses == ["done", "pending", "done"]
    await world.sql("DROP TRIGGER refuse ON refund_request")
    await pass_time(world, minutes=11)
    assert (await read(world, failing))["refundedCents"] == 9990
    assert await world.broken() == []


async def test_a_late_look_up_that_cannot_be_made_delays_no_other(world: World, three: list[Json]) -> None:
    """[D-125, D-186]"""
    first, failing, last = three
    double = await double_silently(world, last)
    await world.sql(
        """
        INSERT INTO late_charge_check (account_id, charge_id, connection_id, next_check_at)
        SELECT c.account_id, c.charge_id, c.connection_id, c.created_at FROM charge c
        ON CONFLICT (account_id, charge_id) DO UPDATE SET next_check_at = EXCLUDED.next_check_at
        """
    )
    await make_unreadable(world, failing)

    with captured_logs() as logs:
        await world.run("reconciliation")

    assert logs.getvalue().count("charge.late_check_put_off") == 1
    assert await second_charge_events(world) == [double]
    made = await world.sql("SELECT charge_id FROM late_charge_check WHERE checks_made > 0")
    of_failing = {
        each["charge_id"] for each in await stored_charges(world) if each["invoice_id"] == failing["id"]
    }
    assert len(made) >= 1
    assert not of_failing & {str(row["charge_id"]) for row in made}
    await mend_names(world)
    assert [(await read(world, each))["status"] for each in (first, failing)] == ["issued", "issued"]
    assert await world.broken() == []


async def test_a_look_that_cannot_be_made_delays_no_other(world: World, three: list[Json]) -> None:
    """PostgreSQL refuses to delete the row of one unmatched charge, so the look fails. [D-162, D-186]"""
    first, failing, _ = three
    double = await double_silently(world, first)
    await world.sql(
        """
        INSERT INTO unmatched_charge (account_id, connection_id, gateway_charge_id, found_at, next_look_at)
        SELECT v.account_id, v.connection_id, unnest($1::text[]), v.created_at, v.created_at
        FROM invoice v WHERE v.invoice_id = $2::text::uuid
        """,
        [failing["gatewayInvoiceId"], double],
        first["id"],
    )
    await refuse(
        world, "unmatched_charge", "DELETE", f"OLD.gateway_charge_id = '{failing['gatewayInvoiceId']}'"
    )

    with captured_logs() as logs:
        await world.run("reconciliation")

    assert logs.getvalue().count("charge.look_put_off") == 1
    assert await second_charge_events(world) == [double]
    assert {each["chargeId"]: each["status"] for each in await charges(world)}[double] == "canceled"
    assert await world.broken() == []


async def test_a_listed_charge_that_cannot_be_compared_does_not_stop_the_sweep(
    world: World, three: list[Json]
) -> None:
    """[D-161, D-186]"""
    failing = three[1]
    await pay_silently(world)
    await refuse(world, "invoice", "UPDATE", f"NEW.invoice_id = '{failing['id']}'")

    with captured_logs() as logs:
        await sweep(world)

    assert logs.getvalue().count("sweep.charge_skipped") == 1
    assert [(await read(world, each))["status"] for each in three] == ["paid", "issued", "paid"]
    assert (await stored_sweep(world))["started_at"] is None
    await world.sql("DROP TRIGGER refuse ON invoice")
    await sweep(world)
    assert (await read(world, failing))["status"] == "paid"
    assert await world.broken() == []


async def test_a_charge_that_the_list_lacks_and_that_cannot_be_polled_does_not_stop_the_sweep(
    world: World, three: list[Json]
) -> None:
    """[D-161, D-186]"""
    failing = three[1]
    await world.run()
    await pass_time(world, days=2)
    await world.sql("DELETE FROM sandbox_charge")
    await world.sql("UPDATE charge SET listed_at = NULL")
    await refuse(world, "invoice", "UPDATE", f"NEW.invoice_id = '{failing['id']}'")

    with captured_logs() as logs:
        await sweep(world)

    assert logs.getvalue().count("sweep.charge_skipped") == 1
    assert logs.getvalue().count("sweep.charge_not_listed") == 3
    assert (await stored_sweep(world))["started_at"] is None
