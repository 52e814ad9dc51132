"""Find the accounts with due work of a lane (ADR 0016).

`discover` usually reads only due rows, from indexes that begin with the time. These indexes cannot find the due rows of
accounts whose test clock was moved, so `discover` reads those accounts one by one. While MAX_DUE_ROWS or more rows are
due, it reads all accounts one by one. Accounts with an advancing test clock are left out, because the worker that moves
the clock does their work. This does not apply to suspended accounts, because their clocks stand still. A lease that
ends later than any valid lease counts as expired (`store.leases`).
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import LiteralString
from uuid import UUID

from fatura.domain.account import Account
from fatura.store import suspension
from fatura.store.db import Discovery

MAX_DUE_ROWS = 1000
"""The LIMIT of each statement in DISCOVER_DUE.

If so many rows are due, the rows of one account could fill the limit, and the statement would miss other accounts.
"""
_ALL_CLOCKS, MOVED_CLOCKS = timedelta(0), timedelta(microseconds=1)
"""Two values for `least_offset`: to find all accounts, and to find only accounts whose test clock was moved."""

DISCOVER_DUE: Mapping[str, tuple[LiteralString, ...]] = {
    "generation": (
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT s.account_id FROM subscription s
            WHERE s.account_id <> ALL($2::uuid[])
                AND s.status = 'active' AND s.put_off_until IS NULL
                AND s.generate_at > '-infinity' AND s.generate_at <= $1
            ORDER BY s.generate_at LIMIT 1000
        ) d GROUP BY d.account_id
        """,
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT s.account_id FROM subscription s
            WHERE s.account_id <> ALL($2::uuid[])
                AND s.status = 'active' AND s.put_off_until > '-infinity' AND s.put_off_until <= $1
            ORDER BY s.put_off_until LIMIT 1000
        ) d GROUP BY d.account_id
        """,
    ),
    "pricing": (
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT p.account_id FROM price_pull p
            WHERE p.account_id <> ALL($2::uuid[])
                AND p.next_attempt_at > '-infinity' AND p.next_attempt_at <= $1
                AND (p.lease_until IS NULL OR p.lease_until <= $1
                    OR p.lease_until > $1::timestamptz + interval '3 minutes')
            ORDER BY p.next_attempt_at LIMIT 1000
        ) d GROUP BY d.account_id
        """,
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT p.account_id FROM price_pull p
            WHERE p.account_id <> ALL($2::uuid[])
                AND p.warn_at > '-infinity' AND p.warn_at <= $1
            ORDER BY p.warn_at LIMIT 1000
        ) d GROUP BY d.account_id
        """,
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT t.account_id FROM pricing_attempt t
            WHERE t.account_id <> ALL($2::uuid[])
                AND t.outcome IS NULL AND t.open_until > '-infinity' AND t.open_until <= $1
            ORDER BY t.open_until LIMIT 1000
        ) d GROUP BY d.account_id
        """,
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT t.account_id FROM pricing_attempt t
            WHERE t.account_id <> ALL($2::uuid[])
                AND t.outcome IS NULL AND t.open_until > '-infinity'
                AND t.open_until > $1::timestamptz + interval '3 minutes'
            ORDER BY t.open_until LIMIT 1000
        ) d GROUP BY d.account_id
        """,
    ),
    "issuance": (
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT v.account_id FROM invoice v
            WHERE v.account_id <> ALL($2::uuid[])
                AND v.status = 'ready' AND v.next_attempt_at > '-infinity' AND v.next_attempt_at <= $1
                AND (v.lease_until IS NULL OR v.lease_until <= $1
                    OR v.lease_until > $1::timestamptz + interval '3 minutes')
            ORDER BY v.next_attempt_at LIMIT 1000
        ) d GROUP BY d.account_id
        """,
    ),
    "reconciliation": (
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT v.account_id FROM invoice v
            WHERE v.status IN ('issued', 'overdue', 'paid', 'canceled')
                AND v.next_attempt_at > '-infinity' AND v.next_attempt_at <= $1
                AND (v.lease_until IS NULL OR v.lease_until <= $1
                    OR v.lease_until > $1::timestamptz + interval '3 minutes')
            ORDER BY v.next_attempt_at LIMIT 1000
        ) d GROUP BY d.account_id
        """,
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT l.account_id FROM late_charge_check l
            WHERE l.next_check_at > '-infinity' AND l.next_check_at <= $1
            ORDER BY l.next_check_at LIMIT 1000
        ) d GROUP BY d.account_id
        """,
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT r.account_id FROM refund_request r
            WHERE r.next_attempt_at > '-infinity' AND r.next_attempt_at <= $1
                AND (r.lease_until IS NULL OR r.lease_until <= $1
                    OR r.lease_until > $1::timestamptz + interval '3 minutes')
            ORDER BY r.next_attempt_at LIMIT 1000
        ) d GROUP BY d.account_id
        """,
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT u.account_id FROM unmatched_charge u
            WHERE u.next_look_at > '-infinity' AND u.next_look_at <= $1
            ORDER BY u.next_look_at LIMIT 1000
        ) d GROUP BY d.account_id
        """,
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT r.account_id FROM poll_round r
            WHERE r.next_step_at > '-infinity' AND r.next_step_at <= $1
            ORDER BY r.next_step_at LIMIT 1000
        ) d GROUP BY d.account_id
        """,
    ),
    "sweep": (
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT w.account_id FROM connection_sweep w
            WHERE w.next_sweep_at > '-infinity' AND w.next_sweep_at <= $1
                AND (w.lease_until IS NULL OR w.lease_until <= $1
                    OR w.lease_until > $1::timestamptz + interval '3 minutes')
            ORDER BY w.next_sweep_at LIMIT 1000
        ) d GROUP BY d.account_id
        """,
    ),
    "mirroring": (
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT m.account_id FROM product_mirror m
            WHERE m.account_id <> ALL($2::uuid[])
                AND m.next_attempt_at > '-infinity' AND m.next_attempt_at <= $1
                AND (m.lease_until IS NULL OR m.lease_until <= $1
                    OR m.lease_until > $1::timestamptz + interval '3 minutes')
            ORDER BY m.next_attempt_at LIMIT 1000
        ) d GROUP BY d.account_id
        """,
    ),
    "propagation": (
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT p.account_id FROM propagation p
            WHERE p.account_id <> ALL($2::uuid[])
                AND p.status = 'running' AND p.worked_at > '-infinity' AND p.worked_at <= $1
            ORDER BY p.worked_at LIMIT 1000
        ) d GROUP BY d.account_id
        """,
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT m.account_id FROM connection_move m
            WHERE m.account_id <> ALL($2::uuid[])
                AND m.status = 'running' AND m.worked_at > '-infinity' AND m.worked_at <= $1
            ORDER BY m.worked_at LIMIT 1000
        ) d GROUP BY d.account_id
        """,
    ),
    "erasure": (
        """
        SELECT d.account_id, count(*) AS due_rows FROM (
            SELECT e.account_id FROM erasure e
            WHERE e.stage <> 'done' AND e.next_attempt_at > '-infinity' AND e.next_attempt_at <= $1
            ORDER BY e.next_attempt_at LIMIT 1000
        ) d GROUP BY d.account_id
        """,
    ),
}
"""For each lane, statements that return how many rows of each account are due by real time.

