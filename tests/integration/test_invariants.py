"""Every invariant of `fatura check` finds the rows that violate it. The tests turn constraints off to create them."""

import re
from typing import Any

from fatura.domain.invoice_states import moves
from fatura.store.db import Tx
from fatura.store.invariants import INVARIANTS, offenders
from tests.integration.test_row_security import as_superuser
from tests.support.populated import connected, populate
from tests.support.world import World, item, rows

ISSUED = "invoice_id = (SELECT v.invoice_id FROM invoice v WHERE v.status = 'issued' ORDER BY v.invoice_id LIMIT 1)"
WITH_DOCUMENT = {"externalRef": "ana", "name": "Ana", "email": "ana@example.com", "document": "12345678909"}
EXPIRED = "lease_until = now() - interval '2 minutes'"
EVENT = """
    INSERT INTO event (account_id, sequence, event_id, type, created_at, invoice_id, data)
    SELECT account_id, 99, gen_random_uuid(), 'invoice.TYPE', now(), invoice_id, '{}' FROM invoice WHERE ISSUED
"""
SECOND_ATTEMPT = """
    DROP INDEX charge_attempt_one_live;
    INSERT INTO charge_attempt SELECT (jsonb_populate_record(a, '{"attempt": 2}')).* FROM charge_attempt a
"""
SAME_CHARGE = (
    "DROP INDEX invoice_charge_once; UPDATE invoice SET gateway_invoice_id = 'x' WHERE status = 'issued'"
)
MORE_EXPENSIVE = """
    ALTER TABLE invoice_item DROP CONSTRAINT invoice_item_table;
    UPDATE invoice_item SET amount_cents = amount_cents + 1 WHERE pricing_source = 'table'
"""
TWICE = """
    ALTER TABLE idempotency_key DROP CONSTRAINT idempotency_key_pk;
    INSERT INTO idempotency_key SELECT * FROM idempotency_key
"""
DELIVERED_EARLY = """
    UPDATE delivery d SET next_attempt_at = NULL, delivered_at = now(), attempts = 1
    WHERE d.sequence = (SELECT max(n.sequence) FROM delivery n WHERE n.ordered_by = d.ordered_by)
"""
FOUND = """
    UPDATE charge_attempt SET known_charge_ids = '{x}';
    UPDATE invoice SET status = 'canceled', gateway_invoice_id = NULL, issued_at = NULL, charge_due_date = NULL,
        canceled_at = now()
    WHERE ISSUED
"""
STOPPED = """
    UPDATE invoice SET status = 'ready', gateway_invoice_id = NULL, issued_at = NULL, charge_due_date = NULL,
        next_attempt_at = NULL
    WHERE ISSUED
"""
EXPIRED_WEBHOOK = """
    UPDATE event SET created_at = '2000-01-01';
    UPDATE webhook SET EXPIRED, fanned_out_to = 0, next_attempt_at = '2000-01-01'
"""
FRAGMENTS = {
    "EXPIRED_WEBHOOK": EXPIRED_WEBHOOK,
    "FOUND": FOUND,
    "CANCELED": "UPDATE invoice SET status = 'canceled', canceled_at = now()",
    "STOPPED": STOPPED,
    "ISSUED": ISSUED,
    "EXPIRED": EXPIRED,
    "SECOND_ATTEMPT": SECOND_ATTEMPT,
    "SAME_CHARGE": SAME_CHARGE,
    "MORE_EXPENSIVE": MORE_EXPENSIVE,
    "TWICE": TWICE,
    "DELIVERED_EARLY": DELIVERED_EARLY,
}

