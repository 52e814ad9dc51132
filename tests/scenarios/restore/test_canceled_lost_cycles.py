"""`fatura restored` finds the charge of a lost cycle. A canceled subscription's lost cycle is not billed again."""

from collections.abc import AsyncGenerator
from uuid import UUID

import pytest

from fatura.domain.audit import Actor, ActorKind
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, PermanentError
from fatura.usecases.restore import comparison
from fatura.usecases.restore.matching import MatchKind
from fatura.usecases.subscriptions import erased_list
from fatura.usecases.subscriptions.erased_list import Applied, Result
from tests.support.erasure_steps import CUSTOMER
from tests.support.restore_steps import compare, create_unmatched_charge, lost_invoice_id
from tests.support.sandbox_steps import connection_id, queue_fault
from tests.support.world import Json, World

CANCELED = "its subscription is canceled and will not be billed again"
TRACKED = "restored_charges_are_tracked"


async def lost_charge(world: World) -> tuple[Json, str]:
    """Return a subscription, and the gateway's id of a charge of its lost first cycle."""
    await world.set_up_gateway(behaviour="never_pay")
    subscription = await world.enroll(await world.plan(), customer=CUSTOMER)
    charge = await create_unmatched_charge(world, await lost_invoice_id(world, subscription), 9990)
    return subscription, charge.charge_id


async def apply(world: World, subscription: Json) -> Applied:
    """Erase the subscription's customer, as `fatura erased apply` does."""
    customer_id = UUID(subscription["customer"]["id"])
    asked_by = Actor(ActorKind.OPERATOR, "root")
    return await erased_list.apply(world.deps, world.account_id, customer_id, asked_by=asked_by)


@pytest.mark.parametrize("is_erased", [False, True])
async def test_a_repeat_reports_the_charge_of_a_subscription_canceled_in_between(
    world: World, *, is_erased: bool
):
    """`fatura check` reports the cycle until a comparison reports the charge. A dry run is not enough.
    [D-123, D-230]
    """
    subscription, charge = await lost_charge(world)
    await world.made(f"/v1/sandbox/charges/{charge}/pay")
    assert (await compare(world)).counts == {MatchKind.LOST: 1}
    if is_erased:
        await apply(world, subscription)
    else:
        await world.made(f"/v1/subscriptions/{subscription['id']}/cancel")
    assert await world.broken() == [TRACKED]

    assert (await compare(world, dry_run=True)).counts == {MatchKind.UNMATCHED: 1}
    assert await world.broken() == [TRACKED]
    for _ in range(2):
        report = await compare(world)
        assert [(each.charge.charge_id, each.why) for each in report.unmatched] == [(charge, CANCELED)]
        assert await world.broken() == []
    await world.advance(days=3)
    assert await world.invoices(subscription) == []
    assert await world.broken() == []


async def test_a_cycle_is_forgotten_even_if_its_charge_is_no_longer_at_the_gateway(world: World):
    """[D-123]"""
    subscription, _ = await lost_charge(world)
    await compare(world)
    await world.made(f"/v1/subscriptions/{subscription['id']}/cancel")
    await world.sql("DELETE FROM sandbox_charge")
    assert (await compare(world)).counts == {}
    assert await world.broken() == []


async def test_a_cycle_is_not_forgotten_if_a_later_since_misses_its_charge(world: World):
    """[D-123]"""
    subscription, charge = await lost_charge(world)
    await world.made(f"/v1/sandbox/charges/{charge}/pay")
    await compare(world)
    await world.made(f"/v1/subscriptions/{subscription['id']}/cancel")
    await world.sql("UPDATE sandbox_charge SET created_at = created_at - interval '3 hours'")
    await comparison.freeze(world.deps, world.account_id)

    report = await comparison.compare(world.deps, world.account_id, since=world.deps.clock())

    assert report.unmatched == []
    assert await world.broken() == ["restored_charges_are_tracked"]


