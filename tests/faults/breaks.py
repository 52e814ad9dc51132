"""Deliberate breaks, by name: each takes one mechanism away, so that the run which holds it can be seen to fail.

`make faults BREAK=name ARGS=run`; every process of a run calls `apply`, and every database of a run `break_database`.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import asyncpg

from tests.faults import break_patches as patches

VARIABLE = "FATURA_BREAK"

_NO_SECOND_WALL = """
    ALTER TABLE invoice DISABLE ROW LEVEL SECURITY;
    ALTER TABLE invoice_item DISABLE ROW LEVEL SECURITY;
    ALTER TABLE subscription DISABLE ROW LEVEL SECURITY;
    ALTER TABLE customer DISABLE ROW LEVEL SECURITY;
    ALTER TABLE product DISABLE ROW LEVEL SECURITY;
"""
_NUMBERS_OF_A_SEQUENCE = """
    CREATE OR REPLACE FUNCTION numbers_of(account uuid) RETURNS text LANGUAGE sql IMMUTABLE AS $f$
        SELECT 'numbers_' || replace(account::text, '-', '')
    $f$;
    CREATE OR REPLACE FUNCTION begin_numbers() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN
        EXECUTE format('CREATE SEQUENCE IF NOT EXISTS public.%I MINVALUE 0', numbers_of(NEW.account_id));
        PERFORM setval(format('public.%I', numbers_of(NEW.account_id)), NEW.last_sequence);
        RETURN NULL;
    END $f$;
    CREATE OR REPLACE TRIGGER begin_numbers AFTER INSERT ON account_counter
        FOR EACH ROW EXECUTE FUNCTION begin_numbers();
    ALTER TABLE account_counter ENABLE ALWAYS TRIGGER begin_numbers;
    CREATE OR REPLACE FUNCTION next_event_number(account uuid, many int) RETURNS bigint LANGUAGE plpgsql AS $f$
    DECLARE
        last bigint;
    BEGIN
        FOR each IN 1..many LOOP
            last := nextval(format('public.%I', numbers_of(account)));
        END LOOP;
        RETURN coalesce(last, 0);
    END $f$;
"""
"""A sequence of numbers for each account; an account's row that is put back puts its numbers back as well."""


@dataclass(frozen=True, slots=True)
class Break:
    """One break: what is taken away, which run has to find it, and how: a patch of the process, or SQL, or both."""

    name: str
    says: str
    found_by: str
    patch: Callable[[], None] | None = None
    sql: str | None = None


BREAKS: tuple[Break, ...] = (
    Break(
        "send-again-blind",
        "a charge of unknown outcome is sent again without a look-up",
        "crashes",
        patches.send_again_blind,
    ),
    Break("believe-at-once", "one early empty look-up proves absence", "liar", patches.believe_at_once),
    Break(
        "send-without-a-last-look",
        "a worker that was frozen sends though its lease has ended",
        "liar",
        patches.send_without_a_last_look,
    ),
    Break(
        "forget-the-lease",
        "an invoice is claimed though another worker has it",
        "orders",
        patches.forget_the_lease,
    ),
    Break("keep-the-lease", "a dead worker's lease lasts ten minutes", "crashes", patches.keep_the_lease),
    Break(
        "cancel-without-lock",
        "cancelling reads the subscription without holding it",
        "orders",
        patches.cancel_without_lock,
    ),
    Break("forget-keys", "Idempotency-Keys are not looked at", "crashes", patches.forget_keys),
    Break(
        "keep-keys-apart",
        "an Idempotency-Key is committed after its effect",
        "crashes",
        patches.keep_keys_apart,
    ),
    Break(
        "number-events-by-a-sequence",
        "events are numbered before the lock that orders their commits",
        "orders",
        patches.number_events_by_a_sequence,
        _NUMBERS_OF_A_SEQUENCE,
    ),
    Break(
        "push-out-of-turn",
        "an invoice's events are pushed beside each other",
        "simulator",
        patches.push_out_of_turn,
    ),
    Break(
        "sign-with-anything",
        "pushes are signed with a secret that is not the account's",
        "simulator",
        patches.sign_with_anything,
    ),
    Break("round-down", "half a cent is dropped", "simulator", patches.round_down),
    Break(
        "believe-any-commit", "a COMMIT is believed whatever it says", "failover", patches.believe_any_commit
    ),
    Break("never-freeze", "charging goes on while a restore is compared", "restore", patches.never_freeze),
    Break("ids-by-chance", "an invoice's id does not tell what it bills", "restore", patches.ids_by_chance),
    Break(
        "forget-the-account",
        "a read compares no account, and its tables have no Row Level Security",
        "probes",
        patches.forget_the_account,
        _NO_SECOND_WALL,
    ),
    Break(
        "commit-what-failed",
        "what a refused request wrote before it was refused stays",
        "bad-requests",
        patches.commit_what_failed,
    ),
    Break("bind-no-ciphertext", "a ciphertext opens in any row", "secrets", patches.bind_no_ciphertext),
    Break("seal-nothing", "secrets are stored as they are", "secrets", patches.seal_nothing),
    Break("let-revoked-keys-in", "a revoked API key opens", "secrets", patches.let_revoked_keys_in),
    Break("one-place-for-all", "one endpoint is called at a time", "neighbours", patches.one_place_for_all),
    Break(
        "drop-the-unique-key",
        "a cycle may have two invoices",
        "walls",
        sql="ALTER TABLE invoice DROP CONSTRAINT IF EXISTS invoice_one_per_cycle",
    ),
    Break(
        "let-two-attempts-live",
        "an invoice may have two charges under way",
        "walls",
        sql="DROP INDEX IF EXISTS charge_attempt_one_live",
    ),
    Break(
        "forget-a-foreign-key",
        "a subscription may name another account's customer",
        "walls",
        sql="ALTER TABLE subscription DROP CONSTRAINT IF EXISTS subscription_customer_fk",
    ),
    Break(
        "let-invoices-move",
        "an invoice may go from any state to any other",
        "walls",
        sql="DROP TRIGGER IF EXISTS invoice_moves ON invoice",
    ),
    Break(
        "forget-a-policy",
        "Row Level Security is not on in a table",
        "walls",
        sql="ALTER TABLE invoice DISABLE ROW LEVEL SECURITY",
    ),
)


def chosen() -> Break | None:
    """Return the break that the environment names; it is an error to name one that does not exist."""
    name = os.environ.get(VARIABLE)
    return {each.name: each for each in BREAKS}[name] if name else None


@cache
def apply() -> None:
    """Break this process, once, if the environment says so."""
    broken = chosen()
    if broken is not None and broken.patch is not None:
        broken.patch()


async def break_database(url: str) -> None:
    """Break a migrated database, if the environment says so."""
    broken = chosen()
    if broken is None or broken.sql is None:
        return
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(broken.sql)
    finally:
        await connection.close()
