"""Find the accounts that have events to deliver (ADR 0016)."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.domain.account import Account
from fatura.store import suspension
from fatura.store.db import Discovery
from fatura.store.discovery import MOVED_CLOCKS, discover_by_clock, discover_served


async def discover_push(discovery: Discovery, *, is_down: bool, real_now: datetime) -> Sequence[Account]:
    """Return the accounts that have events to deliver now, except suspended ones.

    With `is_down`, return only accounts whose endpoint is down; otherwise, only accounts whose endpoint is up.
    """
    due = await discovery.fetch(
        """
        SELECT w.account_id FROM webhook w
        WHERE w.disabled_at IS NULL AND w.push_at <= $1 AND (w.failures > 0) = $2
            AND (w.next_attempt_at IS NULL OR w.next_attempt_at <= $1)
            AND (w.lease_until IS NULL OR w.lease_until <= $1
                OR w.lease_until > $1::timestamptz + interval '3 minutes')
        """,
        real_now,
        is_down,
    )
    untaken = await discovery.fetch("SELECT c.account_id FROM account_counter c WHERE c.untaken_events")
    listed = {row["account_id"] for row in untaken}
    listed.update(await discover_by_clock(discovery, least_offset=MOVED_CLOCKS))
    suspended = await suspension.discover(discovery)
    one_by_one = list(listed.difference(suspended))
    return [
        *await discover_push_one_by_one(discovery, one_by_one, is_down=is_down, real_now=real_now),
        *await discover_served(discovery, {row["account_id"] for row in due}.difference(listed, suspended)),
    ]


async def discover_push_one_by_one(
    discovery: Discovery, account_ids: Sequence[UUID], *, is_down: bool, real_now: datetime
) -> Sequence[Account]:
    """Return those of the given accounts that, by their own clocks, have events to deliver now.

    Accounts with an advancing test clock are left out. For `is_down`, see `discover_push`.
    """
    if not account_ids:
        return []
    return await discovery.fetch_as(
        Account,
        """
        SELECT a.account_id, a.mode, a.currency, a.clock_offset
        FROM (
            SELECT a.account_id, a.mode, a.currency, a.clock_offset, $1::timestamptz + a.clock_offset AS now
            FROM account a
            WHERE a.account_id = ANY($3::uuid[]) AND NOT EXISTS (
                SELECT FROM test_clock t WHERE t.account_id = a.account_id AND t.status = 'advancing'
            )
            GROUP BY a.account_id
        ) a
        JOIN webhook w ON w.account_id = a.account_id
        JOIN account_counter c ON c.account_id = a.account_id
        WHERE w.disabled_at IS NULL AND (w.failures > 0) = $2 AND (c.untaken_events OR w.push_at <= a.now)
            AND (w.next_attempt_at IS NULL OR w.next_attempt_at <= a.now)
            AND (w.lease_until IS NULL OR w.lease_until <= $1
                OR w.lease_until > $1::timestamptz + interval '3 minutes')
        """,
        real_now,
        is_down,
        account_ids,
    )
