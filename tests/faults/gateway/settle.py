"""Wait until all work of the gateway run is final. When nothing is due, set the clock forward."""

import asyncio
import time
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from fatura.store import due_times
from fatura.store.db import Tx
from tests.faults.clock import FastClock
from tests.faults.gateway.world import World
from tests.faults.workers import Workers

NEXT = """
    SELECT least(
        (SELECT min(greatest(v.next_attempt_at, v.lease_until)) FROM invoice v
            WHERE v.next_attempt_at IS NOT NULL AND ($1 OR v.status = 'ready')),
        (SELECT min(s.put_off_until) FROM subscription s WHERE s.status = 'active'),
        (SELECT min(l.next_check_at) FROM late_charge_check l),
        (SELECT min(u.next_look_at) FROM unmatched_charge u),
        (SELECT min(r.next_step_at) FROM poll_round r),
        (SELECT min(greatest(w.next_attempt_at, w.lease_until, u.due_at)) FROM webhook w
            JOIN account_counter n USING (account_id), LATERAL (
                SELECT CASE WHEN n.last_sequence > w.fanned_out_to THEN $2::timestamptz ELSE min(d.next_attempt_at) END
                    AS due_at
                FROM delivery d WHERE d.account_id = w.account_id AND d.next_attempt_at IS NOT NULL
                    AND d.waits IS NOT TRUE
            ) u WHERE u.due_at IS NOT NULL)
    ) AS due_at,
    (SELECT max(w.lease_until) FROM webhook w WHERE w.lease_until > $2) AS pushing_until
"""
"""Selects two times: when the next work is due, and when the latest lease of a webhook ends.

The next cycle of a subscription does not count as work. If it did, the run could set the clock beyond due dates before
late look-ups have found and canceled all second charges (D-125).

`$1` is true if polls of charges count as work. `$2` is the current time.
"""
OPEN = """
    SELECT count(*) FROM (
        SELECT 1 FROM invoice WHERE status IN ('draft', 'awaiting_value') OR next_attempt_at IS NOT NULL
            AND (status = 'ready' OR $1 AND status = 'issued')
        UNION ALL SELECT 1 FROM late_charge_check WHERE next_check_at IS NOT NULL
        UNION ALL SELECT 1 FROM poll_round WHERE next_step_at IS NOT NULL
        UNION ALL SELECT 1 FROM unmatched_charge WHERE next_look_at < $2::timestamptz + interval '12 hours'
        UNION ALL SELECT 1 FROM delivery WHERE next_attempt_at IS NOT NULL
        UNION ALL SELECT 1 FROM webhook JOIN account_counter n USING (account_id) WHERE n.last_sequence > fanned_out_to
        UNION ALL SELECT 1 FROM subscription WHERE status = 'active' AND coalesce(put_off_until, generate_at) <= $2
        LIMIT $3
    ) unended
"""
"""Counts rows with unfinished work, up to `$3` rows.

The engine reads a paid second charge from the gateway again and again for months (D-162). Only reads in the next 12
hours count as work. If the run waited for all reads, the clock would pass all due dates, and another cycle would begin.

`$1` is true if polls of charges count as work. `$2` is the current time.
"""
UNFINISHED_SWEEPS = "SELECT count(*) FROM connection_sweep WHERE started_at IS NOT NULL"
MORE, MORE_SHARE = timedelta(seconds=60), 0.1
"""Each clock jump is longer than needed, by MORE and by MORE_SHARE of the needed time.

One jump therefore makes several rows due.
"""
CHECK_SECONDS = 0.1
QUIET_SECONDS = 0.25
"""The clock is set forward when the next due time has not changed for this long."""
DEAD_PUSHER_SECONDS = 2
"""Replaces QUIET_SECONDS while a webhook is leased.

If the lease has not changed for this long, the run assumes that the worker with this lease is dead. The run then sets
the clock beyond the end of the lease.
"""
STUCK_SECONDS = 2
LEASE_SECONDS = 70
FROZEN_JUMP = timedelta(seconds=100)
"""Maximum clock jump while a worker is frozen."""


class Billing(Protocol):
    """A run with its own clock. `tables` is a superuser's connection pool."""

    @property
    def clock(self) -> FastClock: ...
    @property
    def tables(self) -> Any: ...
    @property
    def account_ids(self) -> Collection[UUID]: ...


async def settle(world: World, workers: Workers, *, include_polls: bool, give_up_at: float) -> int:
    """Wait until all work is final, or until the monotonic time `give_up_at`.

    Return the number of rows with unfinished work.
    """
    seen: tuple[datetime | None, datetime | None] = None, None
    since = time.monotonic()
    while time.monotonic() < give_up_at:
        now = world.clock()
        # Read `frozen` only here, because the list can change during the awaits below. If a worker was frozen here, the
        # jump is short, even if the worker continues meanwhile.
        is_frozen = bool(workers.frozen)
        unsettled: int = await world.tables.fetchval(OPEN, include_polls, now, 1)
        if not unsettled and not is_frozen:
            return 0
        row = await world.tables.fetchrow(NEXT, include_polls, now)
        if (row["due_at"], row["pushing_until"]) != seen:
            seen, since = (row["due_at"], row["pushing_until"]), time.monotonic()
        due_at: datetime | None = row["due_at"]
        quiet = DEAD_PUSHER_SECONDS if row["pushing_until"] else QUIET_SECONDS
        if due_at is not None and due_at > now and time.monotonic() - since >= quiet:
            ahead = (due_at - now) * (1 + MORE_SHARE) + MORE
            world.clock.jump((min(ahead, FROZEN_JUMP) if is_frozen else ahead).total_seconds())
            since = time.monotonic()
        await asyncio.sleep(CHECK_SECONDS)
    return await world.tables.fetchval(OPEN, include_polls, world.clock(), None)


async def drained(world: Billing, *, seconds: float) -> None:
    """Wait until no lane of any account has due work, or until `seconds` real seconds have passed.

    If the oldest due work does not change for STUCK_SECONDS, a dead worker probably leased the work. In this case, set
    the clock forward beyond the end of the lease.
    """
    give_up_at = time.monotonic() + seconds
    quiet_from = seen_at = time.monotonic()
    seen: object = None
    while time.monotonic() < give_up_at and time.monotonic() - quiet_from < QUIET_SECONDS:
        oldest = await _oldest_due(world)
        if oldest != seen:
            seen, seen_at = oldest, time.monotonic()
        if oldest is not None:
            quiet_from = time.monotonic()
            if time.monotonic() - seen_at >= STUCK_SECONDS:
                world.clock.jump(LEASE_SECONDS)
                seen_at = time.monotonic()
        await asyncio.sleep(CHECK_SECONDS)


async def swept(world: Billing, *, give_up_at: float) -> None:
    """Wait until no sweep is unfinished, or until the monotonic time `give_up_at`.

    `drained` does not wait for leased sweeps, because they are not due.
    """
    while await world.tables.fetchval(UNFINISHED_SWEEPS):
        if time.monotonic() >= give_up_at:
            return
        await asyncio.sleep(CHECK_SECONDS)


async def _oldest_due(world: Billing) -> tuple[datetime, UUID] | None:
    """Return the due time of the oldest due work, and its account. Return None if no work is due."""
    due: list[tuple[datetime, UUID]] = []
    async with world.tables.acquire() as connection:
        for account_id in world.account_ids:
            due_at = await due_times.next_due_at(Tx(connection, account_id))
            if due_at is not None and due_at <= world.clock():
                due.append((due_at, account_id))
    return min(due, default=None)
