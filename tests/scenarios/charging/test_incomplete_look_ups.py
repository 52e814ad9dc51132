"""An incomplete late look-up is repeated until a late look-up is complete, and reported after a day (D-125).

A charge is *invalid* while the gateway's answers about it are invalid, for example `paid` without a payment.
"""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import AuthFailedError, Charge, GatewayError, TransientError
from tests.support.reissue_steps import unpaid_invoice
from tests.support.sandbox_steps import cancel, now, pass_time, read
from tests.support.sweep_steps import NO_SWEEP, double_silently, hide_payment, second_charge_events, sweep
from tests.support.world import Json, World

GROWING_PAUSES = 26
"""Maximum number of pauses shorter than a day: a pause is ten minutes, or a quarter of the time since the first."""

pytestmark = pytest.mark.faults


async def _canceled(world: World) -> tuple[Json, str]:
    """Return a canceled invoice, and the id of its charge."""
    invoice = await unpaid_invoice(world)
    assert (await cancel(world, invoice)).status == 200
    await world.sql(NO_SWEEP)
    return invoice, invoice["gatewayInvoiceId"]


async def _hide_from_searches(world: World, charge_id: str) -> None:
    """Change the reference of a charge. A late look-up then has to read the charge by its id."""
    await world.sql("UPDATE sandbox_charge SET attempt = 7 WHERE charge_id = $1", charge_id)


def _fail_reads(
    monkeypatch: pytest.MonkeyPatch, charge_id: str, *, error: GatewayError, times: int | None = None
) -> list[str]:
    """Let reads of this charge raise an error, either `times` times or always.

    Return a list to which each failed read adds the charge's id.
    """
    get, failed = SandboxGateway.get_charge, list[str]()

    async def get_charge(self: SandboxGateway, wanted: str) -> Charge:
        if wanted == charge_id and (times is None or len(failed) < times):
            failed.append(wanted)
            raise error
        return await get(self, wanted)

    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)
    return failed


def _note_searches(monkeypatch: pytest.MonkeyPatch, *, failing: int = 0) -> list[int]:
    """Return a list to which each search adds the number of its attempt. The first `failing` searches fail."""
    find, searches = SandboxGateway.find_charges, list[int]()

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        searches.append(attempt)
        if len(searches) <= failing:
            raise TransientError("one 503")
        return await find(self, invoice_id, attempt)

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    return searches


async def _named(world: World) -> list[tuple[str, str]]:
    """Return the code and the charge of each `invoice.issue_failed`."""
    errors = [each["data"]["error"] for each in await world.events("invoice.issue_failed")]
    return [(each["code"], each["gatewayInvoiceId"]) for each in errors]


async def _planned(world: World) -> tuple[int, timedelta]:
    """Return how many complete late look-ups were made, and the time until the next late look-up."""
    [row] = await world.sql(
        "SELECT checks_made, next_check_at FROM late_charge_check WHERE next_check_at IS NOT NULL"
    )
    return row["checks_made"], row["next_check_at"] - await now(world)


async def test_the_pauses_start_again_after_a_complete_look_up(world: World) -> None:
    """The charge of a canceled invoice is invalid at the first late look-up, and becomes valid.

    The charge is invalid again at the last late look-up, a day later. The pause after this look-up is short, and the
    engine emits no event. [D-125]
    """
    _, own = await _canceled(world)
    await hide_payment(world, own)
    await pass_time(world, minutes=15)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled' WHERE charge_id = $1", own)
    await pass_time(world, hours=23)
    assert await _named(world) == []

    await hide_payment(world, own)
    await pass_time(world, hours=1)
    _, pause = await _planned(world)
    assert pause < timedelta(hours=1)
    await world.sql("UPDATE late_charge_check SET next_check_at = '2000-01-01'")
    await pass_time(world, hours=1)
    assert await _named(world) == []


