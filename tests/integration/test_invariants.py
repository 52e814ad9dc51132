"""Every invariant of `fatura check` finds its violations. To create violations, the tests turn constraints off."""

import re
from typing import Any

from fatura.domain.invoice_states import moves
from fatura.store import sealed_columns
from fatura.store.db import Tx
from fatura.store.invariants import INVARIANTS, offenders
from fatura.usecases.operations import checks
from tests.faults.constraints.catalog import FOREIGN, Catalog, Constraint
from tests.faults.constraints.catalog import read as read_catalog
from tests.support.databases import as_superuser
from tests.support.populated import connected, populate, tables
from tests.support.world import World, item, rows

ISSUED = "invoice_id = (SELECT v.invoice_id FROM invoice v WHERE v.status = 'issued' ORDER BY v.invoice_id LIMIT 1)"
WITH_DOCUMENT = {"externalRef": "ana", "name": "Ana", "email": "ana@example.com", "document": "12345678909"}
EXPIRED = "lease_until = now() - interval '2 minutes'"
EVENT = """
    INSERT INTO event (account_id, sequence, event_id, type, created_at, invoice_id, data, stored_at)
    SELECT account_id, 99, gen_random_uuid(), 'invoice.TYPE', now(), invoice_id, '{}', now() FROM invoice WHERE ISSUED
"""
SECOND_CHARGE = """
    DROP INDEX charge_one_live;
    INSERT INTO charge
    SELECT (jsonb_populate_record(c, jsonb_build_object('charge_id', gen_random_uuid(), 'number', 2, 'stage', 'sending',
        'gateway_invoice_id', NULL, 'confirmed_at', NULL))).* FROM charge c
"""
NEXT_CHARGE = """
    INSERT INTO charge
    SELECT (jsonb_populate_record(c, jsonb_build_object('charge_id', gen_random_uuid(), 'number', 2, 'stage', 'planned',
        'gateway_invoice_id', NULL, 'confirmed_at', NULL))).* FROM charge c
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
    UPDATE charge SET known_charge_ids = '{x}';
    UPDATE invoice SET status = 'canceled', gateway_invoice_id = NULL, issued_at = NULL, charge_due_date = NULL,
        canceled_at = now()
    WHERE ISSUED
"""
STOPPED = """
    UPDATE invoice SET status = 'ready', gateway_invoice_id = NULL, issued_at = NULL, charge_due_date = NULL,
        next_attempt_at = NULL
    WHERE ISSUED
"""
ERRONEOUS = """
    UPDATE invoice SET issue_error_code = 'x', issue_error_detail = 'x', issue_error_at = now()
    WHERE status = 'ready' AND next_attempt_at IS NULL
"""
EXPIRED_WEBHOOK = """
    UPDATE event SET created_at = '2000-01-01';
    UPDATE webhook SET EXPIRED, fanned_out_to = 0, next_attempt_at = '2000-01-01'
"""
MOVING = "UPDATE connection_move SET status = 'running', ended_at = NULL, worked_at = '2000-01-01'"
PROPAGATING = "UPDATE propagation SET status = 'running', ended_at = NULL, worked_at = '2000-01-01'"
UNPROBED = """
    failures = 3, failing_since = '2000-01-01', next_probe_at = '2000-01-01', error_code = 'x', error_detail = 'x'
"""
ENTRY = "ALTER TABLE payment_entry DROP CONSTRAINT payment_entry_source; UPDATE payment_entry SET"
GATEWAY_ENTRY = """
    UPDATE payment_entry SET source = 'gateway', method = NULL, connection_id = b.connection_id, reference = 'other',
        gateway_charge_id = b.charge_id
    FROM sandbox_charge b WHERE b.invoice_id = payment_entry.invoice_id
"""
ENTRY_OF_TWO = """
    ALTER TABLE payment_entry ALTER COLUMN reference_key DROP EXPRESSION; INSERT INTO payment_entry
    SELECT (jsonb_populate_record(e, jsonb_build_object('payment_entry_id', gen_random_uuid(), 'source', 'gateway',
        'method', NULL, 'connection_id', gen_random_uuid(), 'gateway_charge_id', 'x', 'reference', 'x'))).*
    FROM payment_entry e, generate_series(1, 2) WHERE e.kind = 'payment'
"""
SAME_ENTRY = """
    DROP INDEX refund_request_entry_once;
    INSERT INTO refund_request
    SELECT (jsonb_populate_record(r, jsonb_build_object('refund_id', gen_random_uuid()))).* FROM refund_request r
    WHERE r.stage = 'done'
"""
FAILED_REFUND = """
    UPDATE refund_request SET stage = 'failed', next_attempt_at = NULL, closed_at = now(), error_code = 'x',
        error_detail = 'x'
    WHERE stage = 'planned'
"""
ALL_ERASED = """
    ALTER TABLE customer DROP CONSTRAINT customer_erased; UPDATE customer SET erased_at = now();
    UPDATE subscription SET external_ref = 'erased-' || subscription_id;
    UPDATE invoice SET issue_error_detail = '[erased]' WHERE issue_error_detail IS NOT NULL;
    UPDATE invoice_item SET description = '[erased]'; UPDATE provider_call SET charge_id = call_id;
    UPDATE pricing_attempt SET response_body = '[erased]' WHERE response_body IS NOT NULL;
    UPDATE charge SET erased = true, request_sealed = NULL, pay_url = NULL, pix_code = NULL, boleto_line = NULL,
        pay_expires_at = NULL, error_detail = CASE WHEN error_detail IS NOT NULL THEN '[erased]' END;
    UPDATE payment_entry SET note = '[erased]' WHERE note IS NOT NULL;
    UPDATE payment_entry SET reference = '[erased]' WHERE reference IS NOT NULL AND source = 'manual';
    UPDATE merchant_request SET note = '[erased]', reference = '[erased]' WHERE method IS NOT NULL;
    UPDATE refund_request SET erased = true, reason = '[erased]',
        error_detail = CASE WHEN error_detail IS NOT NULL THEN '[erased]' END
"""
FRAGMENTS = {
    "ALL_ERASED": ALL_ERASED,
    "ENTRY_OF_TWO": ENTRY_OF_TWO,
    "SAME_ENTRY": SAME_ENTRY,
    "FAILED_REFUND": FAILED_REFUND,
    "PLANNED": "stage = 'planned'",
    "UNPROBED": UNPROBED,
    "PROPAGATING": PROPAGATING,
    "MOVING": MOVING,
    "ENTRY": ENTRY,
    "GATEWAY_ENTRY": GATEWAY_ENTRY,
    "EXPIRED_WEBHOOK": EXPIRED_WEBHOOK,
    "FOUND": FOUND,
    "CANCELED": "UPDATE invoice SET status = 'canceled', canceled_at = now()",
    "STOPPED": STOPPED,
    "ERRONEOUS": ERRONEOUS,
    "ISSUED": ISSUED,
    "EXPIRED": EXPIRED,
    "NEXT_CHARGE": NEXT_CHARGE,
    "SECOND_CHARGE": SECOND_CHARGE,
    "SAME_CHARGE": SAME_CHARGE,
    "MORE_EXPENSIVE": MORE_EXPENSIVE,
    "TWICE": TWICE,
    "DELIVERED_EARLY": DELIVERED_EARLY,
}