# Each statement makes a valid account violate the invariant. It runs while triggers and foreign keys are off.
VIOLATIONS = rows(r"""
    invariant                      | violation
    cycles_contiguous              | UPDATE subscription SET cycle_count = cycle_count + 1
    periods_contiguous             | UPDATE invoice SET period_end = period_end + 1 WHERE ISSUED
    due_dates_follow_charge_day    | UPDATE subscription SET next_due_date = next_due_date + 1
    due_dates_follow_charge_day    | UPDATE subscription SET charge_day = charge_day % 28 + 1
    due_dates_follow_charge_day    | UPDATE invoice SET period_end = period_end + 1 WHERE ISSUED
    no_invoice_after_cancellation  | UPDATE subscription SET status = 'canceled', canceled_at = '2000-01-01'
    due_work_is_claimed_in_an_hour | UPDATE subscription SET generate_at = generate_at - interval '1 year'
    due_work_is_claimed_in_an_hour | UPDATE price_pull SET next_attempt_at = next_attempt_at - interval '1 day'
    due_work_is_claimed_in_an_hour | UPDATE invoice SET next_attempt_at = created_at - interval '1 day' WHERE ISSUED
    leases_expire                  | UPDATE price_pull SET lease_until = now() + interval '1 hour'
    leases_expire                  | UPDATE price_pull SET EXPIRED, next_attempt_at = next_attempt_at - '1 h'::interval
    leases_expire                  | UPDATE invoice SET EXPIRED, next_attempt_at = '2000-01-01' WHERE ISSUED
    leases_expire                  | UPDATE product_mirror SET EXPIRED, next_attempt_at = mirrored_at - '1 h'::interval
    leases_expire                  | EXPIRED_WEBHOOK
    invoice_has_items              | DELETE FROM invoice_item WHERE ISSUED
    item_amounts_match_prices      | MORE_EXPENSIVE
    total_is_sum_of_items          | UPDATE invoice SET total_cents = total_cents + 1 WHERE ISSUED
    pending_items_have_price_pulls | DELETE FROM price_pull
    priced_items_have_answers      | UPDATE invoice_item SET pricing_status = 'skipped' WHERE amount_cents IS NULL
    events_match_invoices          | UPDATE invoice_item SET product_name = 'Other' WHERE ISSUED
    events_match_invoices          | UPDATE invoice_item SET description = 'cheaper' WHERE ISSUED
    events_match_invoices          | UPDATE invoice_item SET monthly_price_cents = 0, amount_cents = 0 WHERE ISSUED
    charge_is_the_confirmed_one    | UPDATE charge_attempt SET gateway_invoice_id = 'another'
    charge_is_the_confirmed_one    | UPDATE charge_attempt SET amount_cents = amount_cents + 1
    one_charge_per_invoice         | SECOND_ATTEMPT
    one_charge_per_invoice         | SAME_CHARGE
    restored_charges_are_tracked   | FOUND
    stopped_issuance_has_error     | STOPPED
    one_sandbox_charge_per_invoice | UPDATE sandbox_charge SET amount_cents = amount_cents + 1
    event_numbers_without_gaps     | DELETE FROM event WHERE sequence = 2
    one_created_event_per_invoice  | DELETE FROM event WHERE type = 'invoice.created'
    status_events_emitted_once     | DELETE FROM event WHERE type = 'invoice.issued'
    status_moves_allowed           | EVENT overdue
    status_moves_allowed           | EVENT held
    status_moves_allowed           | EVENT ready
    status_moves_allowed           | EVENT created
    status_moves_allowed           | CANCELED WHERE status = 'awaiting_value'
    status_moves_allowed           | UPDATE event SET sequence = -sequence
    list_totals                    | UPDATE account_counter SET invoices_issued = invoices_issued + 1
    delivered_in_order             | DELIVERED_EARLY
    delivery_turn_advanced         | UPDATE delivery SET waits = true
    delivery_attempts_logged       | UPDATE delivery SET attempts = attempts + 1
    deliveries_follow_events       | UPDATE webhook SET fanned_out_to = fanned_out_to + 99
    deliveries_follow_events       | UPDATE webhook SET fanned_out_to = 0
    deliveries_have_a_webhook      | DELETE FROM webhook
    same_account_references        | UPDATE plan_version SET plan_id = gen_random_uuid()
    same_account_references        | UPDATE plan_item SET plan_version_id = gen_random_uuid()
    same_account_references        | UPDATE plan_item SET product_id = gen_random_uuid()
    same_account_references        | UPDATE subscription SET plan_version_id = gen_random_uuid()
    same_account_references        | UPDATE subscription SET customer_id = gen_random_uuid()
    same_account_references        | UPDATE subscription SET connection_id = gen_random_uuid()
    same_account_references        | UPDATE invoice SET subscription_id = gen_random_uuid()
    same_account_references        | UPDATE invoice SET connection_id = gen_random_uuid()
    same_account_references        | UPDATE invoice_item SET invoice_id = gen_random_uuid()
    same_account_references        | UPDATE invoice_item SET product_id = gen_random_uuid()
    same_account_references        | UPDATE charge_attempt SET invoice_id = gen_random_uuid()
    same_account_references        | UPDATE price_pull SET invoice_id = gen_random_uuid()
    same_account_references        | UPDATE product_mirror SET product_id = gen_random_uuid()
    same_account_references        | UPDATE product_mirror SET connection_id = gen_random_uuid()
    customer_keys_match            | UPDATE customer SET name = 'Eva'
    customer_keys_match            | UPDATE customer SET email_key = 'other'
    idempotency_keys_answered_once | TWICE
    idempotency_keys_answered_once | UPDATE idempotency_key SET status = NULL, answer = NULL
    secrets_have_known_keys        | UPDATE integration_secret SET sealed = '\x00000000'
    secrets_have_known_keys        | UPDATE gateway_connection SET credentials_sealed = '\x00000000'
    secrets_have_known_keys        | UPDATE customer SET document_sealed = '\x00', document_hash = '\x00'
""")