A statement counts at most MAX_DUE_ROWS rows: those that have been due longest. The statements of the lanes in STOPPED
leave out the suspended accounts, whose ids are in `$2`.

Each index by time is partial: its condition contains `> '-infinity'`. These statements repeat the condition, so
PostgreSQL can use the indexes. All other statements omit the condition, so that PostgreSQL cannot use these indexes for
them. With these indexes, it would read the due rows of all accounts to find the due rows of one account.
"""
DISCOVER_ONE_BY_ONE: LiteralString = """
SELECT a.account_id, a.mode, a.currency, a.clock_offset
FROM (
    SELECT a.account_id, a.mode, a.currency, a.clock_offset, $1::timestamptz + a.clock_offset AS now
    FROM account a
    WHERE a.account_id = ANY($3::uuid[]) AND NOT EXISTS (
        SELECT FROM test_clock t
        WHERE t.account_id = a.account_id AND t.status = 'advancing' AND a.suspended_at IS NULL
    )
    GROUP BY a.account_id
) a
WHERE CASE
    WHEN $2::text = 'generation' THEN coalesce((
        SELECT true FROM subscription s
        WHERE s.account_id = a.account_id AND s.status = 'active' AND s.put_off_until IS NULL AND s.generate_at <= a.now
        ORDER BY s.generate_at LIMIT 1
    ), (
        SELECT true FROM subscription s
        WHERE s.account_id = a.account_id AND s.status = 'active' AND s.put_off_until <= a.now
        ORDER BY s.put_off_until LIMIT 1
    )) WHEN $2 = 'pricing' THEN coalesce((
        SELECT true FROM price_pull p
        WHERE p.account_id = a.account_id AND p.next_attempt_at <= a.now
            AND (p.lease_until IS NULL OR p.lease_until <= $1
                OR p.lease_until > $1::timestamptz + interval '3 minutes')
        ORDER BY p.next_attempt_at LIMIT 1
    ), (
        SELECT true FROM price_pull p
        WHERE p.account_id = a.account_id AND p.warn_at <= a.now
        ORDER BY p.warn_at LIMIT 1
    ), (
        SELECT true FROM pricing_attempt t
        WHERE t.account_id = a.account_id AND t.outcome IS NULL AND t.open_until <= $1
        ORDER BY t.open_until LIMIT 1
    ), (
        SELECT true FROM pricing_attempt t
        WHERE t.account_id = a.account_id AND t.outcome IS NULL
            AND t.open_until > $1::timestamptz + interval '3 minutes'
        ORDER BY t.open_until LIMIT 1
    )) WHEN $2 = 'issuance' THEN (
        SELECT true FROM invoice v
        WHERE v.account_id = a.account_id AND v.status = 'ready' AND v.next_attempt_at <= a.now
            AND (v.lease_until IS NULL OR v.lease_until <= $1
                OR v.lease_until > $1::timestamptz + interval '3 minutes')
        ORDER BY v.next_attempt_at LIMIT 1
    ) WHEN $2 = 'reconciliation' THEN coalesce((
        SELECT true FROM connection_health h CROSS JOIN LATERAL (
            SELECT v.next_attempt_at FROM invoice v
            WHERE v.account_id = a.account_id AND v.connection_id = h.connection_id AND v.polls_first
                AND v.status IN ('issued', 'overdue', 'paid', 'canceled') AND v.next_attempt_at <= a.now
                AND (v.lease_until IS NULL OR v.lease_until <= $1
                    OR v.lease_until > $1::timestamptz + interval '3 minutes')
            ORDER BY v.next_attempt_at LIMIT 1
        ) n WHERE h.account_id = a.account_id LIMIT 1
    ), (
        SELECT true FROM connection_health h CROSS JOIN LATERAL (
            SELECT v.next_attempt_at FROM invoice v
            WHERE v.account_id = a.account_id AND v.connection_id = h.connection_id AND NOT v.polls_first
                AND v.status IN ('issued', 'overdue', 'paid', 'canceled') AND v.next_attempt_at <= a.now
                AND (v.lease_until IS NULL OR v.lease_until <= $1
                    OR v.lease_until > $1::timestamptz + interval '3 minutes')
            ORDER BY v.next_attempt_at LIMIT 1
        ) n WHERE h.account_id = a.account_id LIMIT 1
    ), (
        SELECT true FROM late_charge_check l
        WHERE l.account_id = a.account_id AND l.next_check_at <= a.now
        ORDER BY l.next_check_at LIMIT 1
    ), (
        SELECT true FROM refund_request r
        WHERE r.account_id = a.account_id AND r.next_attempt_at <= a.now
            AND (r.lease_until IS NULL OR r.lease_until <= $1
                OR r.lease_until > $1::timestamptz + interval '3 minutes')
        ORDER BY r.next_attempt_at LIMIT 1
    ), (
        SELECT true FROM unmatched_charge u
        WHERE u.account_id = a.account_id AND u.next_look_at <= a.now
        ORDER BY u.next_look_at LIMIT 1
    ), (
        SELECT true FROM poll_round r
        WHERE r.account_id = a.account_id AND r.next_step_at <= a.now
        ORDER BY r.next_step_at LIMIT 1
    )) WHEN $2 = 'sweep' THEN (
        SELECT true FROM connection_sweep w
        WHERE w.account_id = a.account_id AND w.next_sweep_at <= a.now
            AND (w.lease_until IS NULL OR w.lease_until <= $1
                OR w.lease_until > $1::timestamptz + interval '3 minutes')
        ORDER BY w.next_sweep_at LIMIT 1
    ) WHEN $2 = 'mirroring' THEN (
        SELECT true FROM product_mirror m
        WHERE m.account_id = a.account_id AND m.next_attempt_at <= a.now
            AND (m.lease_until IS NULL OR m.lease_until <= $1
                OR m.lease_until > $1::timestamptz + interval '3 minutes')
        ORDER BY m.next_attempt_at LIMIT 1
    ) WHEN $2 = 'propagation' THEN coalesce((
        SELECT true FROM propagation p
        WHERE p.account_id = a.account_id AND p.status = 'running' AND p.worked_at <= a.now
        ORDER BY p.worked_at LIMIT 1
    ), (
        SELECT true FROM connection_move m
        WHERE m.account_id = a.account_id AND m.status = 'running' AND m.worked_at <= a.now
        ORDER BY m.worked_at LIMIT 1
    )) WHEN $2 = 'erasure' THEN (
        SELECT true FROM erasure e
        WHERE e.account_id = a.account_id AND e.stage <> 'done' AND e.next_attempt_at <= a.now
        ORDER BY e.next_attempt_at LIMIT 1
    )
