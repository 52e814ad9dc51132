"""Find the accounts with due work of a lane, in one read over all accounts, and when an account's next work is due.

A subquery computes each account's time: under Row Level Security, an index serves only comparisons with plain values,
not with sums. GROUP BY keeps PostgreSQL from merging this subquery into the outer query. A CTE would do so too, but
Citus would collect its rows on one node. `ORDER BY ... LIMIT 1` uses an index, but EXISTS may read the whole table.
Accounts with an advancing test clock are left out, because the clock's driver does their work.
"""

from collections.abc import Sequence
from datetime import datetime

from fatura.domain.account import Account
from fatura.store.db import Discovery, Tx


async def discover(discovery: Discovery, lane: str, *, real_now: datetime) -> Sequence[Account]:
    """Return the accounts with due work of a lane that no worker has leased."""
    return await discovery.fetch_as(
        Account,
        """
        SELECT a.account_id, a.mode, a.currency, a.clock_offset
        FROM (
            SELECT a.account_id, a.mode, a.currency, a.clock_offset, $1::timestamptz + a.clock_offset AS now
            FROM account a
            WHERE NOT EXISTS (SELECT FROM test_clock t WHERE t.account_id = a.account_id AND t.status = 'advancing')
            GROUP BY a.account_id
        ) a
        WHERE CASE
            WHEN $2::text = 'generation' THEN (
                SELECT true FROM subscription s
                WHERE s.account_id = a.account_id AND s.status = 'active' AND s.generate_at <= a.now
                ORDER BY s.generate_at LIMIT 1
            ) WHEN $2 = 'pricing' THEN coalesce((
                SELECT true FROM price_pull p
                WHERE p.account_id = a.account_id AND p.next_attempt_at <= a.now
                    AND (p.lease_until IS NULL OR p.lease_until <= $1)
                ORDER BY p.next_attempt_at LIMIT 1
            ), (
                SELECT true FROM price_pull p
                WHERE p.account_id = a.account_id AND p.warn_at <= a.now
                ORDER BY p.warn_at LIMIT 1
            ), (
                SELECT true FROM pricing_attempt t
                WHERE t.account_id = a.account_id AND t.outcome IS NULL AND t.open_until <= $1
                ORDER BY t.open_until LIMIT 1
            )) WHEN $2 = 'issuance' THEN (
                SELECT true FROM invoice v
                WHERE v.account_id = a.account_id AND v.status = 'ready' AND v.next_attempt_at <= a.now
                    AND (v.lease_until IS NULL OR v.lease_until <= $1)
                ORDER BY v.next_attempt_at LIMIT 1
            ) WHEN $2 = 'reconciliation' THEN coalesce((
                SELECT true FROM invoice v
                WHERE v.account_id = a.account_id AND v.status IN ('issued', 'overdue', 'paid', 'canceled')
                    AND v.next_attempt_at <= a.now AND (v.lease_until IS NULL OR v.lease_until <= $1)
                ORDER BY v.status, v.next_attempt_at LIMIT 1
            ), (
                SELECT true FROM late_charge_check l
                WHERE l.account_id = a.account_id AND l.next_check_at <= a.now
                ORDER BY l.next_check_at LIMIT 1
            )) WHEN $2 = 'mirroring' THEN (
                SELECT true FROM product_mirror m
                WHERE m.account_id = a.account_id AND m.next_attempt_at <= a.now
                    AND (m.lease_until IS NULL OR m.lease_until <= $1)
                ORDER BY m.next_attempt_at LIMIT 1
            )
        END
        """,
        real_now,
        lane,
    )


async def discover_push(discovery: Discovery, *, is_down: bool, real_now: datetime) -> Sequence[Account]:
    """Return the accounts with events to deliver now, either those whose endpoint is down or those whose is up."""
    return await discovery.fetch_as(
        Account,
        """
        SELECT a.account_id, a.mode, a.currency, a.clock_offset
        FROM webhook w JOIN (
            SELECT a.account_id, a.mode, a.currency, a.clock_offset, $1::timestamptz + a.clock_offset AS now
            FROM account a
            WHERE NOT EXISTS (SELECT FROM test_clock t WHERE t.account_id = a.account_id AND t.status = 'advancing')
            GROUP BY a.account_id
        ) a ON a.account_id = w.account_id
        JOIN account_counter n ON n.account_id = w.account_id
        WHERE w.disabled_at IS NULL AND (w.failures > 0) = $2 AND (w.lease_until IS NULL OR w.lease_until <= $1)
            AND (w.next_attempt_at IS NULL OR w.next_attempt_at <= a.now)
            AND (n.last_sequence > w.fanned_out_to OR coalesce(
                (
                    SELECT true FROM delivery d
                    WHERE d.account_id = w.account_id AND d.next_attempt_at <= a.now
                        AND d.waits IS NOT TRUE AND NOT EXISTS (
                            SELECT FROM delivery b
                            WHERE b.account_id = d.account_id AND b.ordered_by = d.ordered_by
                                AND b.sequence < d.sequence AND b.next_attempt_at IS NOT NULL
                        )
                    ORDER BY d.sequence LIMIT 1
                ), (
                    SELECT true FROM delivery d
                    WHERE d.account_id = w.account_id AND d.next_attempt_at IS NULL AND d.waits IS NOT NULL
                    ORDER BY d.sequence LIMIT 1
                )
            ))
        """,
        real_now,
        is_down,
    )


