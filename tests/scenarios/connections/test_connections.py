"""After a client changes a gateway connection, Fatura retries the work that failed there. A broken connection stops
no other connection.
"""

from collections import Counter
from dataclasses import asdict, replace
from typing import Any
from uuid import UUID

import pytest

from fatura.domain.credentials import Mode
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Capabilities
from fatura.usecases.connections import gateway_connections
from fatura.usecases.operations import call_counts
from fatura.usecases.transaction import load_account
from tests.support.sandbox_steps import charges, pass_time, queue_fault, read, ready_invoice
from tests.support.world import World


async def _polls(world: World) -> list[object]:
    """Return the instant of each invoice's next poll."""
    return [
        row["at"] for row in await world.sql("SELECT next_attempt_at AS at FROM invoice ORDER BY invoice_id")
    ]


async def _first_connection(world: World) -> str:
    return (await world.get("/v1/integration")).json["gateways"][0]["connectionId"]


async def test_a_new_label_polls_nothing(world: World) -> None:
    """New settings of a sandbox connection cause a poll of its unpaid charges.

    A new label does not. [D-43, D-46]
    """
    await world.set_up_gateway(behaviour="never_pay")
    for _ in range(3):
        await world.enroll(await world.plan())
    await world.advance(days=1)
    before = await _polls(world)
    connection_id = await _first_connection(world)

    await world.patch(f"/v1/integration/gateways/{connection_id}", {"label": "Main"})
    assert await _polls(world) == before

    await world.set_up_gateway(behaviour="pay_at_once")
    await world.run("reconciliation")
    assert {invoice["status"] for invoice in await world.invoices()} == {"paid"}


async def test_new_settings_of_a_live_connection_poll_nothing(world: World) -> None:
    """New settings can change what payers do only in the sandbox. [D-46]"""
    await world.set_up_gateway(behaviour="never_pay")
    for _ in range(3):
        await world.enroll(await world.plan())
    await world.advance(days=1)
    before = await _polls(world)
    account = replace(await load_account(world.deps, world.account_id), mode=Mode.LIVE)
    connection_id = UUID(await _first_connection(world))

    changes = {"settings": {"maxInstallments": 6}}
    changed = await gateway_connections.patch(world.deps, account, connection_id, changes, draft=None)

    assert changed.max_installments == 6
    assert await _polls(world) == before
    assert await world.sql("SELECT FROM poll_round WHERE next_step_at IS NOT NULL") == []


@pytest.mark.parametrize(("stated", "limit"), [({}, 1200), ({"polls_per_minute": 7}, 7)])
async def test_a_new_connection_has_the_budget_of_its_adapter(
    world: World, monkeypatch: pytest.MonkeyPatch, stated: dict[str, Any], limit: int
) -> None:
    """If the adapter states no budget, the connection has a budget of 1,200 polls per minute. [D-55 budget]"""
    sandbox = SandboxGateway.capabilities

    def capabilities(gateway: SandboxGateway) -> Capabilities:
        known = asdict(sandbox(gateway))
        del known["polls_per_minute"]
        return Capabilities(**known, **stated)

    monkeypatch.setattr(SandboxGateway, "capabilities", capabilities)
    connected = await world.connect()

    stored = await world.sql(
        "SELECT polls_per_minute FROM connection_health WHERE connection_id = $1", connected["connectionId"]
    )
    assert [row["polls_per_minute"] for row in stored] == [limit]


def _counted() -> Counter[tuple[str, str]]:
    """Return how many calls to the sandbox gateway this process has counted, by operation and outcome."""
    samples: list[Any] = [
        sample for metric in call_counts.gateway_calls.collect() for sample in metric.samples
    ]
    return Counter(
        {
            (each.labels["operation"], each.labels["outcome"]): int(each.value)
            for each in samples
            if each.name == "fatura_gateway_call_seconds_count" and each.labels["provider"] == "sandbox"
        }
    )


async def test_each_call_to_a_gateway_is_counted_by_operation_and_outcome(world: World) -> None:
    """[D-55 failing]"""
    await queue_fault(world, "create_charge", "rate_limited")
    invoice = await ready_invoice(world)
    before = _counted()
    await world.run("issuance")
    failed = _counted()
    await world.made(f"/v1/invoices/{invoice['id']}/retry-issuance")

    assert failed - before == {("create_charge", "failed"): 1}
    assert _counted() - failed == {("create_charge", "answered"): 1}