END
"""
"""Finds the accounts among `$3` that have due work of the lane `$2`.

A subquery computes each account's time: under Row Level Security, an index serves only comparisons with plain values,
not with sums. GROUP BY keeps PostgreSQL from merging this subquery into the outer query. A CTE would prevent the
merge too, but Citus would collect the rows of the CTE on one node. `ORDER BY ... LIMIT 1` uses an index, but EXISTS may
read the whole table.
"""
LANES = frozenset(DISCOVER_DUE)  # the lanes that `discover` knows


STOPPED = frozenset(
    {"generation", "pricing", "issuance", "mirroring", "propagation", "push", "probe", "test_clock"}
)
"""The lanes that do nothing for suspended accounts. Other lanes follow charges and refunds, or delete data (D-242)."""


async def discover(discovery: Discovery, lane: str, *, real_now: datetime) -> Sequence[Account]:
    """Return the accounts that have due work of a lane. Work that a worker has leased does not count."""
    stopped: list[list[UUID]] = []
    if lane in STOPPED:
        stopped.append(list(await suspension.discover(discovery)))
    left_out = frozenset[UUID]().union(*stopped)
    rows = [row for sql in DISCOVER_DUE[lane] for row in await discovery.fetch(sql, real_now, *stopped)]
    if sum(row["due_rows"] for row in rows) >= MAX_DUE_ROWS:
        everyone = await discover_by_clock(discovery, least_offset=_ALL_CLOCKS)
        ids = [each for each in everyone if each not in left_out]
        return await discover_one_by_one(discovery, lane, account_ids=ids, real_now=real_now)
    moved = await discover_by_clock(discovery, least_offset=MOVED_CLOCKS)
    moved = [each for each in moved if each not in left_out]
    return [
        *await discover_one_by_one(discovery, lane, account_ids=moved, real_now=real_now),
        *await discover_served(discovery, {row["account_id"] for row in rows}.difference(moved)),
    ]


async def discover_by_clock(discovery: Discovery, *, least_offset: timedelta) -> Sequence[UUID]:
    """Return the accounts whose clock is at least `least_offset` ahead of real time."""
    rows = await discovery.fetch(
        "SELECT a.account_id FROM account a WHERE a.clock_offset >= $1::interval", least_offset
    )
    return [row["account_id"] for row in rows]


async def discover_served(discovery: Discovery, account_ids: Collection[UUID]) -> Sequence[Account]:
    """Return the given accounts. Leave out those with an advancing test clock, unless they are suspended (D-242)."""
    if not account_ids:
        return []
    return await discovery.fetch_as(
        Account,
        """
        SELECT a.account_id, a.mode, a.currency, a.clock_offset FROM account a
        WHERE a.account_id = ANY($1::uuid[])
            AND NOT EXISTS (
                SELECT FROM test_clock t
                WHERE t.account_id = a.account_id AND t.status = 'advancing' AND a.suspended_at IS NULL
            )
        """,
        list(account_ids),
    )


async def discover_one_by_one(
    discovery: Discovery, lane: str, *, account_ids: Sequence[UUID], real_now: datetime
) -> Sequence[Account]:
    """Return those of the given accounts that have due work of the lane by their own clocks.

    Accounts with an advancing test clock are left out, unless they are suspended (D-242).
    """
    if not account_ids:
        return []
    return await discovery.fetch_as(Account, DISCOVER_ONE_BY_ONE, real_now, lane, account_ids)
