"""SQL for calls to price endpoints (spec 2.5, 4.7 rule 1).

A call is committed before it is made. Afterwards, its outcome and its raw answer are stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.pricing import PriceAnswer, PricingAttempt
from fatura.store import leases
from fatura.store.db import Tx, record
from fatura.store.pricing.price_pulls import ItemKey, columns


@dataclass(frozen=True, slots=True)
class PriceCall:
    """A call to a price endpoint, committed before it is made; `attempt` counts the item's calls from 1."""

    invoice_id: UUID
    position: int
    attempt: int
    by_hand: bool
    url: str
    cap_cents: int
    request_body: str

    @property
    def item(self) -> ItemKey:
        return self.invoice_id, self.position


AnsweredCall = tuple[PriceCall, PriceAnswer]
CallKey = tuple[UUID, int, int]
"""An invoice, the position of one of its items, and the number of a call for this item."""


async def take_numbers(tx: Tx, keys: Sequence[ItemKey], *, now: datetime) -> dict[ItemKey, int]:
    """Increment each item's call counter and return the new number."""
    rows = await tx.fetch(
        """
        UPDATE price_pull p SET attempts = p.attempts + 1, first_attempt_at = coalesce(p.first_attempt_at, $4)
        FROM unnest($2::uuid[], $3::int2[]) AS u (invoice_id, position)
        WHERE p.account_id = $1 AND p.invoice_id = ANY($2::uuid[]) AND p.invoice_id = u.invoice_id
            AND p.position = u.position
        RETURNING p.invoice_id, p.position, p.attempts
        """,
        *columns(keys),
        now,
    )
    return {(row["invoice_id"], row["position"]): row["attempts"] for row in rows}


async def insert(tx: Tx, calls: Sequence[PriceCall], *, created_at: datetime, open_until: datetime) -> None:
    """Store calls before they are made. A call without an outcome at `open_until` (real time) is considered lost."""
    await tx.execute(
        """
        INSERT INTO pricing_attempt (account_id, invoice_id, position, attempt, by_hand, url, cap_cents, request_body,
            created_at, open_until)
        SELECT o.account_id, u.invoice_id, u.position, u.attempt, u.by_hand, u.url, u.cap_cents, u.request_body, $9, $10
        FROM account o
        CROSS JOIN unnest($2::uuid[], $3::int2[], $4::int4[], $5::bool[], $6::text[], $7::int8[], $8::text[])
            AS u (invoice_id, position, attempt, by_hand, url, cap_cents, request_body)
        WHERE o.account_id = $1
        """,
        [call.invoice_id for call in calls],
        [call.position for call in calls],
        [call.attempt for call in calls],
        [call.by_hand for call in calls],
        [call.url for call in calls],
        [call.cap_cents for call in calls],
        [call.request_body for call in calls],
        created_at,
        open_until,
    )


async def lost(tx: Tx, *, real_now: datetime, limit: int) -> Sequence[CallKey]:
    """Return calls that have no recorded outcome, although their `open_until` has passed.

    Also return calls whose `open_until` is later than any valid `open_until`. A host with a wrong clock has written it
    (see `leases`).
    """
    rows = await tx.fetch(
        """
        SELECT a.invoice_id, a.position, a.attempt FROM pricing_attempt a
        WHERE a.account_id = $1 AND a.outcome IS NULL AND (a.open_until <= $2 OR a.open_until > $4)
        ORDER BY a.open_until LIMIT $3
        """,
        real_now,
        limit,
        leases.horizon(real_now),
    )
    return [(row["invoice_id"], row["position"], row["attempt"]) for row in rows]


async def read(tx: Tx, keys: Sequence[CallKey]) -> Sequence[PriceCall]:
    return await tx.fetch_as(
        PriceCall,
        """
        SELECT a.invoice_id, a.position, a.attempt, a.by_hand, a.url, a.cap_cents, a.request_body
        FROM unnest($2::uuid[], $3::int2[], $4::int4[]) AS u (invoice_id, position, attempt)
        JOIN pricing_attempt a ON a.invoice_id = u.invoice_id AND a.position = u.position AND a.attempt = u.attempt
        WHERE a.account_id = $1
        """,
        [invoice_id for invoice_id, _, _ in keys],
        [position for _, position, _ in keys],
        [attempt for _, _, attempt in keys],
    )


async def put_off_lost(tx: Tx, key: CallKey, *, open_until: datetime, due_from: datetime) -> None:
    """Let an unanswered call count as lost only from `open_until` (real time) on.

    If the item's next call is scheduled before `due_from`, postpone it to `due_from`.
    """
    await tx.execute(
        """
        WITH later AS (
            UPDATE pricing_attempt a SET open_until = $5
            WHERE a.account_id = $1 AND a.invoice_id = $2 AND a.position = $3 AND a.attempt = $4 AND a.outcome IS NULL
        )
        UPDATE price_pull p SET next_attempt_at = greatest(p.next_attempt_at, $6)
        WHERE p.account_id = $1 AND p.invoice_id = $2 AND p.position = $3 AND p.next_attempt_at IS NOT NULL
        """,
        *key,
        open_until,
        due_from,
    )


