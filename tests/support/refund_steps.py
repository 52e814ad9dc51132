"""Steps of the refund scenarios: ask for refunds, pay invoices, and read what the sandbox gateway refunded."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from fatura.domain.account import Account
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, RefundRequest, RefundState
from fatura.usecases.merchant_actions import refunds
from fatura.usecases.open_call_limit import Places
from fatura.usecases.payments import refund_calls
from fatura.usecases.transaction import in_transaction
from tests.support.sandbox_steps import issued_invoice, read
from tests.support.world import Answer, Json, Merchant, World


async def refund(merchant: Merchant, invoice: Json, *, key: str = "fresh", **body: Json) -> Answer:
    return await merchant.post(f"/v1/invoices/{invoice['id']}/refunds", body, key=key)


async def pay(world: World, invoice: Json, **body: Json) -> None:
    await world.made(f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/pay", body)
    await world.run("reconciliation")


async def refunded_at_gateway(world: World) -> list[int]:
    """Return the amounts of all refunds in the sandbox gateway."""
    found = await world.sql(
        """
        SELECT (x.entry ->> 'amount_cents')::int AS cents
        FROM sandbox_charge b CROSS JOIN LATERAL jsonb_array_elements(b.entries) AS x (entry)
        WHERE x.entry ->> 'kind' = 'refund' ORDER BY x.entry ->> 'reference'
        """
    )
    return [row["cents"] for row in found]


async def paid_invoice(world: World) -> Json:
    """Return an invoice of 99.90 that was paid through the gateway."""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await pay(world, invoice)
    return await read(world, invoice)


async def store(
    world: World, account: Account, invoice: Json, *, key: str = "once", amount_cents: int | None = None
) -> UUID:
    """Store a refund, as a process does before it leases the refund. Return the refund's id."""
    invoice_id, places = UUID(invoice["id"]), Places(world.deps.gateway_requests, world.account_id)
    start = partial(refunds._start, invoice_id=invoice_id, key=key, amount_cents=amount_cents, reason=None)
    await in_transaction(world.deps, account, partial(start, places=places))
    return world.deps.tagger.request_id("refund", invoice_id, key=key)


async def claim(world: World, account: Account, refund_id: UUID) -> Sequence[refund_calls._Call]:
    """Lease a refund, as a process does before it calls the gateway."""
    places = Places(world.deps.gateway_requests, world.account_id)
    return await in_transaction(world.deps, account, refund_calls._claim_one, refund_id, places)


def slow(state: RefundState, method: Any) -> Any:
    """Wrap a gateway method. Its answers then show each refund with the state `state` and without a ledger entry."""

    async def shown(gateway: SandboxGateway, asked: RefundRequest | str) -> Charge:
        charge = await method(gateway, asked)
        made = {refund.reference for refund in charge.refunds}
        return replace(
            charge,
            entries=tuple(entry for entry in charge.entries if entry.reference not in made),
            refunds=tuple(
                replace(refund, state=state, reference=None, detail="The payer's bank refuses it.")
                for refund in charge.refunds
            ),
        )

    return shown
