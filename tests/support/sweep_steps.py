"""Steps of the sweep scenarios: change charges at the gateway without a webhook, and run the nightly sweep."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox import tables
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, ChargeRequest, ChargeState, ConnectionConfig, PermanentError
from tests.support.sandbox_steps import (
    charges,
    pass_time,
    patch_connection,
    queue_fault,
    ready_invoice,
    stored_charges,
)
from tests.support.world import Json, World

DOUBLE = """
    INSERT INTO sandbox_charge (account_id, charge_id, connection_id, invoice_id, attempt, amount_cents, currency,
        payment_method, due_date, status, entries, is_double, created_at)
    SELECT account_id, $2::text, connection_id, invoice_id, attempt, amount_cents, currency, payment_method, due_date,
        $3::text, CASE $3::text WHEN 'paid' THEN jsonb_build_array(jsonb_build_object('kind', 'payment',
            'reference', 'of_the_double', 'amount_cents', amount_cents, 'occurred_at', created_at)) ELSE '[]' END,
        true, created_at
    FROM sandbox_charge WHERE charge_id = $1
"""
DOUBLE_ID = f"sbx_{0xF << 124:032x}"
TRIPLE_ID = f"sbx_{0xE << 124:032x}"
NO_SWEEP = "UPDATE connection_sweep SET next_sweep_at = '2900-01-01'"


async def double_silently(
    world: World, invoice: Json, *, status: str = "open", charge_id: str = DOUBLE_ID
) -> str:
    """Create a second charge of an issued invoice at the gateway without notifying the engine.

    Return the charge's id.
    """
    await world.sql(DOUBLE, invoice["gatewayInvoiceId"], charge_id, status)
    return charge_id


async def two_charges(world: World, **settings: Json) -> tuple[Json, str, str]:
    """Return an invoice with two charges at the gateway, and the ids of these charges, the older one first.

    The engine got no answer to its request for the older charge.
    """
    await world.set_up_gateway(behaviour="never_pay", **settings)
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    [lost] = await charges(world)
    return invoice, lost["chargeId"], await double_silently(world, {"gatewayInvoiceId": lost["chargeId"]})


async def believe_absent(world: World) -> None:
    """Hide a charge from look-ups until the engine believes that it is absent.

    Also deactivate the connection, so that the engine does not repeat the request.
    """
    await queue_fault(world, "list_charges", "unknown", times=3)
    await pass_time(world, seconds=81)
    await patch_connection(world, active=False)
    await pass_time(world, seconds=61)
    assert [each["stage"] for each in await stored_charges(world)] == ["absent"]


async def cancel_with_refund(world: World, charge_id: str) -> None:
    """Cancel a charge silently, and add a refund although nothing was paid. The gateway's answers become invalid."""
    await world.sql(
        """
        UPDATE sandbox_charge SET status = 'canceled', entries = jsonb_build_array(jsonb_build_object(
            'kind', 'refund', 'reference', 'r', 'amount_cents', 1, 'occurred_at', created_at
        )) WHERE charge_id = $1
        """,
        charge_id,
    )


async def hide_payment(world: World, charge_id: str) -> None:
    """Silently mark a charge as paid, but without a payment. The gateway's answers about it become invalid."""
    await world.sql(
        "UPDATE sandbox_charge SET status = 'paid', entries = '[]' WHERE charge_id = $1", charge_id
    )


async def show_payment(world: World, charge_id: str, *, cents: int = 9990) -> None:
    """Silently give a charge one payment of `cents` as its only entry. The charge keeps its status."""
    await world.sql(
        """
        UPDATE sandbox_charge SET entries = jsonb_build_array(jsonb_build_object('kind', 'payment',
            'reference', charge_id, 'amount_cents', $2::int, 'occurred_at', created_at)) WHERE charge_id = $1
        """,
        charge_id,
        cents,
    )


