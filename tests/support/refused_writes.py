"""Make PostgreSQL refuse writes of some rows, to simulate unexpected errors."""

from tests.support.world import World


async def refuse(world: World, table: str, event: str, condition: str) -> None:
    """Make PostgreSQL refuse an operation, such as `UPDATE`, on the rows of a table that meet a condition."""
    await world.sql(
        f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF {condition} THEN RAISE EXCEPTION 'refused'; END IF;
            RETURN coalesce(NEW, OLD);
        END $$
        """
    )
    await world.sql(f"CREATE TRIGGER refuse BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()")
