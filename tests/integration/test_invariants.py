"""Every invariant of `fatura check` notices its breach, whatever walls a superuser tore down to make it."""

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
LEFT = "lease_until = now() - interval '2 minutes'"
TELL = """
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
DEARER = """
    ALTER TABLE invoice_item DROP CONSTRAINT invoice_item_table;
    UPDATE invoice_item SET amount_cents = amount_cents + 1 WHERE pricing_source = 'table'
"""
TWICE = """
    ALTER TABLE idempotency_key DROP CONSTRAINT idempotency_key_pk;
    INSERT INTO idempotency_key SELECT * FROM idempotency_key
"""
OVERTAKEN = """
    UPDATE delivery d SET next_attempt_at = NULL, delivered_at = now(), attempts = 1
    WHERE d.sequence = (SELECT max(n.sequence) FROM delivery n WHERE n.ordered_by = d.ordered_by)
"""
FOUND = """
    UPDATE charge_attempt SET known_charge_ids = '{x}';
    UPDATE invoice SET status = 'canceled', gateway_invoice_id = NULL, issued_at = NULL, charge_due_date = NULL
    WHERE ISSUED
"""
LEFT_WEBHOOK = """
    UPDATE event SET created_at = '2000-01-01';
    UPDATE webhook SET LEFT, fanned_out_to = 0, next_attempt_at = '2000-01-01'
"""
FRAGMENTS = {
    "LEFT_WEBHOOK": LEFT_WEBHOOK,
    "FOUND": FOUND,
    "ISSUED": ISSUED,
    "LEFT": LEFT,
    "SECOND_ATTEMPT": SECOND_ATTEMPT,
    "SAME_CHARGE": SAME_CHARGE,
    "DEARER": DEARER,
    "TWICE": TWICE,
    "OVERTAKEN": OVERTAKEN,
}

# What is done to an account that is well, with all triggers and foreign keys off.
BREACHES = rows(r"""
    invariant                     | breach
    cycles_contiguous             | UPDATE subscription SET cycle_count = cycle_count + 1
    periods_adjoin                | UPDATE invoice SET period_end = period_end + 1 WHERE ISSUED
    dates_follow_the_anchor       | UPDATE subscription SET next_due_date = next_due_date + 1
    dates_follow_the_anchor       | UPDATE subscription SET charge_day = charge_day % 28 + 1
    dates_follow_the_anchor       | UPDATE invoice SET period_end = period_end + 1 WHERE ISSUED
    nothing_after_cancellation    | UPDATE subscription SET status = 'canceled', canceled_at = '2000-01-01'
    nothing_waits_for_an_hour     | UPDATE subscription SET generate_at = generate_at - interval '1 year'
    nothing_waits_for_an_hour     | UPDATE price_pull SET next_attempt_at = next_attempt_at - interval '1 day'
    nothing_waits_for_an_hour     | UPDATE invoice SET next_attempt_at = created_at - interval '1 day' WHERE ISSUED
    leases_run_out                | UPDATE price_pull SET lease_until = now() + interval '1 hour'
    leases_run_out                | UPDATE price_pull SET LEFT, next_attempt_at = next_attempt_at - interval '1 hour'
    leases_run_out                | UPDATE invoice SET LEFT, next_attempt_at = '2000-01-01' WHERE ISSUED
    leases_run_out                | UPDATE product_mirror SET LEFT, next_attempt_at = mirrored_at - interval '1 hour'
    leases_run_out                | LEFT_WEBHOOK
    invoice_has_items             | DELETE FROM invoice_item WHERE ISSUED
    amount_follows_price          | DEARER
    total_is_sum_of_items         | UPDATE invoice SET total_cents = total_cents + 1 WHERE ISSUED
    pending_items_are_asked_for   | DELETE FROM price_pull
    answers_close_items           | UPDATE invoice_item SET pricing_status = 'skipped' WHERE pricing_status = 'pending'
    what_was_told_stands          | UPDATE invoice_item SET product_name = 'Other' WHERE ISSUED
    what_was_told_stands          | UPDATE invoice_item SET description = 'cheaper' WHERE ISSUED
    what_was_told_stands          | UPDATE invoice_item SET monthly_price_cents = 0, amount_cents = 0 WHERE ISSUED
    issued_by_a_confirmed_attempt | UPDATE charge_attempt SET gateway_invoice_id = 'another'
    issued_by_a_confirmed_attempt | UPDATE charge_attempt SET amount_cents = amount_cents + 1
    one_charge_per_invoice        | SECOND_ATTEMPT
    one_charge_per_invoice        | SAME_CHARGE
    found_charges_are_awaited     | FOUND
    one_sandbox_charge            | UPDATE sandbox_charge SET amount_cents = amount_cents + 1
    events_without_gaps           | DELETE FROM event WHERE sequence = 2
    one_event_per_birth           | DELETE FROM event WHERE type = 'invoice.created'
    state_was_told                | DELETE FROM event WHERE type = 'invoice.issued'
    moves_were_legal              | TELL overdue
    moves_were_legal              | TELL held
    moves_were_legal              | TELL ready
    moves_were_legal              | TELL created
    moves_were_legal              | UPDATE invoice SET status = 'canceled' WHERE status = 'awaiting_value'
    moves_were_legal              | UPDATE event SET sequence = -sequence
    list_totals                   | UPDATE account_counter SET invoices_issued = invoices_issued + 1
    pushed_in_order               | OVERTAKEN
    turns_are_passed_on           | UPDATE delivery SET waits = true
    pushes_are_logged             | UPDATE delivery SET attempts = attempts + 1
    pushes_follow_the_stream      | UPDATE webhook SET fanned_out_to = fanned_out_to + 99
    pushes_follow_the_stream      | UPDATE webhook SET fanned_out_to = 0
    pushes_have_a_webhook         | DELETE FROM webhook
    rows_stay_at_home             | UPDATE plan_version SET plan_id = gen_random_uuid()
    rows_stay_at_home             | UPDATE plan_item SET plan_version_id = gen_random_uuid()
    rows_stay_at_home             | UPDATE plan_item SET product_id = gen_random_uuid()
    rows_stay_at_home             | UPDATE subscription SET plan_version_id = gen_random_uuid()
    rows_stay_at_home             | UPDATE subscription SET customer_id = gen_random_uuid()
    rows_stay_at_home             | UPDATE subscription SET connection_id = gen_random_uuid()
    rows_stay_at_home             | UPDATE invoice SET subscription_id = gen_random_uuid()
    rows_stay_at_home             | UPDATE invoice SET connection_id = gen_random_uuid()
    rows_stay_at_home             | UPDATE invoice_item SET invoice_id = gen_random_uuid()
    rows_stay_at_home             | UPDATE invoice_item SET product_id = gen_random_uuid()
    rows_stay_at_home             | UPDATE charge_attempt SET invoice_id = gen_random_uuid()
    rows_stay_at_home             | UPDATE price_pull SET invoice_id = gen_random_uuid()
    rows_stay_at_home             | UPDATE product_mirror SET product_id = gen_random_uuid()
    rows_stay_at_home             | UPDATE product_mirror SET connection_id = gen_random_uuid()
    one_row_per_key               | TWICE
    one_row_per_key               | UPDATE idempotency_key SET status = NULL, answer = NULL
    secrets_open                  | UPDATE integration_secret SET sealed = '\x00000000'
    secrets_open                  | UPDATE gateway_connection SET credentials_sealed = '\x00000000'
    secrets_open                  | UPDATE customer SET document_sealed = '\x00000000'