# Each statement makes a valid account violate the invariant. Triggers and foreign keys are off while it runs.
VIOLATIONS = rows(r"""
    invariant                      | violation
    events_match_invoices          | UPDATE invoice_item SET product_name = 'Other' WHERE ISSUED
    events_match_invoices          | UPDATE invoice_item SET description = 'cheaper' WHERE ISSUED
    events_match_invoices          | UPDATE invoice_item SET monthly_price_cents = 0, amount_cents = 0 WHERE ISSUED
    event_numbers_without_gaps     | DELETE FROM event WHERE sequence = 2
    event_numbers_without_gaps     | UPDATE retention SET deleted_to = 1 WHERE kind = 'events'
    one_created_event_per_invoice  | DELETE FROM event WHERE type = 'invoice.created'
    status_events_emitted_once     | DELETE FROM event WHERE type = 'invoice.issued'
    status_moves_allowed           | EVENT overdue
    status_moves_allowed           | EVENT held
    status_moves_allowed           | EVENT ready
    status_moves_allowed           | EVENT created
    status_moves_allowed           | CANCELED WHERE status = 'awaiting_value'
    status_moves_allowed           | UPDATE event SET sequence = -sequence
    list_totals                    | UPDATE account_counter SET invoices_issued = invoices_issued + 1
    list_totals                    | UPDATE account_counter SET plan_items = plan_items + 1
    cycles_contiguous              | UPDATE subscription SET cycle_count = cycle_count + 1
    cycles_contiguous              | UPDATE subscription SET start_cycle = 2, cycle_count = cycle_count + 1
    periods_contiguous             | UPDATE invoice SET period_end = period_end + 1 WHERE ISSUED
    due_dates_follow_charge_day    | UPDATE subscription SET next_due_date = next_due_date + 1
    due_dates_follow_charge_day    | UPDATE subscription SET charge_day = charge_day % 28 + 1
    due_dates_follow_charge_day    | UPDATE invoice SET period_end = period_end + 1 WHERE ISSUED
    no_invoice_after_cancellation  | UPDATE subscription SET status = 'canceled', canceled_at = '2000-01-01'
    put_off_subscriptions_reported | UPDATE subscription SET failures = 1, put_off_until = now() + interval '20 years'
    due_work_is_claimed_in_an_hour | UPDATE subscription SET generate_at = generate_at - interval '1 year'
    due_work_is_claimed_in_an_hour | UPDATE subscription SET failures = 1, put_off_until = '2000-01-01'
    due_work_is_claimed_in_an_hour | PROPAGATING
    due_work_is_claimed_in_an_hour | UPDATE price_pull SET next_attempt_at = next_attempt_at - interval '1 day'
    due_work_is_claimed_in_an_hour | UPDATE invoice SET next_attempt_at = created_at - interval '1 day' WHERE ISSUED
    due_work_is_claimed_in_an_hour | UPDATE refund_request SET next_attempt_at = '2000-01-01' WHERE PLANNED
    due_work_is_claimed_in_an_hour | UPDATE connection_health SET UNPROBED
    due_work_is_claimed_in_an_hour | MOVING
    due_work_is_claimed_in_an_hour | UPDATE unmatched_charge SET next_look_at = '2000-01-01'
    due_work_is_claimed_in_an_hour | UPDATE poll_round SET next_step_at = '2000-01-01'
    due_work_is_claimed_in_an_hour | UPDATE connection_sweep SET next_sweep_at = '2000-01-01'
    leases_expire                  | UPDATE connection_sweep SET lease_until = now() + interval '1 hour'
    leases_expire                  | UPDATE connection_health SET lease_until = now() + interval '1 hour'
    leases_expire                  | UPDATE price_pull SET lease_until = now() + interval '1 hour'
    leases_expire                  | UPDATE price_pull SET EXPIRED, next_attempt_at = next_attempt_at - '1 h'::interval
    leases_expire                  | UPDATE invoice SET EXPIRED, next_attempt_at = '2000-01-01' WHERE ISSUED
    leases_expire                  | UPDATE product_mirror SET EXPIRED, next_attempt_at = mirrored_at - '1 h'::interval
    leases_expire                  | UPDATE refund_request SET EXPIRED, next_attempt_at = '2000-01-01' WHERE PLANNED
    leases_expire                  | EXPIRED_WEBHOOK
    terms_history_is_current       | DELETE FROM subscription_terms
    terms_history_is_current       | UPDATE subscription_terms SET plan_version_id = gen_random_uuid()
    terms_history_is_current       | UPDATE subscription_terms SET from_cycle = 9
    terms_history_is_current       | UPDATE subscription SET plan_version = 9
    terms_history_is_current       | UPDATE subscription SET customized = NOT customized
    terms_history_is_ordered       | UPDATE subscription_terms SET number = 3 WHERE number = 2
    terms_history_is_ordered       | UPDATE subscription_terms SET from_cycle = from_cycle + 1
    invoices_follow_terms_history  | UPDATE invoice SET plan_version_id = gen_random_uuid() WHERE ISSUED
    invoices_follow_terms_history  | UPDATE subscription_terms SET from_cycle = 2
    terms_changes_emitted          | DELETE FROM event WHERE type = 'subscription.terms_changed'
    terms_changes_emitted          | DELETE FROM event WHERE type = 'subscription.customized'
    propagations_count_their_moves | UPDATE propagation SET moved = moved + 1
    propagation_leaves_nobody_behind | UPDATE subscription SET plan_version = 0
    propagation_leaves_nobody_behind | DELETE FROM propagation_skip
    connection_moves_are_emitted   | UPDATE connection_move SET moved = moved + 1
    connection_moves_are_emitted   | DELETE FROM event WHERE type = 'subscription.gateway_changed'
    connection_move_leaves_nobody_behind | DELETE FROM connection_move_skip
    items_follow_terms             | UPDATE plan_version SET period_months = 12
    items_follow_terms             | UPDATE invoice_item SET product_id = gen_random_uuid() WHERE ISSUED
    items_follow_terms             | DELETE FROM invoice_item WHERE ISSUED
    invoice_has_items              | DELETE FROM invoice_item WHERE ISSUED
    item_amounts_match_prices      | MORE_EXPENSIVE
    total_is_sum_of_items          | UPDATE invoice SET total_cents = total_cents + 1 WHERE ISSUED
    amounts_in_the_accounts_currency | UPDATE invoice SET currency = 'USD' WHERE ISSUED
    amounts_in_the_accounts_currency | UPDATE invoice_item SET currency = 'USD' WHERE ISSUED
    amounts_in_the_accounts_currency | UPDATE charge SET currency = 'USD'
    amounts_in_the_accounts_currency | UPDATE payment_entry SET currency = 'USD'
    amounts_in_the_accounts_currency | UPDATE refund_request SET currency = 'USD'
    pending_items_have_price_pulls | DELETE FROM price_pull
    priced_items_have_answers      | UPDATE invoice_item SET pricing_status = 'skipped' WHERE amount_cents IS NULL
    charge_is_the_confirmed_one    | UPDATE charge SET gateway_invoice_id = concat(gateway_invoice_id, 'x')
    charge_is_the_confirmed_one    | UPDATE charge SET amount_cents = amount_cents + 1
    one_charge_per_invoice         | SECOND_CHARGE
    one_charge_per_invoice         | SAME_CHARGE
    charges_match_invoices         | UPDATE invoice SET status = 'canceled', canceled_at = now() WHERE ISSUED
    charges_match_invoices         | UPDATE charge SET stage = 'planned', gateway_invoice_id = NULL, confirmed_at = NULL
    restored_charges_are_tracked   | FOUND
    stopped_issuance_has_error     | STOPPED
    past_due_charges_were_asked_after | UPDATE charge SET due_date = '2001-01-01', asked_at = '2000-01-01'
    account_has_a_gate             | DELETE FROM account_gate
    connections_have_health        | DELETE FROM connection_health
    connections_are_swept          | DELETE FROM connection_sweep
    one_sandbox_charge_per_invoice | UPDATE sandbox_charge SET amount_cents = amount_cents + 1
    paid_invoices_are_covered      | UPDATE invoice SET total_cents = 1 WHERE ISSUED
    paid_invoices_are_covered      | UPDATE invoice SET status = 'paid', paid_at = now() WHERE ISSUED
    refunds_and_disputes_are_shown | UPDATE invoice SET refunded_at = now() WHERE ISSUED
    refunds_and_disputes_are_shown | UPDATE invoice SET disputed_at = now() WHERE ISSUED
    refunds_and_disputes_are_shown | ENTRY kind = 'dispute_opened'
    refunds_and_disputes_are_shown | ENTRY kind = 'refund'
    refunds_fit_their_payments     | ENTRY kind = 'refund'
    entries_are_recorded_once      | ENTRY_OF_TWO
    finished_refunds_are_recorded  | UPDATE refund_request SET amount_cents = 2, left_cents = 2
    finished_refunds_are_recorded  | UPDATE refund_request SET payment_entry_id = gen_random_uuid() WHERE stage = 'done'
    finished_refunds_are_recorded  | SAME_ENTRY
    finished_refunds_are_recorded  | FAILED_REFUND
    entries_have_one_event         | ENTRY kind = 'refund'
    requests_wait_for_charges      | CANCELED WHERE ISSUED
    requests_wait_for_charges      | NEXT_CHARGE
    entries_match_the_sandbox      | GATEWAY_ENTRY
    delivered_in_order             | DELIVERED_EARLY
    delivery_turn_advanced         | UPDATE delivery SET waits = true
    delivery_attempts_logged       | UPDATE delivery SET attempts = attempts + 1
    deliveries_follow_events       | UPDATE webhook SET fanned_out_to = fanned_out_to + 99
    deliveries_follow_events       | UPDATE webhook SET fanned_out_to = 0
    deliveries_are_found           | UPDATE account_counter SET webhook_enabled = false
    deliveries_are_found           | UPDATE account_counter SET untaken_events = false, last_sequence = 999
    deliveries_are_found           | UPDATE webhook SET push_at = NULL
    deliveries_are_found           | UPDATE webhook SET push_at = push_at + interval '9 years'
    deliveries_have_a_webhook      | DELETE FROM webhook
    audit_numbers_without_gaps     | DELETE FROM audit_entry WHERE sequence = 2
    audit_numbers_without_gaps     | UPDATE account_counter SET last_audit_sequence = last_audit_sequence + 1
    audit_times_follow_numbers     | UPDATE audit_entry SET created_at = '2000-01-01' WHERE sequence = 2
    audit_times_follow_numbers     | UPDATE account_counter SET last_audited_at = '2000-01-01'
    audited_keys_exist             | UPDATE audit_entry SET actor_id = gen_random_uuid() WHERE sequence = 2
    erasures_match_customers       | DELETE FROM erasure
    erasures_match_customers       | UPDATE erasure SET stage = 'answers'
    erased_data_is_gone            | ALL_ERASED; UPDATE provider_call k SET charge_id = c.charge_id FROM charge c
    erased_data_is_gone            | ALL_ERASED; UPDATE subscription SET external_ref = 'x'
    erased_data_is_gone            | ALL_ERASED; UPDATE invoice_item SET description = 'x'
    erased_data_is_gone            | ALL_ERASED; UPDATE pricing_attempt SET response_body = 'x', outcome = 'ok'
    erased_data_is_gone            | ALL_ERASED; UPDATE charge SET erased = false
    erased_data_is_gone            | ALL_ERASED; UPDATE charge SET request_sealed = ''
    erased_data_is_gone            | ALL_ERASED; UPDATE charge SET pay_url = 'x'
    erased_data_is_gone            | ALL_ERASED; UPDATE charge SET error_code = 'x', error_detail = 'x'
    erased_data_is_gone            | ALL_ERASED; UPDATE payment_entry SET note = 'x'
    erased_data_is_gone            | ALL_ERASED; UPDATE merchant_request SET note = 'x'
    erased_data_is_gone            | ALL_ERASED; UPDATE refund_request SET erased = false
    erased_data_is_gone            | ALL_ERASED; UPDATE refund_request SET reason = 'x'
    erased_data_is_gone            | ALL_ERASED; STOPPED; ERRONEOUS
    same_account_references        | UPDATE plan_version SET plan_id = gen_random_uuid()
    customer_keys_match            | UPDATE customer SET name = 'Eva' WHERE email IS NOT NULL
    customer_keys_match            | UPDATE customer SET email_key = 'other' WHERE email IS NOT NULL
    idempotency_keys_answered_once | TWICE
    idempotency_keys_answered_once | UPDATE idempotency_key SET status = NULL, answer = NULL
    secrets_have_known_keys        | UPDATE integration_secret SET sealed = '\x00000000'
""")


