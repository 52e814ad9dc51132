"""Each break disables one mechanism of the engine on purpose, to show that a fault run detects the missing mechanism.

`make faults BREAK=<break> ARGS=<run>` executes a run with a break. Every process of the run calls `apply`. The run
calls `break_database` for each of its databases.
"""

import os
from functools import cache

import asyncpg

from tests.faults.break_patches import PATCHES

VARIABLE = "FATURA_BREAK"

_NO_ROW_LEVEL_SECURITY = """
    ALTER TABLE invoice DISABLE ROW LEVEL SECURITY;
    ALTER TABLE invoice_item DISABLE ROW LEVEL SECURITY;
    ALTER TABLE subscription DISABLE ROW LEVEL SECURITY;
    ALTER TABLE customer DISABLE ROW LEVEL SECURITY;
    ALTER TABLE product DISABLE ROW LEVEL SECURITY;
"""
_NUMBERS_BY_SEQUENCE = """
    CREATE OR REPLACE FUNCTION sequence_name(account uuid) RETURNS text LANGUAGE sql IMMUTABLE AS $f$
        SELECT 'numbers_' || replace(account::text, '-', '')
    $f$;
    CREATE OR REPLACE FUNCTION start_sequence() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN
        EXECUTE format('CREATE SEQUENCE IF NOT EXISTS public.%I MINVALUE 0', sequence_name(NEW.account_id));
        PERFORM setval(format('public.%I', sequence_name(NEW.account_id)), NEW.last_sequence);
        RETURN NULL;
    END $f$;
    CREATE OR REPLACE TRIGGER start_sequence AFTER INSERT ON account_counter
        FOR EACH ROW EXECUTE FUNCTION start_sequence();
    ALTER TABLE account_counter ENABLE ALWAYS TRIGGER start_sequence;
    CREATE OR REPLACE FUNCTION next_event_number(account uuid, many int) RETURNS bigint LANGUAGE plpgsql AS $f$
    DECLARE
        last bigint;
    BEGIN
        FOR each IN 1..many LOOP
            last := nextval(format('public.%I', sequence_name(account)));
        END LOOP;
        RETURN coalesce(last, 0);
    END $f$;
"""
"""Creates one PostgreSQL sequence per account.

When a trial restores the account's counter row, a trigger sets the PostgreSQL sequence to the restored number.
"""

SQL = {
    "number-events-by-sequence": _NUMBERS_BY_SEQUENCE,
    "read-any-account": _NO_ROW_LEVEL_SECURITY,
    "drop-unique-key": "ALTER TABLE invoice DROP CONSTRAINT IF EXISTS invoice_one_per_cycle",
    "allow-two-charges": "DROP INDEX IF EXISTS charge_one_live",
    "drop-foreign-key": "ALTER TABLE subscription DROP CONSTRAINT IF EXISTS subscription_customer_fk",
    "allow-any-transition": "DROP TRIGGER IF EXISTS invoice_moves ON invoice",
    "disable-policy": "ALTER TABLE invoice DISABLE ROW LEVEL SECURITY",
}
"""SQL statements of the breaks that change the database.

The run `constraints` must detect each of the last five breaks.
"""


def _chosen() -> str:
    """Return the name of the break to apply, or an empty text. Raises ValueError if the name is unknown."""
    name = os.environ.get(VARIABLE, "")
    if name and name not in {*PATCHES, *SQL}:
        raise ValueError(f"no break is called {name}: {', '.join(sorted({*PATCHES, *SQL}))}")
    return name


def environment() -> dict[str, str]:
    """Return the environment variable that makes a child process apply the break of this process."""
    return {VARIABLE: os.environ.get(VARIABLE, "")}


@cache
def apply() -> None:
    patch = PATCHES.get(_chosen())
    if patch is not None:
        patch()


async def break_database(url: str) -> None:
    statements = SQL.get(_chosen())
    if statements is None:
        return
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statements)
    finally:
        await connection.close()
