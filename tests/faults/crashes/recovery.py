"""Recovery after a kill: clients repeat their requests, and another process runs the lanes.

The first run of the lanes is 60 seconds after the kill. All leases of the killed process must have expired by then.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from fatura.store import due_times
from tests.faults import ledgers
from tests.faults.crashes import outcome
from tests.faults.crashes.acts import Flow, OpenAccount, Request
from tests.faults.crashes.place import Place, ShiftedClock, Shop, open_shop
from tests.faults.crashes.trial_database import TrialDatabase
from tests.faults.journal import JOURNAL_FILE, Journal
from tests.support.world import Answer

RECOVERED_WITHIN = timedelta(seconds=60)
"""Time after a kill within which another process must take over all work."""
LEAST_STEP = timedelta(seconds=5)
MOST_STEPS = 300
"""Maximum number of times that a trial runs the lanes. A higher number indicates an endless loop."""

_LEASES = """
    SELECT max(held.until) AS until FROM (
        SELECT v.lease_until AS until FROM invoice v
        UNION ALL SELECT p.lease_until FROM price_pull p
        UNION ALL SELECT t.open_until FROM pricing_attempt t WHERE t.outcome IS NULL
        UNION ALL SELECT m.lease_until FROM product_mirror m
        UNION ALL SELECT w.lease_until FROM webhook w
        UNION ALL SELECT c.lease_until FROM test_clock c WHERE c.status = 'advancing'
        UNION ALL SELECT f.lease_until FROM refund_request f
        UNION ALL SELECT x.lease_until FROM connection_sweep x
    ) held
"""
_UNSETTLED = """
    SELECT (SELECT count(*) FROM charge c WHERE c.stage IN ('planned', 'sending', 'unknown', 'absent'))
        + (SELECT count(*) FROM pricing_attempt t WHERE t.outcome IS NULL)
        + (SELECT count(*) FROM price_pull p WHERE p.next_attempt_at IS NOT NULL)
        + (SELECT count(*) FROM delivery d WHERE d.next_attempt_at IS NOT NULL)
        + (SELECT count(*) FROM refund_request f WHERE f.closed_at IS NULL)
        + (SELECT count(*) FROM unmatched_charge u WHERE u.next_look_at IS NOT NULL)
        + (SELECT count(*) FROM poll_round r WHERE r.next_step_at IS NOT NULL)
        + (SELECT count(*) FROM connection_move o WHERE o.status = 'running') AS left
"""


async def recover(
    place: Place, flow: Flow, *, database: TrialDatabase, now: ShiftedClock, killed: bool
) -> dict[str, Any]:
    """Run the lanes of a trial for `flow.days` days of the trial's clock. Return the problems and the outcome.

    Clients repeat their requests only if the process was `killed`.
    """
    requests = flow.requests if killed else []
    await database.wait_for_killed_sessions()
    died_at = now()
    async with open_shop(place, now=now, notes=place.notes(), db=database.db) as shop:
        held_until = (await shop.sql(_LEASES))[0]["until"]
        answers = [await act(shop) for act in requests]  # the killed process still holds its leases now
        now.move_to(died_at + RECOVERED_WITHIN)
        await shop.run()
        problems = await _still_due(shop)
        answers = [await _repeat(shop, act, first) for act, first in zip(requests, answers, strict=True)]
        for act in flow.acts:
            if isinstance(act, OpenAccount) and killed:
                await act(shop)
        settled_at = await _follow(shop, until=died_at + timedelta(days=flow.days))
        journal = Journal(place.folder / JOURNAL_FILE)
        problems += await ledgers.check_by(database.reader, shop.deps, journal)
        reached = await outcome.of(shop, journal)
        journal.close()
        return {
            "problems": problems,
            "outcome": reached,
            "answers": [act.comparable(shop, answer) for act, answer in zip(requests, answers, strict=True)],
            "held_seconds": max(0.0, (held_until - died_at).total_seconds()) if held_until else 0.0,
            "settled_seconds": (settled_at - died_at).total_seconds(),
        }


async def _still_due(shop: Shop) -> list[str]:
    """Return a problem if work is still due although all lanes ran.

    The lanes leave due work undone only if the killed process still holds a lease on this work.
    """
    due_at = await _due_at(shop)
    return (
        [f"due since {due_at}, and leased by the killed process"]
        if due_at is not None and due_at <= shop.now()
        else []
    )


async def _repeat(shop: Shop, act: Request, answer: Answer) -> Answer:
    """Repeat a request until its response is final, at most five times. Before each repeat, run the lanes."""
    for _ in range(5):
        if act.is_final(answer):
            break
        shop.now.move(5)
        await shop.run()
        answer = await act(shop)
    return answer


async def _follow(shop: Shop, *, until: datetime) -> datetime:
    """Run the lanes each time work is due, up to the time `until`.

    Return the first time at which the query `_UNSETTLED` found no unfinished work, or `until` if it always found some.
    """
    settled_at: datetime | None = None
    for _ in range(MOST_STEPS):
        if settled_at is None and not (await shop.sql(_UNSETTLED))[0]["left"]:
            settled_at = shop.now()
        due_at = await _due_at(shop)
        if due_at is None or due_at >= until:
            return settled_at or until
        shop.now.move_to(max(due_at, shop.now() + LEAST_STEP))
        await shop.run()
    raise AssertionError(
        f"more than {MOST_STEPS} instants until {until}: {await _due_at(shop)} is not reached"
    )


async def _due_at(shop: Shop) -> datetime | None:
    """Return the due time of the account's next work, on the trial's clock.

    The engine computes this time on the account's test clock, whose offset is subtracted here.
    """
    async with shop.deps.db.transaction(UUID(str(shop.account_id))) as tx:
        due_at = await due_times.next_due_at(tx)
        offset = await tx.fetchval("SELECT a.clock_offset FROM account a WHERE a.account_id = $1")
    return None if due_at is None else due_at - offset