def expanded(violation: str) -> str:
    """Return a violation's SQL, in which each name of FRAGMENTS is replaced by its fragment."""
    if violation.startswith("EVENT "):
        violation = EVENT.replace("TYPE", violation.removeprefix("EVENT "))
    for name, fragment in FRAGMENTS.items():
        violation = re.sub(rf"\b{name}\b", lambda _, text=fragment: text, violation)
    return violation


async def is_found_by(name: str, connection: Any, world: World) -> bool:
    """Return whether the invariant finds the violation that the open transaction has caused."""
    (invariant,) = [each for each in INVARIANTS if each.name == name]
    tx = Tx(connection, world.account_id)
    key_ids = world.deps.vault.key_ids
    return bool(await offenders(tx, invariant, limit=1, real_now=world.deps.clock(), key_ids=key_ids))


NO_SECRETS = ("secret_hash", "document_hash", "digest", "pay_page_logo")
"""Ends of the names of `bytea` columns whose values are not encrypted with a key of the key ring."""
BEFORE = {
    "payment_entry": "ALTER TABLE payment_entry DROP CONSTRAINT payment_entry_source",
    "refund_request": "ALTER TABLE refund_request DROP CONSTRAINT refund_request_source; "
    "ALTER TABLE refund_request DROP CONSTRAINT refund_request_closed",
    "customer": "ALTER TABLE customer DROP CONSTRAINT customer_document; "
    "ALTER TABLE customer DROP CONSTRAINT customer_erased",
    "idempotency_key": "UPDATE idempotency_key SET is_sealed = true",
}
"""For some tables, the statements that run before a violation and make it possible."""