async def test_a_cycle_is_not_forgotten_before_its_charge_is_reported(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Three comparisons do not report the charge of the canceled subscription.

    In the first one, the cancellation comes after the match. In the second one, the gateway's list fails. The third
    one skips the connection. [D-123]
    """
    subscription, charge = await lost_charge(world)
    trace = comparison._trace

    async def trace_then_cancel(compared: comparison._Comparison) -> None:
        await trace(compared)
        await world.made(f"/v1/subscriptions/{subscription['id']}/cancel")

    with monkeypatch.context() as patched:
        patched.setattr(comparison, "_trace", trace_then_cancel)
        assert (await compare(world)).counts == {MatchKind.LOST: 1}
    assert await world.broken() == [TRACKED]
    await queue_fault(world, "list_charges", "server_error")
    assert len((await compare(world)).problems) == 1
    assert TRACKED in await world.broken()
    skipping = {UUID(await connection_id(world))}
    await comparison.compare(world.deps, world.account_id, since=world.deps.clock(), skipping=skipping)
    assert await world.broken() == [TRACKED]

    assert [each.charge.charge_id for each in (await compare(world)).unmatched] == [charge]
    assert await world.broken() == []


@pytest.mark.parametrize("paid_cents", [None, 4000])
async def test_a_canceled_charge_of_a_canceled_subscription_is_reported_only_if_it_was_paid(
    world: World, paid_cents: int | None
):
    """[D-123, D-230]"""
    subscription, charge = await lost_charge(world)
    await cancel(world, charge, paid_cents)
    await apply(world, subscription)

    report = await compare(world)

    assert report.counts == {MatchKind.UNMATCHED if paid_cents else MatchKind.CANCELED: 1}
    assert [each.why for each in report.unmatched] == ([CANCELED] if paid_cents else [])
    assert await world.broken() == []


async def cancel(world: World, charge: str, paid_cents: int | None) -> None:
    """Cancel a charge at the gateway, after a part payment if one is given."""
    if paid_cents:
        await world.made(f"/v1/sandbox/charges/{charge}/pay", {"amountCents": paid_cents})
    await world.made(f"/v1/sandbox/charges/{charge}/cancel")


async def test_the_invoice_of_a_lost_cycle_records_the_part_payment_of_its_canceled_charge(world: World):
    """[D-123, D-50]"""
    subscription, charge = await lost_charge(world)
    await cancel(world, charge, 4000)
    assert (await compare(world)).counts == {MatchKind.LOST: 1}
    await world.run()

    [invoice] = await world.invoices(subscription)
    assert (invoice["gatewayInvoiceId"], invoice["paidCents"]) == (charge, 4000)
    assert await world.broken() == []


async def test_every_call_lists_all_open_invoices_of_an_erased_customer(world: World):
    """The output of the first call may be lost, so a second call lists the invoices again. Both calls list all 21
    invoices, although an error message would show fewer. [D-230]
    """
    plan = await world.plan()
    subscriptions = [await world.enroll(plan, customer=CUSTOMER) for _ in range(21)]
    await world.run("generation")
    opened = sorted(UUID(each["id"]) for each in await world.invoices())
    assert len(opened) == 21

    assert await apply(world, subscriptions[0]) == Applied(Result.ERASED, 21, opened)
    assert await apply(world, subscriptions[0]) == Applied(Result.ERASED_BEFORE, 0, opened)
    await world.made(f"/v1/invoices/{opened[0]}/cancel")
    assert (await apply(world, subscriptions[0])).open_invoice_ids == opened[1:]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (
            PermanentError("rejected", "no access to Ana Souza", http_status=403),
            "refuses the call (HTTP 403)",
        ),
        (TimeoutError("Ana Souza"), "no answer within 20 s"),
    ],
)
async def test_a_problem_of_a_connection_contains_no_text_of_the_provider(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
):
    """The text may name an erased customer. [D-123, D-229]"""
    await lost_charge(world)

    async def failing(_gateway: SandboxGateway, _since: object) -> AsyncGenerator[Charge]:
        raise error
        yield

    monkeypatch.setattr(SandboxGateway, "charges_since", failing)
    [problem] = (await compare(world)).problems

    assert problem.startswith(f"connection {await connection_id(world)}: list_charges: ")
    assert problem.endswith(why)
    assert "Ana" not in problem