async def test_a_reported_second_charge_that_is_invalid_for_hours_is_not_reported_again(
    world: World,
) -> None:
    """The engine reports a paid second charge. The second charge is invalid at the last late look-up.

    Two hours later, the gateway shows the payment again. The engine emits no further event. [D-125]
    """
    invoice = await unpaid_invoice(world)
    copy = await double_silently(world, invoice, status="paid")
    await sweep(world)
    await world.sql(NO_SWEEP)
    assert await second_charge_events(world) == [copy]
    await pass_time(world, hours=23)
    [shown] = await world.sql("SELECT entries FROM sandbox_charge WHERE charge_id = $1", copy)
    await hide_payment(world, copy)
    await pass_time(world, hours=2)
    await world.sql("UPDATE sandbox_charge SET entries = $2 WHERE charge_id = $1", copy, shown["entries"])
    await pass_time(world, days=3)
    assert await second_charge_events(world) == [copy]


async def test_a_stored_time_in_the_future_does_not_prevent_growing_pauses(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charge of a canceled invoice stays invalid, so the late look-ups are incomplete.

    A worker whose clock was a year ahead has stored the time of the first incomplete look-up. The pauses between the
    look-ups still grow to a day. One event names the charge. [D-5, D-125]
    """
    _, own = await _canceled(world)
    await hide_payment(world, own)
    await pass_time(world, minutes=15)
    [moved] = await world.sql(
        "UPDATE late_charge_check SET incomplete_since = incomplete_since + interval '365 days' RETURNING *"
    )
    assert moved["incomplete_since"] > await now(world)
    searches = _note_searches(monkeypatch)
    days = 5
    await pass_time(world, days=days)
    assert await _named(world) == [("charge_missing", own)]
    assert len(searches) <= GROWING_PAUSES + days


@pytest.mark.parametrize("days", [20, 403])
async def test_one_failed_search_is_repeated_soon_although_the_charge_is_old(
    world: World, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """The engine requested a charge long ago. Today, the sweep finds a second charge, and late look-ups start.

    The first search fails. This look-up does not count, and the engine soon repeats the look-up. [D-125, D-161]
    """
    invoice = await unpaid_invoice(world)
    await world.sql("ALTER TABLE charge DISABLE TRIGGER USER")
    await world.sql("UPDATE charge SET sent_at = sent_at - make_interval(days => $1)", days)
    await world.sql("ALTER TABLE charge ENABLE TRIGGER USER")
    await double_silently(world, invoice, status="paid")
    await sweep(world)
    await world.sql(NO_SWEEP)
    searches = _note_searches(monkeypatch, failing=1)
    await pass_time(world, minutes=11)
    assert len(searches) == 1
    complete, pause = await _planned(world)
    assert complete == 0
    assert pause <= timedelta(hours=2)


async def test_two_failed_reads_days_apart_cause_no_event(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late look-up of a canceled invoice cannot read the invoice's charge. The next look-ups are complete.

    Days later, a second charge restarts the late look-ups. One read fails again. No event says that a charge is
    missing. [D-125]
    """
    invoice, own = await _canceled(world)
    await _hide_from_searches(world, own)
    failed = _fail_reads(monkeypatch, own, error=TransientError("one 503"), times=1)
    await pass_time(world, days=4)
    assert (failed, await _named(world)) == ([own], [])

    copy = await double_silently(world, invoice, status="paid")
    await world.sql("UPDATE sandbox_charge SET attempt = 1 WHERE charge_id = $1", copy)
    await sweep(world)
    await world.sql(NO_SWEEP)
    failed = _fail_reads(monkeypatch, own, error=TransientError("one 503"), times=1)
    await pass_time(world, minutes=30)
    assert failed == [own]
    assert "charge_missing" not in dict(await _named(world))


async def test_a_refused_read_does_not_hide_the_payment_of_a_copy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway refuses the credentials whenever the engine reads the charge of a canceled invoice.

    The search of a late look-up shows a paid copy of this charge. The engine records the payment. [D-34, D-125]
    """
    invoice, own = await _canceled(world)
    await double_silently(world, invoice, status="paid")
    await _hide_from_searches(world, own)
    failed = _fail_reads(monkeypatch, own, error=AuthFailedError("403"))
    await pass_time(world, days=2)
    assert failed != []
    assert (await read(world, invoice))["paidCents"] == 9990