def broken_reference(catalog: Catalog, constraint: Constraint) -> str:
    """Return SQL that changes a foreign key in all rows of a table, so that it refers to no row."""
    types = catalog.columns[constraint.table]
    own = [column for column in constraint.columns if column != "account_id"]
    column = next((each for each in own if types[each] == "uuid"), own[0])
    value = "gen_random_uuid()" if types[column] == "uuid" else f"{column} + 1000000"
    return f"UPDATE {constraint.table} SET {column} = {value}"  # noqa: S608 - names from the catalog


async def test_every_reference_and_every_secret_is_checked(world: World) -> None:
    """The foreign keys and the columns with secrets are read from PostgreSQL's catalog. [D-33, spec 5.4]"""
    await populate(world)
    await world.enroll(await world.plan(), customer=WITH_DOCUMENT)
    missed: list[str] = []
    async with connected(as_superuser(world.database_url)) as connection:
        catalog = await read_catalog(connection)
        secrets = {
            f"{table}.{column}"
            for table, types in catalog.columns.items()
            for column, type_ in types.items()
            if type_ == "bytea" and not column.endswith(NO_SECRETS)
        }
        assert secrets == {column.place for column in sealed_columns.COLUMNS}
        violations = [
            (each.table, "same_account_references", broken_reference(catalog, each))
            for each in catalog.of(FOREIGN)
            if each.columns != ("account_id",)
        ] + [
            (table, "secrets_have_known_keys", f"UPDATE {table} SET {column} = '\\x00000000'")  # noqa: S608 - names from the catalog
            for table, column in (place.split(".") for place in secrets)
        ]
        await connection.execute("SET session_replication_role = replica")
        for table, name, violation in violations:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(BEFORE.get(table, "SELECT"))
            assert await connection.execute(violation) != "UPDATE 0", violation
            if not await is_found_by(name, connection, world):
                missed.append(violation)
            await transaction.rollback()
    assert missed == []


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
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(ALL_ERASED)
        assert not await is_found_by("erased_data_is_gone", connection, world), "the violations are the cause"
        await transaction.rollback()
    assert missed == []
    assert await world.broken() == []


