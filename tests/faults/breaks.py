"""Breaks: each disables one mechanism of the engine on purpose, to show that a run detects its absence.

`make faults BREAK=name ARGS=run`. Every process of a run calls `apply`, and every database of a run `break_database`.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import asyncpg

from tests.faults import break_patches as patches

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
"""One sequence per account. Restoring the counter row also resets the sequence."""


@dataclass(frozen=True, slots=True)
class Break:
    """`description` names the disabled mechanism, `found_by` the run that must detect its absence."""

    name: str
    description: str
    found_by: str
    patch: Callable[[], None] | None = None
    sql: str | None = None


BREAKS: tuple[Break, ...] = (
    Break(
        "retry-without-lookup",
        "a charge with an unknown outcome is repeated without a look-up",
        "crashes",
        patches.retry_without_lookup,
    ),
    Break(
        "trust-first-lookup",
        "a single early look-up that finds nothing proves that no charge exists",
        "gateway",
        patches.trust_first_lookup,
    ),
    Break(
        "skip-lease-check",
        "a worker that was frozen sends a charge after its lease expired",
        "gateway",
        patches.skip_lease_check,
    ),
    Break(
        "ignore-lease",
        "an invoice is claimed while another worker holds its lease",
        "orders",
        patches.ignore_lease,
    ),
    Break("long-lease", "the lease of a dead worker lasts ten minutes", "crashes", patches.long_lease),
    Break(
        "cancel-without-lock",
        "canceling reads the subscription without locking it",
        "orders",
        patches.cancel_without_lock,
    ),
    Break(
        "ignore-idempotency-keys", "Idempotency-Keys are ignored", "crashes", patches.ignore_idempotency_keys
    ),
    Break(
        "store-keys-separately",
        "an Idempotency-Key is committed in a transaction after its effect",
        "crashes",
        patches.store_keys_separately,
    ),
    Break(
        "number-events-by-sequence",
        "events get their numbers before the lock that orders commits",
        "orders",
        patches.number_events_by_sequence,
        _NUMBERS_BY_SEQUENCE,
    ),
    Break(
        "push-out-of-order",
        "events of one invoice are pushed concurrently",
        "simulator",
        patches.push_out_of_order,
    ),
    Break(
        "sign-with-wrong-secret",
        "pushes are signed with a wrong secret",
        "simulator",
        patches.sign_with_wrong_secret,
    ),
    Break("round-down", "half cents are rounded down", "simulator", patches.round_down),
    Break("trust-any-commit", "the answer to COMMIT is not checked", "failover", patches.trust_any_commit),
    Break(
        "charge-during-restore",
        "charging continues during the comparison after a restore",
        "restore",
        patches.charge_during_restore,
    ),
    Break(
        "random-invoice-ids",
        "invoice ids are random instead of derived from subscription and cycle",
        "restore",
        patches.random_invoice_ids,
    ),
    Break(
        "read-any-account",
        "invoice reads do not filter by account, and Row Level Security is off",
        "probes",
        patches.read_any_account,
        _NO_ROW_LEVEL_SECURITY,
    ),
    Break(
        "commit-refused-requests",
        "writes of a refused request are committed",
        "bad-requests",
        patches.commit_refused_requests,
    ),
    Break("unbind-ciphertexts", "a ciphertext opens in any row", "secrets", patches.unbind_ciphertexts),
    Break(
        "store-plain-secrets", "secrets are stored without encryption", "secrets", patches.store_plain_secrets
    ),
    Break("accept-revoked-keys", "revoked API keys are accepted", "secrets", patches.accept_revoked_keys),
    Break("one-push-at-a-time", "one endpoint is called at a time", "neighbours", patches.one_push_at_a_time),
    Break(
        "drop-unique-key",
        "a cycle may have two invoices",
        "constraints",
        sql="ALTER TABLE invoice DROP CONSTRAINT IF EXISTS invoice_one_per_cycle",
    ),
    Break(
        "allow-two-attempts",
        "an invoice may have two concurrent charge attempts",
        "constraints",
        sql="DROP INDEX IF EXISTS charge_attempt_one_live",
    ),
    Break(
        "drop-foreign-key",
        "a subscription may refer to another account's customer",
        "constraints",
        sql="ALTER TABLE subscription DROP CONSTRAINT IF EXISTS subscription_customer_fk",
    ),
    Break(
        "allow-any-transition",
        "every status transition of an invoice is allowed",
        "constraints",
        sql="DROP TRIGGER IF EXISTS invoice_moves ON invoice",
    ),
    Break(
        "disable-policy",
        "Row Level Security is off for one table",
        "constraints",
        sql="ALTER TABLE invoice DISABLE ROW LEVEL SECURITY",
    ),
)


def chosen() -> Break | None:
    """Return the break that the environment names, if any. Raises KeyError for an unknown name."""
    name = os.environ.get(VARIABLE)
    return {each.name: each for each in BREAKS}[name] if name else None


@cache
def apply() -> None:
    broken = chosen()
    if broken is not None and broken.patch is not None:
        broken.patch()


async def break_database(url: str) -> None:
    broken = chosen()
    if broken is None or broken.sql is None:
        return
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(broken.sql)
    finally:
        await connection.close()
