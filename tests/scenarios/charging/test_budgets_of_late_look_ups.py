"""Late look-ups use the budget of their connection, and delay neither polls nor looks without end (D-55, D-125)."""

from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from fatura.usecases import due_reconciliation
from fatura.usecases.charging import late_charge_checks
from fatura.usecases.transaction import load_account
from tests.scenarios.reconciliation.test_looks_and_polls import pass_real_time
from tests.scenarios.reconciliation.test_scheduled_looks import other_calls_succeed
from tests.support.sandbox_steps import connection_id, issued_invoice, read
from tests.support.webhook_steps import Hook, budget_free, issued_with_webhooks, paid_unnoticed
from tests.support.world import World

LATE_LOOK_UPS = """
    INSERT INTO late_charge_check (account_id, charge_id, connection_id, next_check_at)
    SELECT c.account_id, c.charge_id, c.connection_id, c.created_at FROM charge c
    ON CONFLICT (account_id, charge_id) DO UPDATE SET next_check_at = EXCLUDED.next_check_at
"""
VERSIONS = "SELECT charge_id, xmin::text FROM late_charge_check ORDER BY charge_id"


def count_searches(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Return a list to which each search adds its invoice."""
    find, searches = SandboxGateway.find_charges, list[UUID]()

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        searches.append(invoice_id)
        return await find(self, invoice_id, attempt)

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    return searches


async def check(world: World) -> int:
    """Run one batch of late look-ups, and return how many were claimed."""
    account = await load_account(world.deps, world.account_id)
    return await late_charge_checks.check(world.deps, account, limit=64)


async def due_late_look_ups(world: World, count: int) -> None:
    """Make a late look-up of each of `count` issued invoices due. The budget is two calls per second."""
    await world.set_up_gateway(behaviour="never_pay")
    for _ in range(count):
        await issued_invoice(world)
    await world.sql(LATE_LOOK_UPS)
    await world.sql("UPDATE connection_health SET polls_per_minute = 120")


async def test_late_look_ups_that_the_budget_does_not_allow_change_no_row(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-55 budget, D-125]"""
    await due_late_look_ups(world, 5)
    searches = count_searches(monkeypatch)
    before = await world.sql(VERSIONS)

    assert await check(world) == 2

    after = await world.sql(VERSIONS)
    assert len(set(before) & set(after)) == 3
    assert await check(world) == 0
    await budget_free(world)
    assert await check(world) == 0  # late look-ups use only half of the budget
    assert await world.sql(VERSIONS) == after
    for claimed in (2, 1, 0):
        await pass_real_time(world, seconds=3)
        assert await check(world) == claimed
    assert len(searches) == len(set(searches)) == 5


async def test_late_look_ups_continue_gradually_after_an_outage(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-55 failing, D-125]"""
    await due_late_look_ups(world, 6)
    searches = count_searches(monkeypatch)
    await world.sql(
        """
        UPDATE connection_health SET failures = 5, probes = 1, failing_since = now(), next_probe_at = '2900-01-01',
            error_code = 'transient', error_detail = 'down'
        """
    )
    assert await check(world) == 6
    assert searches == []
    await other_calls_succeed(world)
    await world.sql("UPDATE late_charge_check SET next_check_at = '2000-01-01'")
    for made in (2, 4, 6, 6):
        await check(world)
        assert len(searches) == made
        await pass_real_time(world, seconds=3)


async def test_a_spent_budget_does_not_stop_the_late_look_ups_of_another_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-55 budget, D-125]"""
    await due_late_look_ups(world, 3)
    other = (await world.connect(behaviour="never_pay"))["connectionId"]
    subscription = await world.enroll(await world.plan(), gatewayConnectionId=other)
    await world.run("generation", "issuance")
    [invoice] = await world.invoices(subscription)
    await world.sql(LATE_LOOK_UPS)
    await world.sql("UPDATE connection_health SET polls_from = now() + interval '1 minute'")
    searches = count_searches(monkeypatch)
    assert await check(world) == 1
    assert searches == [UUID(invoice["id"])]


@pytest.mark.parametrize("polls_per_minute", [60, 300])
@pytest.mark.parametrize("seconds", [1, 3])
async def test_looks_polls_and_late_look_ups_do_not_stop_each_other(
    world: World, monkeypatch: pytest.MonkeyPatch, seconds: int, polls_per_minute: int
) -> None:
    """A worker runs the lane every `seconds` seconds. Looks, polls and late look-ups are always due. [D-55 budget]"""
    issued = await issued_with_webhooks(world)
    connection = await connection_id(world)
    await paid_unnoticed(world, issued)
    await world.sql("UPDATE connection_health SET polls_per_minute = $1", polls_per_minute)
    searches, account = count_searches(monkeypatch), await load_account(world.deps, world.account_id)
    reads, get = list[str](), SandboxGateway.get_charge

    async def get_charge(self: SandboxGateway, charge_id: str) -> Charge:
        reads.append(charge_id)
        return await get(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)
    for _ in range(12):
        body = f'{{"chargeId": "sbx_{uuid4().hex}"}}'.encode()
        assert (await Hook(body, str(world.account_id), connection).send(world)).status == 200
        await world.sql("UPDATE unmatched_charge SET next_look_at = found_at WHERE unknown_since IS NULL")
        await world.sql("UPDATE invoice SET next_attempt_at = created_at")
        await world.sql(LATE_LOOK_UPS)
        await due_reconciliation.run(world.deps, account, limit=64)
        await pass_real_time(world, seconds=seconds)
    assert (await read(world, issued))["status"] == "paid"
    own = issued["gatewayInvoiceId"]
    assert min(len(searches), reads.count(own), len(set(reads) - {own})) >= 2
