"""Make rows that the engine cannot read, to simulate unexpected errors."""

from uuid import UUID

from fatura.store.connections import connections
from tests.support.world import Json, World


async def make_unreadable(world: World, invoice: Json) -> None:
    """Remove the name of the invoice's customer. The engine expects every customer to have a name."""
    await world.sql("ALTER TABLE customer ALTER COLUMN name DROP NOT NULL")
    await world.sql(
        "UPDATE customer SET name = NULL WHERE external_ref = $1", invoice["customer"]["externalRef"]
    )


async def mend_names(world: World) -> None:
    await world.sql("UPDATE customer SET name = 'Ana' WHERE name IS NULL")


async def make_unusable(world: World, connection_id: str) -> None:
    """Store a list as a connection's credentials. The engine expects an object, and raises an unexpected error."""
    await _store_credentials(world, connection_id, b"[]")


async def mend_connection(world: World, connection_id: str) -> None:
    await _store_credentials(world, connection_id, b"{}")


async def _store_credentials(world: World, connection_id: str, plain: bytes) -> None:
    sealed = world.deps.vault.seal(
        plain,
        place=connections.CREDENTIALS_PLACE,
        account_id=world.account_id,
        row_id=str(UUID(connection_id)),
    )
    await world.sql(
        "UPDATE gateway_connection SET credentials_sealed = $1 WHERE connection_id = $2::text::uuid",
        sealed,
        connection_id,
    )