async def test_a_lost_account_is_found(world: World) -> None:
    """Citus can lose all rows of an account when it moves shards with a role to which Row Level Security applies."""
    lost = await world.another()
    assert await checks.missing_accounts(world.deps, await checks.all_accounts(world.deps)) == []
    async with connected(as_superuser(world.database_url)) as connection:
        await connection.execute("SET session_replication_role = replica")
        for table in await tables(connection):
            await connection.execute(f"DELETE FROM {table} WHERE account_id = $1", lost.account_id)  # noqa: S608 - names from the catalog
    found = await checks.missing_accounts(world.deps, await checks.all_accounts(world.deps))
    [missing] = found
    assert (missing.account_id, missing.invariant.name) == (lost.account_id, "accounts_stored")
    offenders = {"invariant": "accounts_stored"}
    assert checks.set_metrics(found).get_sample_value("fatura_invariant_offenders", offenders) == 1


def test_the_invariant_allows_the_moves_of_the_state_machine() -> None:
    """[D-28, D-9]"""
    (invariant,) = [each for each in INVARIANTS if each.name == "status_moves_allowed"]
    pairs = set(re.findall(r"'([a-z_]+ [a-z_]+)'", invariant.sql))
    assert pairs == {f"{before} {after}" for before, after in moves()} | {"paid paid", "ready ready"}