def show_expired(monkeypatch: pytest.MonkeyPatch, charge_id: str) -> None:
    """Let the gateway show an open charge as expired."""
    find, get = SandboxGateway.find_charges, SandboxGateway.get_charge

    def shown(charge: Charge) -> Charge:
        is_expired = charge.charge_id == charge_id and charge.state is ChargeState.OPEN
        return replace(charge, state=ChargeState.EXPIRED) if is_expired else charge

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        return [shown(each) for each in await find(self, invoice_id, attempt)]

    async def get_charge(self: SandboxGateway, wanted: str) -> Charge:
        return shown(await get(self, wanted))

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)


async def sweep(world: World) -> None:
    """Make the sweeps of all connections due and run them. Then reconcile the charges that the sweeps found."""
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2000-01-01'")
    await world.run("sweep")
    await world.sql("UPDATE unmatched_charge SET next_look_at = '2000-01-01' WHERE next_look_at IS NOT NULL")
    await world.run("reconciliation")


async def stored_sweep(world: World) -> Json:
    """Return the row of the account's only sweep."""
    (row,) = await world.sql("SELECT * FROM connection_sweep")
    return dict(row)


async def second_charge_events(world: World) -> list[str]:
    """Return the gateway's ids of the reported second charges."""
    errors = [each["data"]["error"] for each in await world.events("invoice.issue_failed")]
    assert {each["code"] for each in errors} <= {"second_charge"}
    return [each["gatewayInvoiceId"] for each in errors]


async def share_provider_account(world: World, monkeypatch: pytest.MonkeyPatch) -> str:
    """Add a connection that shares the first connection's account at the provider. Return the new connection's id."""
    first = UUID((await world.get("/v1/integration")).json["gateways"][0]["connectionId"])
    second = (await world.connect(behaviour="never_pay"))["connectionId"]
    open_gateway = SandboxGateway.__init__

    def shared(self: SandboxGateway, database: tables.Database, config: ConnectionConfig) -> None:
        open_gateway(self, database, replace(config, connection_id=first))

    monkeypatch.setattr(SandboxGateway, "__init__", shared)
    return second


def during_the_look_up(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Awaitable[None]]) -> None:
    """Call `work` after the gateway has answered the first look-up, and before the engine records the answer."""
    find, answered = SandboxGateway.find_charges, list[UUID]()

    async def find_slowly(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        found = await find(self, invoice_id, attempt)
        answered.append(invoice_id)
        if len(answered) == 1:
            await work()
        return found

    monkeypatch.setattr(SandboxGateway, "find_charges", find_slowly)


async def hide_first_charge(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[Json, str]:
    """Create a charge, lose the gateway's answer, and hide the charge from the next three look-ups.

    The gateway refuses another charge with the same reference. Return the invoice, and the charge's id at the gateway.
    """
    await world.set_up_gateway(behaviour="never_pay")
    create = SandboxGateway.create_charge

    async def create_first(gateway: SandboxGateway, request: ChargeRequest) -> Charge:
        if request.attempt == 1 and await world.sql("SELECT FROM sandbox_charge"):
            raise PermanentError("reference_taken", "There is a charge with this reference.")
        return await create(gateway, request)

    monkeypatch.setattr(SandboxGateway, "create_charge", create_first)
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    [first] = await charges(world)
    await queue_fault(world, "list_charges", "unknown", times=3)
    return invoice, first["chargeId"]


async def missing_charges(world: World, **settings: Json) -> tuple[Json, str, str]:
    """Return an invoice, the id of its canceled charge, and the id of its invalid charge.

    The engine has parked the invoice's attempt as `charge_missing`.
    """
    invoice, one, hidden = await two_charges(world, **settings)
    await world.post(f"/v1/sandbox/charges/{one}/cancel")
    await hide_payment(world, hidden)
    await world.sql(NO_SWEEP)
    await pass_time(world, hours=2, minutes=30)
    [parked] = await stored_charges(world)
    assert (parked["stage"], parked["error_code"]) == ("parked", "charge_missing")
    return invoice, one, hidden