""")


def written_out(breach: str) -> str:
    """Return a breach's statements, with its fragments in their places."""
    if breach.startswith("TELL "):
        breach = TELL.replace("TYPE", breach.removeprefix("TELL "))
    for name, fragment in FRAGMENTS.items():
        breach = re.sub(rf"\b{name}\b", lambda _, text=fragment: text, breach)
    return breach


async def found_by(name: str, connection: Any, world: World) -> bool:
    """Run an invariant's own statement in the transaction of a breach."""
    (invariant,) = [each for each in INVARIANTS if each.name == name]
    tx = Tx(connection, world.account_id)
    key_ids = world.deps.vault.key_ids
    return bool(await offenders(tx, invariant, limit=1, real_now=world.deps.clock(), key_ids=key_ids))


async def test_every_invariant_notices_its_breach(world: World) -> None:
    """An account that is well is broken in one way after the other, each undone before the next. [D-28, D-33]"""
    assert list(dict.fromkeys(name for name, _ in BREACHES)) == [each.name for each in INVARIANTS]
    await populate(world)
    discounted = item(await world.product(), (50, 1, None))
    await world.enroll(await world.plan(discounted, periodMonths=3), customer=WITH_DOCUMENT)
    await world.run()
    assert await world.broken() == []

    unseen: list[tuple[str, ...]] = []
    async with connected(as_superuser(world.database_url)) as connection:
        await connection.execute("SET session_replication_role = replica")
        for name, breach in BREACHES:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(written_out(breach))
            if not await found_by(name, connection, world):
                unseen.append((name, breach))
            await transaction.rollback()
    assert unseen == []
    assert await world.broken() == []


def test_the_moves_are_those_of_the_table() -> None:
    """The invariant lets pass what the state machine does, and `paid` told after a birth as such. [D-28, D-9]"""
    (invariant,) = [each for each in INVARIANTS if each.name == "moves_were_legal"]
    pairs = set(re.findall(r"'([a-z_]+ [a-z_]+)'", invariant.sql))
    assert pairs == {f"{before} {after}" for before, after in moves()} | {"paid paid"}
