"""The outcome of a trial: its final rows, events and charges.

The outcome omits ids, instants and numbers of attempts, because these differ between trials.
"""

import re
from collections import defaultdict
from typing import Any

from tests.faults.crashes.place import Shop
from tests.faults.journal import Journal

_VARYING = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "id"),
    (re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z"), "instant"),
    (re.compile(r"out_[0-9a-f]{32}"), "charge"),
    (re.compile(r"rk_(test|live)_[\w-]+"), "key"),
    (re.compile(r"whsec_[\w+/=-]+"), "secret"),
)
_NOT_COMPARED = frozenset({"invoice.held", "invoice.pricing_warning"})
"""Types of events that a kill may cause: a price call that the kill interrupts counts as a time-out (D-105)."""

_QUERIES = {
    "subscriptions": """
        SELECT c.external_ref, s.status, s.customized, s.plan_version, s.cycle_count, s.next_due_date::text,
            s.charge_day, s.payment_method, v.period_months, v.version, s.connection_id::text
        FROM subscription s
        JOIN customer c ON c.account_id = s.account_id AND c.customer_id = s.customer_id
        JOIN plan_version v ON v.account_id = s.account_id AND v.plan_version_id = s.plan_version_id
        ORDER BY 1
    """,
    "invoices": """
        SELECT c.external_ref, v.cycle, v.status, v.due_date::text, v.charge_due_date::text, v.installments,
            v.total_cents, v.gateway_invoice_id IS NOT NULL AS charged, (
                SELECT string_agg(concat_ws(' ', i.pricing_source, i.pricing_status, i.amount_cents,
                    i.discount_percent, i.months), ', ' ORDER BY i.position)
                FROM invoice_item i WHERE i.account_id = v.account_id AND i.invoice_id = v.invoice_id
            ) AS items
        FROM invoice v
        JOIN subscription s ON s.account_id = v.account_id AND s.subscription_id = v.subscription_id
        JOIN customer c ON c.account_id = s.account_id AND c.customer_id = s.customer_id
        ORDER BY 1, 2
    """,
    "terms": """
        SELECT c.external_ref, h.number, h.from_cycle, h.reason, v.version
        FROM subscription_terms h
        JOIN subscription s ON s.account_id = h.account_id AND s.subscription_id = h.subscription_id
        JOIN customer c ON c.account_id = s.account_id AND c.customer_id = s.customer_id
        JOIN plan_version v ON v.account_id = h.account_id AND v.plan_version_id = h.plan_version_id
        ORDER BY 1, 2
    """,
    "propagations": """
        SELECT p.version, p.status, p.moved, p.cents_before::text, p.cents_after::text FROM propagation p
        ORDER BY p.propagation_id
    """,
    "entries": """
        SELECT c.external_ref, v.cycle, e.kind, e.source, e.amount_cents, h.number AS charge
        FROM payment_entry e
        JOIN invoice v ON v.account_id = e.account_id AND v.invoice_id = e.invoice_id
        JOIN subscription s ON s.account_id = v.account_id AND s.subscription_id = v.subscription_id
        JOIN customer c ON c.account_id = s.account_id AND c.customer_id = s.customer_id
        LEFT JOIN charge h ON h.account_id = e.account_id AND h.charge_id = e.charge_id
        ORDER BY 1, 2, e.occurred_at, 3, 5
    """,
    "stages": """
        SELECT c.external_ref, v.cycle, h.number, h.stage, h.amount_cents, h.due_date::text
        FROM charge h
        JOIN invoice v ON v.account_id = h.account_id AND v.invoice_id = h.invoice_id
        JOIN subscription s ON s.account_id = v.account_id AND s.subscription_id = v.subscription_id
        JOIN customer c ON c.account_id = s.account_id AND c.customer_id = s.customer_id
        ORDER BY 1, 2, 3
    """,
    "refunds": """
        SELECT f.stage, f.amount_cents, f.error_code FROM refund_request f ORDER BY f.created_at
    """,
    "moves": """
        SELECT o.to_connection_id::text, o.status, o.moved, (
            SELECT count(*) FROM connection_move_skip k
            WHERE k.account_id = o.account_id AND k.connection_move_id = o.connection_move_id
        ) AS skipped
        FROM connection_move o ORDER BY o.created_at
    """,
    "plans": """
        SELECT p.current_version, p.archived_at IS NOT NULL AS archived, (
            SELECT count(*) FROM plan_version v WHERE v.account_id = p.account_id AND v.plan_id = p.plan_id
        ) AS versions
        FROM plan p ORDER BY p.plan_id
    """,
    "products": """
        SELECT p.name, p.monthly_price_cents, (
            SELECT count(*) FROM product_mirror m
            WHERE m.account_id = p.account_id AND m.product_id = p.product_id AND m.gateway_product_id IS NOT NULL
                AND m.next_attempt_at IS NULL
        ) AS mirrored
        FROM product p ORDER BY 1, 2
    """,
    "counts": """
        SELECT (SELECT count(*) FROM api_key) AS api_keys, (SELECT count(*) FROM customer) AS customers,
            (SELECT count(*) FROM customer c WHERE c.document_sealed IS NOT NULL) AS documents,
            (SELECT count(*) FROM gateway_connection) AS connections,
            (SELECT count(*) FROM integration_secret) AS secrets,
            (
                SELECT count(*) FROM charge c WHERE c.stage IN ('planned', 'sending', 'unknown', 'parked', 'failed')
            ) AS open_charges,
            (SELECT count(*) FROM pricing_attempt a WHERE a.outcome IS NULL) AS open_calls,
            (SELECT string_agg(c.status, '') FROM test_clock c) AS test_clock,
            (SELECT w.disabled_at IS NULL FROM webhook w) AS pushes
    """,
}


