"""Steps of the restore scenarios: create charges that the database lacks, and compare database and gateways."""

from datetime import timedelta
from uuid import UUID, uuid4

from fatura import ids
from fatura.domain.offer import PaymentMethod
from fatura.gateways.port import Charge, ChargeRequest, Gateway, Payer
from fatura.store.connections import connections
from fatura.usecases.connections import gateway_connections
from fatura.usecases.restore import comparison
from fatura.usecases.restore.comparison import RestoreReport
from fatura.usecases.transaction import Work, in_transaction, load_account
from tests.support.sandbox_steps import connection_id, now, read
from tests.support.world import Json, World


async def _open(work: Work, connection_id: str) -> Gateway:
    stored = await connections.find(work.tx, UUID(connection_id))
    assert stored is not None
    opened = gateway_connections.open_gateway(work, stored)
    assert opened is not None
    return opened


async def gateway_of(world: World, connection: str | None = None) -> Gateway:
    """Open the gateway of a connection, by default of the account's first one."""
    account = await load_account(world.deps, world.account_id)
    return await in_transaction(world.deps, account, _open, connection or await connection_id(world))


async def create_unmatched_charge(
    world: World, invoice_id: UUID, cents: int, *, attempt: int = 1, connection: str | None = None
) -> Charge:
    """Create a charge at the gateway, but not in the database, by default on the account's first connection."""
    request = ChargeRequest(
        invoice_id=invoice_id,
        attempt=attempt,
        amount_cents=cents,
        currency="BRL",
        method=PaymentMethod.PIX,
        installments=None,
        due_date=(await now(world)).date() + timedelta(days=9),
        lines=(),
        payer=Payer(uuid4(), "Ana", "ana@example.com", None),
    )
    gateway = await gateway_of(world, connection)
    return await gateway.create_charge(request)


async def compare(world: World, *, dry_run: bool = False) -> RestoreReport:
    """Match the gateway's charges of the last hour to invoices, as `fatura restored` does.

    A dry run writes nothing. Any other run first freezes the account.
    """
    if not dry_run:
        await comparison.freeze(world.deps, world.account_id)
    since = world.deps.clock()
    return await comparison.compare(world.deps, world.account_id, since=since, dry_run=dry_run)


async def issued_by(world: World, invoice: Json) -> str | None:
    """Run the workers, check the invariants, and return the gateway's id of the invoice's charge.

    Return None if the engine has recorded no charge. In this case, the gateway may have several charges.
    """
    await world.run()
    charge_id: str | None = (await read(world, invoice))["gatewayInvoiceId"]
    assert set(await world.broken()) <= ({"one_sandbox_charge_per_invoice"} if charge_id is None else set())
    return charge_id


async def lost_invoice_id(world: World, subscription: Json) -> UUID:
    """Return an id that the invoice of the subscription's first cycle may have had before the restore."""
    billed_at = await now(world) - timedelta(seconds=5)
    (invoice_id,) = ids.invoice_ids(billed_at, [(UUID(subscription["id"]), 1)])
    return invoice_id
