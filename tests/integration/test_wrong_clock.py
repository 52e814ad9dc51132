"""A host whose clock is wrong changes no data. A lease that such a host has set blocks no other worker (D-5)."""

import asyncio
import re
from dataclasses import replace
from datetime import timedelta
from inspect import getsource

import pytest

from fatura.bootstrap import real_clock, wire
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.store import discovery
from fatura.store.leases import LONGEST_LEASE
from fatura.usecases.database_clock import DatabaseClock
from fatura.usecases.deps import Deps
from fatura.workers.lanes import LANES
from fatura.workers.loop import POLL_SECONDS, Loop
from tests.scenarios.charging.test_repeated_creates import know_repeats
from tests.support.captured_logs import captured_logs
from tests.support.fatura_processes import environment, run_here
from tests.support.push_steps import emit, register
from tests.support.receiver import Receiver
from tests.support.sandbox_steps import (
    charges,
    end_leases,
    pass_time,
    queue_fault,
    read,
    reads_held,
    ready_invoice,
    row_held,
    until_waiting,
)
from tests.support.world import LANE, World, api_client, run_until_idle

AHEAD = timedelta(days=40)
_LEASED = "SELECT count(*) FROM invoice WHERE lease_until IS NOT NULL"


def with_clock_set(world: World, *, by: timedelta = AHEAD) -> Deps:
    """Return the dependencies of a host whose clock is ahead of real time by `by`."""
    clock = world.deps.clock
    return replace(world.deps, clock=DatabaseClock(lambda: clock() + by))


def with_settable_clock(world: World) -> tuple[Deps, list[timedelta]]:
    """Return the dependencies of a host, and a list whose only item says how far the host's clock is ahead."""
    ahead, clock = [timedelta()], world.deps.clock
    return replace(world.deps, clock=DatabaseClock(lambda: clock() + ahead[0])), ahead


async def work(deps: Deps) -> None:
    """Run a worker long enough for each lane to poll twice."""
    stop = asyncio.Event()
    running = asyncio.create_task(Loop(deps, LANES).run(stop))
    await asyncio.sleep(2 * POLL_SECONDS)
    stop.set()
    await running


async def count(world: World, statement: str) -> int:
    return (await world.sql(statement))[0][0]


@pytest.mark.faults
@pytest.mark.parametrize("by", [AHEAD, -AHEAD], ids=["ahead", "behind"])
async def test_a_worker_with_a_wrong_clock_changes_nothing(world: World, by: timedelta) -> None:
    """Without a check, a clock 40 days ahead would make invoices overdue and delete idempotency keys. [D-5, D-26]"""
    await world.set_up_gateway(behaviour="never_pay", productCatalog=True)
    await world.enroll(await world.plan())
    await world.run()
    await world.enroll(await world.plan(await world.product(), await world.variable_product()))
    [invoice] = await world.invoices()
    keys = await count(world, "SELECT count(*) FROM idempotency_key")

    await work(with_clock_set(world, by=by))

    assert [each["status"] for each in await world.invoices()] == [invoice["status"]] == ["issued"]
    assert await count(world, "SELECT count(*) FROM idempotency_key") == keys > 0
    assert await count(world, _LEASED) == 0
    assert await world.run("generation") == 1
    assert await world.broken() == []


async def test_the_api_of_a_host_with_a_wrong_clock_only_reads(world: World) -> None:
    """[D-5, D-12]"""
    plan = await world.plan()
    subscription = await world.enroll(plan)
    before = await world.sql("SELECT * FROM api_key"), await world.events()
    async with api_client(with_clock_set(world)) as client:
        sent = {"Authorization": f"Bearer {world.api_key}", "Idempotency-Key": "k"}
        read = await client.get(f"/v1/subscriptions/{subscription['id']}", headers=sent)
        refused = await client.post(f"/v1/subscriptions/{subscription['id']}/cancel", headers=sent)
    assert (read.status_code, read.json()) == (200, subscription)
    assert (refused.status_code, refused.json()["type"]) == (503, "engine.unavailable")
    assert "clock" in refused.json()["detail"]
    assert refused.headers["retry-after"] == "1"
    assert (await world.sql("SELECT * FROM api_key"), await world.events()) == before