def normalized(value: Any, shop: Shop) -> Any:
    """Replace the parts of a JSON value that differ between trials: ids, instants, secrets and the trial's URL."""
    if isinstance(value, dict):
        return {name: normalized(inner, shop) for name, inner in value.items()}
    if isinstance(value, list):
        return [normalized(inner, shop) for inner in value]
    if not isinstance(value, str):
        return value
    value = value.replace(shop.place.external_url, "outside")
    for varying, word in _VARYING:
        value = varying.sub(word, value)
    return value


async def of(shop: Shop, journal: Journal) -> dict[str, Any]:
    found: dict[str, Any] = {
        what: [dict(row) for row in await shop.sql(query)] for what, query in _QUERIES.items()
    }
    return {**found, "events": await _events(shop), "charges": await _charges(shop, journal)}


async def _events(shop: Shop) -> dict[str, list[str]]:
    types: defaultdict[str, list[str]] = defaultdict(list)
    for row in await shop.sql(
        """
        SELECT e.type, c.external_ref, v.cycle
        FROM event e
        LEFT JOIN invoice v ON v.account_id = e.account_id AND v.invoice_id = e.invoice_id
        LEFT JOIN subscription s ON s.account_id = e.account_id
            AND s.subscription_id = coalesce(v.subscription_id, e.subscription_id)
        LEFT JOIN customer c ON c.account_id = s.account_id AND c.customer_id = s.customer_id
        ORDER BY e.sequence
        """
    ):
        if row["type"] not in _NOT_COMPARED:
            types[f"{row['external_ref']} {row['cycle']}"].append(row["type"])
    return dict(sorted(types.items()))


async def _charges(shop: Shop, journal: Journal) -> dict[str, list[str]]:
    names = {
        str(row["invoice_id"]): f"{row['external_ref']} {row['cycle']}"
        for row in await shop.sql(
            """
            SELECT v.invoice_id, c.external_ref, v.cycle
            FROM invoice v
            JOIN subscription s ON s.account_id = v.account_id AND s.subscription_id = v.subscription_id
            JOIN customer c ON c.account_id = s.account_id AND c.customer_id = s.customer_id
            """
        )
    }
    held: defaultdict[str, list[str]] = defaultdict(list)
    for charge in journal.read("SELECT * FROM charge"):
        name = names.get(charge["invoice_id"], "without invoice")
        held[name].append(f"{charge['amount_cents']} {charge['due_date']} {charge['state']}")
        entries = "SELECT * FROM entry WHERE charge_id = ? ORDER BY occurred_at, rowid"
        held[name] += [
            f"{each['kind']} {each['amount_cents']}" for each in journal.read(entries, charge["charge_id"])
        ]
    return dict(sorted(held.items()))


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """Compare the result `expected` of a trial without a kill with the result `found` after a kill.

    Return one line for each difference, with the position of the value and both values.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        names = dict.fromkeys([*expected, *found])
        return [
            line
            for name in names
            for line in differences(expected.get(name), found.get(name), f"{path}/{name}")
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [
            line for number, (one, other) in pairs for line in differences(one, other, f"{path}/{number}")
        ]
    return [] if expected == found else [f"{path}: {expected!r} without a crash, {found!r} after this one"]