async def test_a_refused_product_is_mirrored_after_the_connection_changed(world: World) -> None:
    """[spec 2.2 mirroring]"""
    await world.set_up_gateway(productCatalog=True)
    fault = {
        "connectionId": await _first_connection(world),
        "operation": "create_product",
        "fault": "rejected",
    }
    await world.post("/v1/sandbox/faults", fault)
    product = await world.product(name="Gold")
    await world.run("mirroring")
    assert (await world.get("/v1/sandbox/products")).json["data"] == []

    await world.set_up_gateway(productCatalog=True)
    await world.run("mirroring")
    await world.patch(f"/v1/products/{product['id']}", {"name": "Platinum"})
    await world.run("mirroring")

    (mirrored,) = (await world.get("/v1/sandbox/products")).json["data"]
    assert mirrored["name"] == "Platinum"


@pytest.mark.faults
async def test_unreadable_credentials_stop_only_their_own_connection(world: World) -> None:
    """[D-34, D-45]"""
    plan = await world.plan()
    broken, sound = await _first_connection(world), (await world.connect())["connectionId"]
    waiting = await world.enroll(plan, gatewayConnectionId=broken)
    billed = await world.enroll(plan, gatewayConnectionId=sound)
    await world.sql(
        "UPDATE gateway_connection SET credentials_sealed = '\\x00' WHERE connection_id = $1", broken
    )

    answer = await world.advance(days=10)

    assert answer["status"] == "ready"
    assert [invoice["status"] for invoice in await world.invoices(waiting)] == ["ready"]
    assert [invoice["status"] for invoice in await world.invoices(billed)] == ["paid"]
    (emitted,) = await world.events("invoice.issue_delayed")
    assert emitted["data"]["error"]["code"] == "unreadable"

    # If the stored credentials cannot be decrypted, the API accepts a new label but refuses new settings. New
    # credentials repair the connection. [D-43]
    path = f"/v1/integration/gateways/{broken}"
    assert (await world.patch(path, {"label": "Broken"})).status == 200
    refused = await world.patch(path, {"settings": {"maxInstallments": 3}})
    assert (refused.status, refused.type) == (400, "engine.invalid_request")
    assert refused.json["meta"]["fields"][0]["path"] == "credentials"
    assert (await world.patch(path, {"credentials": {}})).status == 200
    await world.run("issuance", "reconciliation")
    assert [invoice["status"] for invoice in await world.invoices(waiting)] == ["paid"]


async def test_a_refusal_lists_a_limited_number_of_settings(world):
    """[D-104]"""
    settings = {f"unknown{number}": 1 for number in range(4000)}
    refused = await world.post(
        "/v1/integration/gateways",
        {"provider": "sandbox", "credentials": {"x" * 100_000: 1}, "settings": settings},
    )
    assert (refused.status, len(refused.json["meta"]["fields"])) == (400, 1000)
    refused = await world.post(
        "/v1/integration/gateways", {"provider": "sandbox", "credentials": {"x" * 100_000: 1}, "settings": {}}
    )
    assert (refused.status, len(refused.body) < 3000) == (400, True)


async def test_settings_of_another_provider_account_are_refused(world: World) -> None:
    """[D-59]"""
    made = await world.connect(providerAccount="acct_1")
    path = f"/v1/integration/gateways/{made['connectionId']}"

    refused = await world.patch(path, {"settings": {"providerAccount": "acct_2"}, "label": "Other"})
    assert (refused.status, refused.type) == (409, "engine.gateway_account_changed")
    refused = await world.patch(
        f"/v1/integration/gateways/{await _first_connection(world)}", {"settings": {"providerAccount": "x"}}
    )
    assert (refused.status, refused.type) == (409, "engine.gateway_account_changed")
    assert (await world.get("/v1/integration/gateways")).json["data"][1] == made

    same = {"settings": {"providerAccount": "acct_1", "maxInstallments": 2}, "credentials": {}}
    assert (await world.patch(path, same)).status == 200
    for wrong in ("", "x" * 121, "a b", 1, None):
        refused = await world.patch(path, {"settings": {"providerAccount": wrong}})
        assert (refused.status, refused.type) == (400, "engine.invalid_request"), wrong


async def test_credentials_of_another_provider_account_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a request for a charge was lost. With other credentials, a look-up would not find this charge.

    So Fatura would request a second charge. [D-59, D-33]
    """
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")

    async def another(_gateway: SandboxGateway) -> str:
        return "acct_2"

    with monkeypatch.context() as patched:
        patched.setattr(SandboxGateway, "check_credentials", another)
        path = f"/v1/integration/gateways/{await _first_connection(world)}"
        refused = await world.patch(path, {"credentials": {}})
    await pass_time(world, minutes=5)

    assert (refused.status, refused.type) == (409, "engine.gateway_account_changed")
    assert (await read(world, invoice))["status"] == "issued"
    assert len(await charges(world)) == 1
