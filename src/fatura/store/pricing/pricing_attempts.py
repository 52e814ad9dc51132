"""The calls to price endpoints: committed before they are made, settled once, kept raw (spec 2.5, 4.7 rule 1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.pricing import PricingAttempt, PricingOutcome
from fatura.store.db import Row, Tx
from fatura.store.pricing.price_pulls import ItemKey


@dataclass(frozen=True, slots=True)
class AttemptKey:
    """Which call it is; `attempt` counts an item's calls from 1."""

    invoice_id: UUID
    position: int
    attempt: int


@dataclass(frozen=True, slots=True)
class NewPricingAttempt:
    """A call about to be made; `cap_cents` is the product's cap that its answer will be judged by."""

    invoice_id: UUID
    position: int
    url: str
    cap_cents: int
    request_body: str


async def take_numbers(tx: Tx, keys: Sequence[ItemKey], *, now: datetime) -> dict[ItemKey, int]:
    """Count one more call for each item and return its number."""
    rows = await tx.fetch(
        """
        UPDATE price_pull p SET attempts = p.attempts + 1, first_attempt_at = coalesce(p.first_attempt_at, $4)
        FROM unnest($2::uuid[], $3::int2[]) AS u (invoice_id, position)
        WHERE p.account_id = $1 AND p.invoice_id = ANY($2::uuid[]) AND p.invoice_id = u.invoice_id
            AND p.position = u.position
        RETURNING p.invoice_id, p.position, p.attempts
        """,
        [invoice_id for invoice_id, _ in keys],
        [position for _, position in keys],
        now,
    )
    return {(row["invoice_id"], row["position"]): row["attempts"] for row in rows}


async def insert(
    tx: Tx,
    attempts: Sequence[NewPricingAttempt],
    *,
    numbers: Sequence[int],
    by_hand: bool,
    created_at: datetime,
    open_until: datetime,
) -> None:
    """Store calls that are about to be made; one still unsettled at `open_until` (real time) was lost."""
    await tx.execute(
        """
        INSERT INTO pricing_attempt (account_id, invoice_id, position, attempt, by_hand, url, cap_cents, request_body,
            created_at, open_until)
        SELECT o.account_id, u.invoice_id, u.position, u.attempt, $8, u.url, u.cap_cents, u.request_body, $9, $10
        FROM account o CROSS JOIN unnest($2::uuid[], $3::int2[], $4::int4[], $5::text[], $6::int8[], $7::text[])
            AS u (invoice_id, position, attempt, url, cap_cents, request_body)
        WHERE o.account_id = $1
        """,
        [new.invoice_id for new in attempts],
        [new.position for new in attempts],
        numbers,
        [new.url for new in attempts],
        [new.cap_cents for new in attempts],
        [new.request_body for new in attempts],
        by_hand,
        created_at,
        open_until,
    )


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """A call whose maker died: it counts as a time-out (spec 4.2)."""

    key: AttemptKey
    by_hand: bool


async def lost(tx: Tx, *, real_now: datetime, limit: int) -> Sequence[LostAttempt]:
    """Return calls that nobody will settle any more."""
    rows = await tx.fetch(
        """
        SELECT a.invoice_id, a.position, a.attempt, a.by_hand FROM pricing_attempt a
        WHERE a.account_id = $1 AND a.outcome IS NULL AND a.open_until <= $2 ORDER BY a.open_until LIMIT $3
        """,
        real_now,
        limit,
    )
    return [
        LostAttempt(AttemptKey(row["invoice_id"], row["position"], row["attempt"]), row["by_hand"])
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a call came to; a lost one has no latency."""

    key: AttemptKey
    outcome: PricingOutcome
    response_status: int | None
    latency_ms: int | None
    response_body: str | None


async def settle(tx: Tx, settlements: Sequence[Settlement]) -> set[AttemptKey]:
    """Record what calls came to, each only once; return those that were still open."""
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
        [each.key.invoice_id for each in settlements],
        [each.key.position for each in settlements],
        [each.key.attempt for each in settlements],
        [each.outcome for each in settlements],
        [each.response_status for each in settlements],
        [each.latency_ms for each in settlements],
        [each.response_body for each in settlements],
    )
    return {AttemptKey(**row) for row in rows}


async def most_by_hand(tx: Tx, invoice_id: UUID, *, since: datetime) -> int:
    """Return how often the item of an invoice that was asked for most by hand was, since an instant."""
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


async def of_invoice(tx: Tx, invoice_id: UUID, *, limit: int) -> Sequence[PricingAttempt]:
    """Return an invoice's newest settled calls, oldest first."""
    rows = await tx.fetch(
        """
        SELECT i.item_id, a.attempt, a.url, a.outcome, a.response_status, a.latency_ms, a.response_body, a.created_at
        FROM pricing_attempt a JOIN invoice_item i ON i.invoice_id = a.invoice_id AND i.position = a.position
        WHERE a.account_id = $1 AND i.account_id = $1 AND a.invoice_id = $2 AND a.outcome IS NOT NULL
        ORDER BY a.created_at DESC, a.position DESC, a.attempt DESC LIMIT $3
        """,
        invoice_id,
        limit,
    )
    return [_attempt(row) for row in reversed(rows)]


async def last_failures(tx: Tx, keys: Sequence[ItemKey]) -> dict[ItemKey, PricingAttempt]:
    """Return the newest settled call of each item."""
    rows = await tx.fetch(
        """
        SELECT DISTINCT ON (a.invoice_id, a.position) a.invoice_id, a.position, i.item_id, a.attempt, a.url, a.outcome,
            a.response_status, a.latency_ms, a.response_body, a.created_at
        FROM pricing_attempt a JOIN invoice_item i ON i.invoice_id = a.invoice_id AND i.position = a.position
        WHERE a.account_id = $1 AND i.account_id = $1 AND a.outcome IS NOT NULL AND (a.invoice_id, a.position) IN (
            SELECT u.invoice_id, u.position FROM unnest($2::uuid[], $3::int2[]) AS u (invoice_id, position)
        )
        ORDER BY a.invoice_id, a.position, a.attempt DESC
        """,
        [invoice_id for invoice_id, _ in keys],
        [position for _, position in keys],
    )
    return {(row["invoice_id"], row["position"]): _attempt(row) for row in rows}


def _attempt(row: Row) -> PricingAttempt:
    return PricingAttempt(
        item_id=row["item_id"],
        attempt=row["attempt"],
        url=row["url"],
        outcome=PricingOutcome(row["outcome"]),
        response_status=row["response_status"],
        latency_ms=row["latency_ms"],
        response_body=row["response_body"],
        created_at=row["created_at"],
    )