async def settle(tx: Tx, answered: Sequence[AnsweredCall]) -> Sequence[AnsweredCall]:
    """Store the outcomes of the calls that have no outcome yet, and return only these calls."""
    rows = await tx.fetch(
        """
        UPDATE pricing_attempt a SET outcome = u.outcome, response_status = u.response_status,
            latency_ms = u.latency_ms, response_body = u.response_body
        FROM unnest($2::uuid[], $3::int2[], $4::int4[], $5::text[], $6::int2[], $7::int4[], $8::text[])
            AS u (invoice_id, position, attempt, outcome, response_status, latency_ms, response_body)
        WHERE a.account_id = $1 AND a.invoice_id = ANY($2::uuid[]) AND a.invoice_id = u.invoice_id
            AND a.position = u.position AND a.attempt = u.attempt AND a.outcome IS NULL
        RETURNING a.invoice_id, a.position, a.attempt
        """,
        [call.invoice_id for call, _ in answered],
        [call.position for call, _ in answered],
        [call.attempt for call, _ in answered],
        [answer.outcome for _, answer in answered],
        [answer.response_status for _, answer in answered],
        [answer.latency_ms for _, answer in answered],
        [answer.response_body for _, answer in answered],
    )
    settled = {(row["invoice_id"], row["position"], row["attempt"]) for row in rows}
    return [
        (call, answer)
        for call, answer in answered
        if (call.invoice_id, call.position, call.attempt) in settled
    ]


async def withdraw(tx: Tx, calls: Sequence[PriceCall], *, due_at: datetime) -> None:
    """Delete reserved calls that were not made. Keep calls that were recorded as lost meanwhile.

    If a deleted call was scheduled, and not requested by a client, its item becomes due at `due_at`, without a lease.
    """
    await tx.execute(
        """
        WITH withdrawn AS (
            DELETE FROM pricing_attempt a USING unnest($2::uuid[], $3::int2[], $4::int4[])
                AS u (invoice_id, position, attempt)
            WHERE a.account_id = $1 AND a.invoice_id = u.invoice_id AND a.position = u.position
                AND a.attempt = u.attempt AND a.outcome IS NULL
            RETURNING a.invoice_id, a.position, a.attempt, a.by_hand
        )
        UPDATE price_pull p SET attempts = p.attempts - (p.attempts = w.attempt)::int,
            first_attempt_at = CASE WHEN p.attempts > 1 THEN p.first_attempt_at END,
            lease_until = CASE WHEN w.by_hand THEN p.lease_until END,
            next_attempt_at = CASE WHEN w.by_hand OR p.next_attempt_at IS NULL THEN p.next_attempt_at ELSE $5 END
        FROM withdrawn w
        WHERE p.account_id = $1 AND p.invoice_id = w.invoice_id AND p.position = w.position
        """,
        [call.invoice_id for call in calls],
        [call.position for call in calls],
        [call.attempt for call in calls],
        due_at,
    )


async def most_by_hand(tx: Tx, invoice_id: UUID, *, since: datetime) -> int:
    """Return the largest number of calls that clients requested for one item of an invoice after `since`."""
    return await tx.fetchval(
        """
        SELECT coalesce(max(n.calls), 0) FROM (
            SELECT count(*) AS calls FROM pricing_attempt a
            WHERE a.account_id = $1 AND a.invoice_id = $2 AND a.by_hand AND a.created_at > $3
            GROUP BY a.position
        ) n
        """,
        invoice_id,
        since,
    )


async def of_invoice(
    tx: Tx, invoice_id: UUID, *, limit_per_item: int, whole_bodies_bytes: int, max_cut_chars: int
) -> Sequence[PricingAttempt]:
    """Return the `limit_per_item` newest finished calls of each item, and all its calls with a valid answer.

    The oldest call comes first. The newest bodies are returned whole, up to `whole_bodies_bytes` in total. Of the other
    bodies, only the first `max_cut_chars` characters are returned.
    """
    return await tx.fetch_as(
        PricingAttempt,
        """
        SELECT i.item_id, n.attempt, n.url, n.outcome, n.response_status, n.latency_ms,
            CASE WHEN n.bytes <= $4 THEN n.response_body ELSE left(n.response_body, $5) END AS response_body,
            n.bytes > $4 AND coalesce(length(n.response_body), 0) > $5 AS response_body_cut, n.created_at
        FROM invoice_item i JOIN (
            SELECT a.invoice_id, a.position, a.attempt, a.url, a.outcome, a.response_status, a.latency_ms,
                a.response_body, a.created_at,
                row_number() OVER (PARTITION BY a.position ORDER BY a.attempt DESC) AS age,
                sum(coalesce(octet_length(a.response_body), 0)) OVER (
                    ORDER BY a.created_at DESC, a.attempt DESC, a.position
                ) AS bytes
            FROM pricing_attempt a WHERE a.account_id = $1 AND a.invoice_id = $2 AND a.outcome IS NOT NULL
        ) n ON n.invoice_id = i.invoice_id AND n.position = i.position
        WHERE i.account_id = $1 AND i.invoice_id = $2 AND (n.age <= $3 OR n.outcome IN ('ok', 'skip'))
        ORDER BY n.created_at, i.position, n.attempt
        """,
        invoice_id,
        limit_per_item,
        whole_bodies_bytes,
        max_cut_chars,
    )


async def last_answers(tx: Tx, keys: Sequence[ItemKey]) -> dict[ItemKey, PriceAnswer]:
    """Return how each item's newest finished call ended."""
    rows = await tx.fetch(
        """
        SELECT DISTINCT ON (a.invoice_id, a.position) a.invoice_id, a.position, a.outcome, a.response_status,
            a.latency_ms, a.response_body
        FROM pricing_attempt a
        WHERE a.account_id = $1 AND a.outcome IS NOT NULL AND (a.invoice_id, a.position) IN (
            SELECT u.invoice_id, u.position FROM unnest($2::uuid[], $3::int2[]) AS u (invoice_id, position)
        )
        ORDER BY a.invoice_id, a.position, a.attempt DESC
        """,
        *columns(keys),
    )
    return {(row["invoice_id"], row["position"]): record(PriceAnswer, row) for row in rows}