async def test_a_batch_that_began_before_the_clock_was_set_changes_nothing(world: World) -> None:
    """The lane finds its work, then the clock is set, then the batch begins. [D-5]"""
    await world.enroll(await world.plan())
    [account] = await LANE["generation"].due(world.deps)
    with pytest.raises(Exception, match="clock differs"):
        await LANE["generation"].run(with_clock_set(world), account)
    assert await world.invoices() == []


async def test_a_clock_that_is_set_during_a_wait_for_a_lock_changes_nothing(world: World) -> None:
    """[D-5]"""
    subscription = await world.enroll(await world.plan())
    deps, ahead = with_settable_clock(world)
    async with api_client(deps) as client:
        sent = {"Authorization": f"Bearer {world.api_key}", "Idempotency-Key": "k"}
        async with row_held(world, "subscription", subscription_id=subscription["id"]):
            path = f"/v1/subscriptions/{subscription['id']}/cancel"
            canceling = asyncio.create_task(client.post(path, headers=sent))
            await until_waiting(world)
            ahead[0] = AHEAD
        refused = await canceling
    assert (refused.status_code, refused.json()["type"]) == (503, "engine.unavailable")
    assert (await world.get(f"/v1/subscriptions/{subscription['id']}")).json["status"] == "active"


async def test_a_request_that_a_wrong_clock_dated_is_not_repeated_after_its_key_expired(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host's clock jumps ahead just before the host sends a request.

    After 30 hours, a gateway that remembers keys for 24 hours must not get the request again. [D-5, D-33]
    """
    await world.set_up_gateway(behaviour="never_pay")
    capabilities = SandboxGateway.capabilities
    key = {"idempotency": "key", "idempotency_ttl": timedelta(hours=24)}
    monkeypatch.setattr(SandboxGateway, "capabilities", lambda gateway: replace(capabilities(gateway), **key))
    invoice = await ready_invoice(world)
    deps, ahead = with_settable_clock(world)
    async with reads_held(world, "payment_entry"):
        issuing = asyncio.create_task(run_until_idle(deps, [LANE["issuance"]]))
        await until_waiting(world)
        ahead[0] = AHEAD
    await issuing
    await queue_fault(world, "create_charge", "timeout_after")
    await end_leases(world)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await world.run("issuance")

    await world.sql("UPDATE charge SET first_sent_at = first_sent_at - interval '30 hours'")
    await pass_time(world, hours=1)
    [charge] = await charges(world)
    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == ("issued", charge["chargeId"])
    assert await world.broken() == []


async def test_a_lost_request_that_a_wrong_clock_dated_is_sent_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host whose clock was 40 days ahead sent a request that never reached the gateway.

    The gateway remembers keys, so the request can be sent again. [D-5, D-33]
    """
    await world.set_up_gateway(behaviour="never_pay")
    know_repeats(monkeypatch)
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_before")
    await world.run("issuance")
    await world.sql("UPDATE charge SET first_sent_at = first_sent_at + $1, sent_at = sent_at + $1", AHEAD)
    await end_leases(world)

    await pass_time(world, days=2)

    [charge] = await charges(world)
    found = await read(world, invoice)
    assert (charge["status"], found["status"]) == ("open", "issued")
    assert found["gatewayInvoiceId"] == charge["chargeId"]
    assert await world.broken() == []


async def test_a_wrong_clock_is_logged_once(world: World) -> None:
    """[D-5]"""
    await world.enroll(await world.plan())
    deps = with_clock_set(world)
    with captured_logs() as logs:
        for _ in range(3):
            assert await LANE["generation"].due(deps) == []
    assert logs.getvalue().count("clock.wrong") == 1


@pytest.mark.parametrize("real_time", [False, True])
async def test_a_lease_that_ends_later_than_any_lease_can_is_expired(
    world: World, receiver: Receiver, *, real_time: bool
) -> None:
    """[D-5, D-34, D-39 one worker]"""
    if real_time:
        await world.sql(
            "UPDATE account SET clock_offset = interval '0' WHERE account_id = $1", world.account_id
        )
    await world.set_up_gateway(productCatalog=True)
    await register(world, receiver)
    await world.enroll(await world.plan(await world.product(), await world.variable_product()))
    await world.enroll(await world.plan())
    await world.run("generation")
    await emit(world, 1)
    for table in ("invoice", "price_pull", "product_mirror", "webhook"):
        await world.sql(f"UPDATE {table} SET lease_until = now() + interval '40 days'")  # noqa: S608 - a constant name
    await world.sql("UPDATE webhook SET leased_by = gen_random_uuid()")
    assert "leases_expire" in await world.broken()

    for lane in ("issuance", "pricing", "mirroring", "push"):
        assert await world.run(lane) > 0, lane
    assert await world.broken() == []


async def test_a_test_clock_with_an_endless_lease_advances(world: World) -> None:
    """[D-45]"""
    await world.sql(
        "UPDATE test_clock SET status = 'advancing', target_at = now(), lease_until = now() + interval '40 days'"
    )
    await world.run("test_clock")
    assert (await world.get("/v1/test-clock")).json["status"] == "ready"


async def test_a_price_call_that_is_open_for_ever_is_lost(world: World) -> None:
    """[D-32]"""
    await world.enroll(await world.plan(await world.variable_product()))
    await world.run("generation")
    await world.run("pricing")
    await world.sql(
        """
        INSERT INTO pricing_attempt
        SELECT (jsonb_populate_record(a, jsonb_build_object(
            'attempt', a.attempt + 1, 'outcome', null, 'response_status', null, 'latency_ms', null,
            'response_body', null, 'open_until', now() + interval '40 days'
        ))).* FROM pricing_attempt a
        """
    )
    await world.sql("UPDATE price_pull SET attempts = attempts + 1")
    await world.run("pricing")
    assert await count(world, "SELECT count(*) FROM pricing_attempt WHERE outcome IS NULL") == 0


def test_discovery_and_claims_agree_on_the_longest_lease() -> None:
    """[D-5]"""
    lengths = set(re.findall(r"interval '(\d+) minutes'", getsource(discovery)))
    assert lengths == {str(LONGEST_LEASE // timedelta(minutes=1))}


def test_a_command_on_a_host_with_a_wrong_clock_says_what_to_do(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-5, D-47]"""
    monkeypatch.setattr(wire, "__kwdefaults__", {"clock": lambda: real_clock() + AHEAD})
    ended = run_here("account", "create", "Clínica", "--mode", "live", env=environment(database_url))
    assert ended.returncode == 1
    said = ended.stderr.splitlines()[-1]
    assert re.fullmatch(r"fatura: this host's clock differs by 34\d{5} s .*; set both by NTP", said)


async def test_a_budget_of_polls_that_begins_later_than_any_budget_can_is_free(world: World) -> None:
    """[D-5]"""
    await world.set_up_gateway(behaviour="never_pay")
    await world.enroll(await world.plan())
    await world.run()
    await world.sql("UPDATE account SET clock_offset = interval '0'")
    await world.sql("UPDATE invoice SET next_attempt_at = now() - interval '2 hours'")
    await world.sql(
        "UPDATE connection_health SET polls_per_minute = 1200, polls_from = now() + interval '40 days'"
    )
    assert "due_work_is_claimed_in_an_hour" in await world.broken()

    assert await world.run("reconciliation") == 1
    [found] = await world.sql(
        "SELECT polls_from < now() + interval '1 minute' AS is_near FROM connection_health"
    )
    assert found["is_near"]