def expanded(violation: str) -> str:
    """Replace the placeholders in a violation by their SQL."""
    if violation.startswith("EVENT "):
        violation = EVENT.replace("TYPE", violation.removeprefix("EVENT "))
    for name, fragment in FRAGMENTS.items():
        violation = re.sub(rf"\b{name}\b", lambda _, text=fragment: text, violation)
    return violation


async def is_found_by(name: str, connection: Any, world: World) -> bool:
    """Return whether an invariant finds the violation, read in the transaction that caused it."""
    (invariant,) = [each for each in INVARIANTS if each.name == name]
    tx = Tx(connection, world.account_id)
    key_ids = world.deps.vault.key_ids
    return bool(await offenders(tx, invariant, limit=1, real_now=world.deps.clock(), key_ids=key_ids))


async def test_every_invariant_finds_its_violations(world: World) -> None:
    """[D-28, D-33]"""
    assert list(dict.fromkeys(name for name, _ in VIOLATIONS)) == [each.name for each in INVARIANTS]
    await populate(world)
    discounted = item(await world.product(), (50, 1, None))
    await world.enroll(await world.plan(discounted, periodMonths=3), customer=WITH_DOCUMENT)
    await world.run()
    assert await world.broken() == []

    missed: list[tuple[str, ...]] = []
    async with connected(as_superuser(world.database_url)) as connection:
        await connection.execute("SET session_replication_role = replica")
        for name, violation in VIOLATIONS:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(expanded(violation))
            if not await is_found_by(name, connection, world):
                missed.append((name, violation))
            await transaction.rollback()
    assert missed == []
    assert await world.broken() == []


def test_the_invariant_allows_the_moves_of_the_state_machine() -> None:
    """[D-28, D-9]"""
    (invariant,) = [each for each in INVARIANTS if each.name == "status_moves_allowed"]
    pairs = set(re.findall(r"'([a-z_]+ [a-z_]+)'", invariant.sql))
    assert pairs == {f"{before} {after}" for before, after in moves()} | {"paid paid"}
