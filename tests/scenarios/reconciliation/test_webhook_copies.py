"""Copies of an authentic webhook do not stop the connection's other work (D-35, D-162)."""

import pytest

from fatura.domain.account import Account
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, InvalidAnswerError
from fatura.store.accounts import accounts
from fatura.usecases.reconciliation import polling
from tests.support.sandbox_steps import issued_invoice, pass_time, read
from tests.support.sweep_steps import double_silently
from tests.support.webhook_steps import (
    budget_free,
    hook,
    issued_with_webhooks,
    named_by_webhook,
    paid_unnoticed,
)
from tests.support.world import Json, World

ONE_POLL_PER_SECOND = "UPDATE connection_health SET polls_per_minute = 60"
ALL_LOOKS_DUE = "UPDATE unmatched_charge SET next_look_at = '2000-01-01' WHERE next_look_at IS NOT NULL"
UNKNOWN_CHARGE, OTHER_UNKNOWN_CHARGE = f"sbx_{1:032x}", f"sbx_{2:032x}"


@pytest.fixture
async def issued(world: World) -> Json:
    return await issued_with_webhooks(world)


@pytest.mark.parametrize("case", ["during each poll", "invalid answers"])
async def test_copies_do_not_stop_the_poll_of_another_named_charge(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """The budget allows one poll per second. Copies of a webhook that names the first charge keep arriving.

    [D-35 webhook fair]
    """
    other = await issued_invoice(world)
    await paid_unnoticed(world, other)
    await world.sql(ONE_POLL_PER_SECOND)
    copy, get_charge = await hook(world, issued), SandboxGateway.get_charge

    async def answer(self: SandboxGateway, charge_id: str) -> Charge:
        if charge_id == issued["gatewayInvoiceId"]:
            if case == "during each poll":
                await copy.send(world)
            if case == "invalid answers":
                raise InvalidAnswerError("the amount is not a number")
        return await get_charge(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", answer)
    await copy.send(world)
    await named_by_webhook(world, other)
    for _ in range(3):
        await copy.send(world)
        await budget_free(world)
        await world.run("reconciliation")
    assert (await read(world, other))["status"] == "paid"


async def test_copies_about_many_charges_do_not_stop_the_poll_of_another_named_charge(
    world: World, issued: Json
) -> None:
    """Webhooks name four charges, as many as one batch claims. After them, a webhook names a fifth charge.

    [D-35 webhook fair]
    """
    copied = [issued, *[await issued_invoice(world) for _ in range(3)]]
    other = await issued_invoice(world)
    await paid_unnoticed(world, other)
    await world.sql(ONE_POLL_PER_SECOND)
    for _ in range(len(copied) + 1):
        for each in [*copied, other]:
            await named_by_webhook(world, each)
        await budget_free(world)
        await polling.reconcile(world.deps, await account_of(world), limit=4)
    assert (await read(world, other))["status"] == "paid"


@pytest.mark.faults
async def test_copies_about_issued_invoices_do_not_stop_the_polls_of_overdue_ones(
    world: World, issued: Json
) -> None:
    """No budget limits the polls, but one batch cannot poll all named charges. [D-35 webhook fair]"""
    await pass_time(world, days=6)
    assert (await read(world, issued))["status"] == "overdue"
    copied = [await issued_invoice(world) for _ in range(8)]
    await paid_unnoticed(world, issued)
    await world.sql(
        "UPDATE invoice SET next_attempt_at = created_at WHERE invoice_id = $1::text::uuid", issued["id"]
    )
    for each in copied:
        await named_by_webhook(world, each)
    await polling.reconcile(world.deps, await account_of(world), limit=4)
    assert (await read(world, issued))["status"] == "paid"


@pytest.mark.faults
async def test_due_issued_invoices_do_not_stop_the_polls_of_overdue_ones(world: World, issued: Json) -> None:
    """The invoices whose polls have been due longest are polled first, whatever their states. [D-35 polling]"""
    await pass_time(world, days=6)
    for _ in range(8):
        await issued_invoice(world)
    await paid_unnoticed(world, issued)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    assert await polling.reconcile(world.deps, await account_of(world), limit=4) == 4
    assert (await read(world, issued))["status"] == "paid"


async def test_a_batch_has_no_free_places_while_invoices_are_due(world: World, issued: Json) -> None:
    """[D-35 polling]"""
    invoices = [issued, *[await issued_invoice(world) for _ in range(7)]]
    for each in invoices:
        await named_by_webhook(world, each)
    account = await account_of(world)
    assert await polling.reconcile(world.deps, account, limit=4) == 4
    await world.sql("UPDATE invoice SET next_attempt_at = created_at, polls_first = false")
    assert await polling.reconcile(world.deps, account, limit=4) == 4


async def test_each_named_poll_ends_the_priority_of_the_charge(world: World, issued: Json) -> None:
    """One batch polls all charges that webhooks named. Then no charge has priority. [D-35 webhook first]"""
    invoices = [issued, *[await issued_invoice(world) for _ in range(3)]]
    for each in invoices:
        await named_by_webhook(world, each)
    assert await polling.reconcile(world.deps, await account_of(world), limit=4) == 4
    assert await world.sql("SELECT FROM invoice WHERE polls_first") == []


async def test_a_webhook_during_a_poll_gives_the_next_poll_priority(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-35 webhook first]"""
    get_charge = SandboxGateway.get_charge

    async def named_again(self: SandboxGateway, charge_id: str) -> Charge:
        await named_by_webhook(world, issued)
        return await get_charge(self, charge_id)

    await named_by_webhook(world, issued)
    with monkeypatch.context() as patched:
        patched.setattr(SandboxGateway, "get_charge", named_again)
        await polling.reconcile(world.deps, await account_of(world), limit=4)
    assert len(await world.sql("SELECT FROM invoice WHERE polls_first")) == 1
    assert await world.run("reconciliation") == 1
    assert await world.sql("SELECT FROM invoice WHERE polls_first") == []


async def test_polls_that_use_up_the_budget_do_not_stop_looks(world: World, issued: Json) -> None:
    """[D-162, D-35 webhook]"""
    second = await double_silently(world, issued, status="paid")
    await world.sql(ONE_POLL_PER_SECOND)
    await named_by_webhook(world, {"gatewayInvoiceId": second})
    for _ in range(3):
        await named_by_webhook(world, issued)
        await budget_free(world)
        await world.sql(ALL_LOOKS_DUE)
        await world.run("reconciliation")
    found = await read(world, issued)
    assert (found["status"], len(found["payments"])) == ("paid", 1)


async def test_looks_leave_half_of_the_budget_to_polls(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two looks and one poll are due. Each of the two runs has a budget of one call. [D-162, D-35 webhook]"""
    get_charge = SandboxGateway.get_charge
    asked: list[str] = []

    async def counted(self: SandboxGateway, charge_id: str) -> Charge:
        asked.append(charge_id)
        return await get_charge(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", counted)
    await world.sql(ONE_POLL_PER_SECOND)
    for each in (UNKNOWN_CHARGE, OTHER_UNKNOWN_CHARGE, issued["gatewayInvoiceId"]):
        await named_by_webhook(world, {"gatewayInvoiceId": each})
    for _ in range(2):
        await budget_free(world)
        await world.sql(ALL_LOOKS_DUE)
        await world.run("reconciliation")
    assert [each == issued["gatewayInvoiceId"] for each in asked] == [False, True]


@pytest.mark.usefixtures("issued")
async def test_a_look_that_the_budget_refuses_stays_due(world: World) -> None:
    """The look is made as soon as the budget allows it. Until then, nothing is written. [D-162, D-55 budget]"""
    await world.sql(
        "UPDATE connection_health SET polls_per_minute = 60, polls_from = now() + interval '1 minute'"
    )
    await named_by_webhook(world, {"gatewayInvoiceId": UNKNOWN_CHARGE})
    await world.sql(ALL_LOOKS_DUE)
    written = "SELECT xmin::text, next_look_at FROM unmatched_charge"
    before = await world.sql(written)
    assert await world.run("reconciliation") == 0
    assert await world.sql(written) == before
    await budget_free(world)
    assert await world.run("reconciliation") == 1
    [looked_at] = await world.sql("SELECT unknown_since IS NOT NULL FROM unmatched_charge")
    assert looked_at[0]


async def test_a_test_clock_waits_for_the_budget(world: World, issued: Json) -> None:
    """[D-55 budget, D-45]"""
    await paid_unnoticed(world, issued)
    await world.sql(
        "UPDATE connection_health SET polls_per_minute = 60, polls_from = now() + interval '0.3 seconds'"
    )
    await pass_time(world, days=1)
    assert (await read(world, issued))["status"] == "paid"


async def account_of(world: World) -> Account:
    async with world.deps.db.transaction(world.account_id) as tx:
        account = await accounts.load(tx)
    assert account is not None
    return account
