"""SQL of the budgets of polls and looks in `connection_health` (D-55, D-162).

Transactions lock rounds, invoices, unmatched charges and budgets in this order. Only a claim locks the budgets first.
To avoid deadlocks, a claim then locks invoices, late look-ups and unmatched charges with SKIP LOCKED.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.charging import LONGEST_BUDGET_WAIT, PollBudget
from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class LockedBudget:
    """A locked connection's budget of polls or looks.

    `free_from` (real time) is when the budget allows the next poll or look, or None before the first one.
    `polled_named` is true if the newest poll on the connection was caused by a webhook that named a charge.
    """

    connection_id: UUID
    polls_per_minute: int | None
    free_from: datetime | None
    polled_named: bool
    is_failing: bool

    @property
    def budget(self) -> PollBudget | None:
        """The budget of the connection, or None if the connection has no limit."""
        return None if self.polls_per_minute is None else PollBudget(self.polls_per_minute, self.free_from)


async def lock(tx: Tx, connection_id: UUID, *, of_looks: bool, real_now: datetime) -> LockedBudget:
    """Lock a connection's budget. With `of_looks`, its `free_from` is when the next look is allowed.

    A time that is more than LONGEST_BUDGET_WAIT from now is ignored: a host with a wrong clock has stored it (D-5).
    """
    found = await tx.fetchrow_as(
        LockedBudget,
        """
        SELECT h.connection_id, h.polls_per_minute, h.polled_named, h.next_probe_at IS NOT NULL AS is_failing,
            greatest(
                CASE WHEN h.polls_from <= $4 THEN h.polls_from END,
                CASE WHEN $3 AND h.looks_from <= $4 THEN h.looks_from END
            ) AS free_from
        FROM connection_health h WHERE h.account_id = $1 AND h.connection_id = $2 FOR NO KEY UPDATE
        """,
        connection_id,
        of_looks,
        real_now + LONGEST_BUDGET_WAIT,
    )
    assert found is not None, "every connection has a row"
    return found


async def lock_pollable(tx: Tx, *, now: datetime, real_now: datetime) -> Sequence[LockedBudget]:
    """Lock, in id order, the budgets of the connections that have a due poll and whose budget allows a poll now.

    Failing connections with a due poll are included even if their budgets allow no poll, because their polls must be
    put off.
    """
    return await tx.fetch_as(
        LockedBudget,
        """
        SELECT h.connection_id, h.polls_per_minute, h.polled_named, h.next_probe_at IS NOT NULL AS is_failing,
            h.polls_from AS free_from
        FROM connection_health h
        WHERE h.account_id = $1
            AND (h.polls_per_minute IS NULL OR coalesce(h.polls_from <= $3 OR h.polls_from > $4, true)
                OR h.next_probe_at IS NOT NULL)
            AND coalesce((
                SELECT true FROM invoice v
                WHERE v.account_id = $1 AND v.connection_id = h.connection_id AND v.polls_first
                    AND v.status IN ('issued', 'overdue', 'paid', 'canceled') AND v.next_attempt_at <= $2
                ORDER BY v.next_attempt_at LIMIT 1
            ), (
                SELECT true FROM invoice v
                WHERE v.account_id = $1 AND v.connection_id = h.connection_id AND NOT v.polls_first
                    AND v.status IN ('issued', 'overdue', 'paid', 'canceled') AND v.next_attempt_at <= $2
                ORDER BY v.next_attempt_at LIMIT 1
            ), false)
        ORDER BY h.connection_id FOR NO KEY UPDATE OF h
        """,
        now,
        real_now,
        real_now + LONGEST_BUDGET_WAIT,
    )


async def lock_lookable(tx: Tx, *, now: datetime, real_now: datetime, late: bool) -> Sequence[LockedBudget]:
    """Lock, in id order, the budgets of the connections that have a due look and whose budget allows a look now.

    With `late`, do the same for late look-ups (D-125), which share one half of the budget with looks.

    While polls of a connection are due, its polls and looks take turns: after a batch of looks or late look-ups, the
    next batch must wait until a poll was made. Without this rule, looks could use the whole budget if workers serve the
    account only rarely (D-162). While both looks and late look-ups are due, they take turns too.

    Failing connections with a due look are included even if their budgets allow no look, because their looks must be
    put off.
    """
    return await tx.fetch_as(
        LockedBudget,
        """
        SELECT h.connection_id, h.polls_per_minute, h.polled_named, h.next_probe_at IS NOT NULL AS is_failing,
            budget.free_from
        FROM connection_health h CROSS JOIN LATERAL (SELECT greatest(
            CASE WHEN h.polls_from <= $4 THEN h.polls_from END, CASE WHEN h.looks_from <= $4 THEN h.looks_from END
        ) AS free_from) budget CROSS JOIN LATERAL (SELECT coalesce((
            SELECT true FROM unmatched_charge u
            WHERE u.account_id = $1 AND u.connection_id = h.connection_id AND u.next_look_at <= $2
            ORDER BY u.next_look_at LIMIT 1
        ), false) AS looks, coalesce((
            SELECT true FROM late_charge_check l
            WHERE l.account_id = $1 AND l.connection_id = h.connection_id AND l.next_check_at <= $2
            ORDER BY l.next_check_at LIMIT 1
        ), false) AS late_look_ups) due
        WHERE h.account_id = $1
            AND (h.polls_per_minute IS NULL OR coalesce(budget.free_from <= $3, true) OR h.next_probe_at IS NOT NULL)
            AND CASE WHEN $5 THEN due.late_look_ups ELSE due.looks END
            AND (h.polls_per_minute IS NULL OR h.next_probe_at IS NOT NULL
                OR NOT (due.looks AND due.late_look_ups AND h.looked_late = $5) AND NOT (h.looked AND coalesce((
                    SELECT true FROM invoice v
                    WHERE v.account_id = $1 AND v.connection_id = h.connection_id AND v.polls_first
                        AND v.status IN ('issued', 'overdue', 'paid', 'canceled') AND v.next_attempt_at <= $2
                    ORDER BY v.next_attempt_at LIMIT 1
                ), (
                    SELECT true FROM invoice v
                    WHERE v.account_id = $1 AND v.connection_id = h.connection_id AND NOT v.polls_first
                        AND v.status IN ('issued', 'overdue', 'paid', 'canceled') AND v.next_attempt_at <= $2
                    ORDER BY v.next_attempt_at LIMIT 1
                ), false)))
        ORDER BY h.connection_id FOR NO KEY UPDATE OF h
        """,
        now,
        real_now,
        real_now + LONGEST_BUDGET_WAIT,
        late,
    )


async def set_polls_from(tx: Tx, connection_id: UUID, *, polls_from: datetime) -> None:
    """Store when the locked budget allows the next call (`polls_from`)."""
    await tx.execute(
        "UPDATE connection_health h SET polls_from = $3 WHERE h.account_id = $1 AND h.connection_id = $2",
        connection_id,
        polls_from,
    )


async def note_polls(tx: Tx, connection_id: UUID, *, polls_from: datetime, polled_named: bool) -> None:
    """Store when the locked budget allows the next call, and whether a webhook named the charge of the newest poll.

    Set `looked` to false, because a poll has used the budget more recently than any look.
    """
    await tx.execute(
        """
        UPDATE connection_health h SET polls_from = $3, polled_named = $4, looked = false
        WHERE h.account_id = $1 AND h.connection_id = $2
        """,
        connection_id,
        polls_from,
        polled_named,
    )


async def note_looks(
    tx: Tx, connection_id: UUID, *, polls_from: datetime, looks_from: datetime, late: bool
) -> None:
    """Store when the locked budget allows the next call and the next look.

    `late` says whether the looks are late look-ups. Also set `looked`, because they have used the budget after the
    newest polls.
    """
    await tx.execute(
        """
        UPDATE connection_health h SET polls_from = $3, looks_from = $4, looked = true, looked_late = $5
        WHERE h.account_id = $1 AND h.connection_id = $2
        """,
        connection_id,
        polls_from,
        looks_from,
        late,
    )
