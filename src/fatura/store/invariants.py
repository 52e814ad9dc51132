"""What must hold in the tables at any moment, as named SQL that returns the ids which break it (`fatura check`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from fatura.store.db import Discovery, Tx


@dataclass(frozen=True, slots=True)
class Invariant:
    """One promise: its name, what it says, and the statement that returns what breaks it as `offender`."""

    name: str
    says: str
    sql: LiteralString


# Rows of two tables are counted against each other by UNION ALL and GROUP BY where a join could become a nested loop.
INVARIANTS: tuple[Invariant, ...] = (
    Invariant(
        "cycles_contiguous",
        "a subscription's invoices are its cycles 1..cycleCount, each once",
        """
        SELECT s.subscription_id AS offender
        FROM subscription s
        LEFT JOIN invoice v ON v.account_id = $1 AND v.subscription_id = s.subscription_id
        WHERE s.account_id = $1
        GROUP BY s.subscription_id, s.cycle_count
        HAVING count(v.invoice_id) <> s.cycle_count OR coalesce(max(v.cycle), 0) <> s.cycle_count
        LIMIT $2
        """,
    ),
    Invariant(
        "periods_adjoin",
        "a cycle's period starts the day after the one before ends, and the next one where the last ends",
        """
        SELECT n.offender FROM (
            SELECT v.subscription_id AS offender, v.period_end,
                lead(v.period_start) OVER (PARTITION BY v.subscription_id ORDER BY v.cycle) AS following
            FROM invoice v WHERE v.account_id = $1
        ) n
        JOIN subscription s ON s.subscription_id = n.offender
        WHERE s.account_id = $1 AND coalesce(n.following, s.next_period_start) <> n.period_end + 1
        LIMIT $2
        """,
    ),
    Invariant(
        "total_is_sum_of_items",
        "an invoice's total is the sum of its priced items, and null only while an item is pending",
        """
        SELECT v.invoice_id AS offender
        FROM invoice v JOIN invoice_item i ON i.invoice_id = v.invoice_id
        WHERE v.account_id = $1 AND i.account_id = $1
        GROUP BY v.invoice_id, v.total_cents, v.status
        HAVING (v.total_cents IS NOT NULL AND v.total_cents <> coalesce(sum(i.amount_cents), 0))
            OR (v.total_cents IS NOT NULL AND bool_or(i.pricing_status = 'pending'))
            OR (v.total_cents IS NULL AND v.status <> 'canceled' AND NOT bool_or(i.pricing_status = 'pending'))
        LIMIT $2
        """,
    ),
    Invariant(
        "invoice_has_items",
        "every invoice has an item",
        """
        SELECT v.invoice_id AS offender FROM invoice v
        WHERE v.account_id = $1 AND NOT EXISTS (
            SELECT FROM invoice_item i WHERE i.account_id = $1 AND i.invoice_id = v.invoice_id
        )
        LIMIT $2
        """,
    ),
    Invariant(
        "pending_items_are_asked_for",
        "a pending item of an open invoice has its price pull, and a closed one's has ended",
        """
        SELECT i.item_id AS offender
        FROM invoice_item i
        JOIN invoice v ON v.invoice_id = i.invoice_id
        LEFT JOIN price_pull p ON p.account_id = $1 AND p.invoice_id = i.invoice_id AND p.position = i.position
        WHERE i.account_id = $1 AND v.account_id = $1 AND (
            (i.pricing_status = 'pending' AND v.status IN ('draft', 'awaiting_value') AND p.invoice_id IS NULL)
            OR ((i.pricing_status <> 'pending' OR v.status = 'canceled')
                AND (p.next_attempt_at IS NOT NULL OR p.warn_at IS NOT NULL))
        )
        LIMIT $2
        """,
    ),
    Invariant(
        "answers_close_items",
        "a value from a price endpoint stands on a call that answered so",
        """
        SELECT i.item_id AS offender
        FROM invoice_item i
        WHERE i.account_id = $1 AND i.pricing_source = 'endpoint' AND i.pricing_status <> 'pending' AND NOT EXISTS (
            SELECT FROM pricing_attempt a
            WHERE a.account_id = $1 AND a.invoice_id = i.invoice_id AND a.position = i.position
                AND a.outcome = CASE i.pricing_status WHEN 'skipped' THEN 'skip' ELSE 'ok' END
        )
        LIMIT $2
        """,
    ),
    Invariant(
        "issued_by_a_confirmed_attempt",
        "an invoice's charge is the one its confirmed attempt got, of the same amount; no other attempt is confirmed",
        """
        SELECT coalesce(v.invoice_id, a.invoice_id) AS offender
        FROM (SELECT x.* FROM invoice x WHERE x.account_id = $1 AND x.gateway_invoice_id IS NOT NULL) v
        FULL JOIN (SELECT y.* FROM charge_attempt y WHERE y.account_id = $1 AND y.state = 'confirmed') a
            ON a.invoice_id = v.invoice_id
        WHERE v.gateway_invoice_id IS DISTINCT FROM a.gateway_invoice_id OR v.total_cents <> a.amount_cents
        LIMIT $2
        """,
    ),
    Invariant(
        "events_without_gaps",
        "event numbers run from 1 to the counter without a gap",
        """
        SELECT c.account_id AS offender
        FROM account_counter c
        WHERE c.account_id = $1 AND (
            SELECT (count(*), coalesce(max(e.sequence), 0)) FROM event e WHERE e.account_id = $1
        ) IS DISTINCT FROM (c.last_sequence, c.last_sequence)
        LIMIT $2
        """,
    ),
    Invariant(
        "one_event_per_birth",
        "every invoice was told as created exactly once",
        """
        SELECT u.invoice_id AS offender
        FROM (
            SELECT v.invoice_id, 1 AS born, 0 AS told FROM invoice v WHERE v.account_id = $1
            UNION ALL
            SELECT e.invoice_id, 0, 1 FROM event e WHERE e.account_id = $1 AND e.type = 'invoice.created'
        ) u
        GROUP BY u.invoice_id HAVING sum(u.born) <> 1 OR sum(u.told) <> 1
        LIMIT $2
        """,
    ),
    Invariant(
        "state_was_told",
        "an invoice that is issued, paid, overdue or canceled was told so exactly once",
        """
        SELECT u.invoice_id AS offender
        FROM (
            SELECT v.invoice_id, 'invoice.' || v.status AS type, 1 AS reached, 0 AS told FROM invoice v
            WHERE v.account_id = $1 AND v.status IN ('issued', 'paid', 'overdue', 'canceled')
            UNION ALL
            SELECT e.invoice_id, e.type, 0, 1 FROM event e
            WHERE e.account_id = $1
                AND e.type IN ('invoice.issued', 'invoice.paid', 'invoice.overdue', 'invoice.canceled')
        ) u
        GROUP BY u.invoice_id, u.type HAVING sum(u.reached) = 1 AND sum(u.told) <> 1
        LIMIT $2
        """,
    ),
    Invariant(
        "list_totals",
        "the totals that lists show are the numbers of rows",
        """
        SELECT c.account_id AS offender
        FROM account_counter c
        WHERE c.account_id = $1 AND (
            c.products, c.plans, c.customers, c.subscriptions_active, c.subscriptions_canceled, c.invoices_draft,
            c.invoices_awaiting_value, c.invoices_ready, c.invoices_issued, c.invoices_paid, c.invoices_overdue,
            c.invoices_canceled
        ) IS DISTINCT FROM (
            (SELECT count(*) FROM product p WHERE p.account_id = $1),
            (SELECT count(*) FROM plan p WHERE p.account_id = $1),
            (SELECT count(*) FROM customer p WHERE p.account_id = $1),
            (SELECT count(*) FROM subscription s WHERE s.account_id = $1 AND s.status = 'active'),
            (SELECT count(*) FROM subscription s WHERE s.account_id = $1 AND s.status = 'canceled'),
            (SELECT count(*) FROM invoice v WHERE v.account_id = $1 AND v.status = 'draft'),
            (SELECT count(*) FROM invoice v WHERE v.account_id = $1 AND v.status = 'awaiting_value'),
            (SELECT count(*) FROM invoice v WHERE v.account_id = $1 AND v.status = 'ready'),
            (SELECT count(*) FROM invoice v WHERE v.account_id = $1 AND v.status = 'issued'),
            (SELECT count(*) FROM invoice v WHERE v.account_id = $1 AND v.status = 'paid'),
            (SELECT count(*) FROM invoice v WHERE v.account_id = $1 AND v.status = 'overdue'),
            (SELECT count(*) FROM invoice v WHERE v.account_id = $1 AND v.status = 'canceled')
        )
        LIMIT $2
        """,
    ),
    Invariant(
        "nothing_after_cancellation",
        "no invoice was generated after its subscription was canceled",
        """
        SELECT v.invoice_id AS offender
        FROM invoice v JOIN subscription s ON s.subscription_id = v.subscription_id
        WHERE v.account_id = $1 AND s.account_id = $1 AND v.created_at > s.canceled_at
        LIMIT $2
        """,
    ),
    Invariant(
        "one_sandbox_charge",
        "the sandbox gateway holds at most one charge that is not canceled for an invoice, over its very total",
        """
        SELECT v.invoice_id AS offender
        FROM invoice v JOIN sandbox_charge b ON b.invoice_id = v.invoice_id
        WHERE v.account_id = $1 AND b.account_id = $1 AND b.status <> 'canceled'
        GROUP BY v.invoice_id, v.total_cents
        HAVING count(*) > 1 OR min(b.amount_cents) <> v.total_cents
        LIMIT $2
        """,
    ),
    Invariant(
        "pushed_in_order",
        "an invoice's events are delivered in the order of their numbers, none past one that is still open",
        """
        SELECT o.ordered_by AS offender
        FROM (
            SELECT d.ordered_by, d.delivered_at,
                bool_or(d.next_attempt_at IS NOT NULL) OVER w AS passed_an_open_one,
                max(d.delivered_at) OVER w AS delivered_before
            FROM delivery d WHERE d.account_id = $1 AND d.ordered_by IS NOT NULL
            WINDOW w AS (
                PARTITION BY d.ordered_by ORDER BY d.sequence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            )
        ) o
        WHERE o.delivered_at IS NOT NULL AND (o.passed_an_open_one OR o.delivered_before > o.delivered_at)
        LIMIT $2
        """,
    ),
    Invariant(
        "pushes_are_logged",
        "every attempt to push an event is in the log, and what is delivered has one that was",
        """
        SELECT e.event_id AS offender
        FROM (
            SELECT u.sequence
            FROM (
                SELECT d.sequence, d.attempts, (d.delivered_at IS NOT NULL)::int AS delivered, 0 AS logged, 0 AS good
                FROM delivery d WHERE d.account_id = $1
                UNION ALL
                SELECT a.sequence, 0, 0, 1, (a.outcome = 'delivered')::int
                FROM delivery_attempt a WHERE a.account_id = $1
            ) u
            GROUP BY u.sequence
            HAVING sum(u.attempts) <> sum(u.logged) OR (sum(u.delivered) > 0 AND sum(u.good) = 0)
        ) x JOIN event e ON e.sequence = x.sequence
        WHERE e.account_id = $1
        LIMIT $2
        """,
    ),
    Invariant(
        "pushes_follow_the_stream",
        "the webhook has taken up no event that the stream does not hold, and no event is pushed that it passed by",
        """
        SELECT w.account_id AS offender
        FROM webhook w JOIN account_counter n ON n.account_id = $1
        WHERE w.account_id = $1 AND (
            w.fanned_out_to > n.last_sequence
            OR EXISTS (SELECT FROM delivery d WHERE d.account_id = $1 AND d.sequence > w.fanned_out_to)
        )
        LIMIT $2
        """,
    ),
)
"""All promises, in the order in which they are checked."""


async def offenders(tx: Tx, invariant: Invariant, *, limit: int) -> Sequence[UUID]:
    """Return the ids that break a promise in the transaction's account."""
    return [row["offender"] for row in await tx.fetch(invariant.sql, limit)]


async def discover_accounts(discovery: Discovery) -> Sequence[UUID]:
    """Return all accounts."""
    return [
        row["account_id"] for row in await discovery.fetch("SELECT a.account_id FROM account a ORDER BY 1")
    ]
