"""Make rows that the engine cannot read, to simulate unexpected errors."""

from tests.support.world import Json, World


async def make_unreadable(world: World, invoice: Json) -> None:
    """Remove the name of the invoice's customer. The engine expects every customer to have a name."""
    await world.sql("ALTER TABLE customer ALTER COLUMN name DROP NOT NULL")
    await world.sql(
        "UPDATE customer SET name = NULL WHERE external_ref = $1", invoice["customer"]["externalRef"]
    )


async def mend_names(world: World) -> None:
    await world.sql("UPDATE customer SET name = 'Ana' WHERE name IS NULL")
