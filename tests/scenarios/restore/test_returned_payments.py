"""A restore finds charges whose payments covered the total and were returned at once (D-150)."""

import pytest

from tests.scenarios.restore.test_canceled_found_charges import canceled_with_another_amount
from tests.scenarios.restore.test_found_charge_answers import hide, stop_sweeps
from tests.scenarios.restore.test_found_charges import TOTAL, two_charges
from tests.support.restore_steps import compare
from tests.support.sandbox_steps import end_leases, read, stored_charges
from tests.support.sweep_steps import sweep
from tests.support.world import World


async def pay_and_return(world: World, charge_id: str, *, back: str = "refund") -> None:
    """Pay a canceled charge at the gateway, and return the money at once by a refund or a dispute."""
    await world.sql(
        """
        UPDATE sandbox_charge SET status = 'canceled', entries = entries || jsonb_build_array(
            jsonb_build_object('kind', 'payment', 'reference', 'late', 'amount_cents', $2::int, 'occurred_at', now()),
            jsonb_build_object('kind', $3::text, 'reference', 'back', 'amount_cents', $2::int, 'occurred_at',
                now() + interval '1 second'))
        WHERE charge_id = $1
        """,
        charge_id,
        TOTAL,
        back,
    )


@pytest.mark.parametrize("back", ["refund", "dispute_opened"])
@pytest.mark.parametrize("is_retried", [False, True])
async def test_an_invoice_adopts_the_charge_that_paid_it(
    world: World, back: str, *, is_retried: bool
) -> None:
    """The charge was parked because of its amount. [D-150, D-170, D-181]"""
    invoice, charge = await canceled_with_another_amount(world)
    await compare(world)
    await world.run()
    await pay_and_return(world, charge, back=back)

    if is_retried:
        await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    else:
        await sweep(world)
    await world.run()

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"], found["paidCents"]) == ("paid", charge, TOTAL)
    assert await world.broken() == []


async def test_an_invoice_adopts_such_a_charge_while_another_found_charge_is_missing(world: World) -> None:
    """Between two look-ups, the payer paid the older charge and got the money back. The newer charge is missing.
    [D-150, D-181]
    """
    invoice, older, newer = await two_charges(world)
    await stop_sweeps(world)
    await compare(world)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled' WHERE charge_id = $1", older)
    await hide(world, newer)
    await world.run("issuance")
    assert [each["looked_up_at"] is not None for each in await stored_charges(world)] == [True]
    await pay_and_return(world, older)
    await world.sql("UPDATE account SET clock_offset = clock_offset + interval '70 minutes'")
    await end_leases(world)

    await world.run("issuance", "reconciliation")

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"], found["paidCents"]) == ("paid", older, TOTAL)
    assert await world.broken() == []
