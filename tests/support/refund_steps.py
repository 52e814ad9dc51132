"""Steps of the refund scenarios: ask for refunds, pay invoices, and read what the sandbox gateway refunded."""

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