async def discover_expired_keys(discovery: Discovery, *, real_now: datetime) -> Sequence[Account]:
    return await discovery.fetch_as(
        Account,
        """
        SELECT a.account_id, a.mode, a.currency, a.clock_offset FROM account a
        WHERE (
            SELECT true FROM idempotency_key i WHERE i.account_id = a.account_id AND i.expires_at <= $1
            ORDER BY i.expires_at LIMIT 1
        )
        """,
        real_now,
    )


async def next_due_at(tx: Tx) -> datetime | None:
    """Return when the next work of any lane is due on the account's clock, or None."""
    return await tx.fetchval(
        """
        SELECT least(
            (SELECT min(s.generate_at) FROM subscription s WHERE s.account_id = $1 AND s.status = 'active'),
            (SELECT min(p.next_attempt_at) FROM price_pull p
                WHERE p.account_id = $1 AND p.next_attempt_at IS NOT NULL),
            (SELECT min(p.warn_at) FROM price_pull p WHERE p.account_id = $1 AND p.warn_at IS NOT NULL),
            (SELECT min(v.next_attempt_at) FROM invoice v
                WHERE v.account_id = $1 AND v.status = 'ready' AND v.next_attempt_at IS NOT NULL),
            (SELECT min(v.next_attempt_at) FROM invoice v
                WHERE v.account_id = $1 AND v.status = 'issued' AND v.next_attempt_at IS NOT NULL),
            (SELECT min(v.next_attempt_at) FROM invoice v
                WHERE v.account_id = $1 AND v.status = 'overdue' AND v.next_attempt_at IS NOT NULL),
            (SELECT min(v.next_attempt_at) FROM invoice v
                WHERE v.account_id = $1 AND v.status = 'paid' AND v.next_attempt_at IS NOT NULL),
            (SELECT min(v.next_attempt_at) FROM invoice v
                WHERE v.account_id = $1 AND v.status = 'canceled' AND v.next_attempt_at IS NOT NULL),
            (SELECT min(l.next_check_at) FROM late_charge_check l
                WHERE l.account_id = $1 AND l.next_check_at IS NOT NULL),
            (SELECT min(m.next_attempt_at) FROM product_mirror m
                WHERE m.account_id = $1 AND m.next_attempt_at IS NOT NULL),
            (SELECT min(greatest(w.next_attempt_at, u.due_at)) FROM webhook w CROSS JOIN (
                (SELECT n.due_at FROM (
                    SELECT d.sequence, d.ordered_by, d.next_attempt_at AS due_at FROM delivery d
                    WHERE d.account_id = $1 AND d.next_attempt_at IS NOT NULL AND d.waits IS NOT TRUE
                    ORDER BY d.next_attempt_at
                ) n
                WHERE NOT EXISTS (
                    SELECT FROM delivery b
                    WHERE b.account_id = $1 AND b.ordered_by = n.ordered_by AND b.sequence < n.sequence
                        AND b.next_attempt_at IS NOT NULL
                )
                ORDER BY n.due_at LIMIT 1)
                UNION ALL
                SELECT coalesce(d.delivered_at, d.given_up_at) FROM delivery d
                WHERE d.account_id = $1 AND d.next_attempt_at IS NULL AND d.waits IS NOT NULL
                UNION ALL
                SELECT e.created_at FROM event e
                WHERE e.account_id = $1
                    AND e.sequence = (SELECT x.fanned_out_to + 1 FROM webhook x WHERE x.account_id = $1)
            ) u WHERE w.account_id = $1 AND w.disabled_at IS NULL)
        )
        """
    )
