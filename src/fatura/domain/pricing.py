"""Rules of price calls: how an answer is read, and when a failed call is retried (spec 4.7, D-29, D-30)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, cast
from uuid import UUID

from fatura.domain.subscription import ERASED
from fatura.domain.text import with_safe_characters

MAX_DESCRIPTION_CHARS = 300
MAX_STORED_BYTES = 64 * 1024

OFFSETS: tuple[timedelta, ...] = tuple(
    timedelta(hours=hours, minutes=minutes, seconds=seconds)
    for hours, minutes, seconds in (
        (0, 0, 0),
        (0, 0, 30),
        (0, 1, 30),
        (0, 3, 30),
        (0, 7, 30),
        (0, 15, 30),
        (0, 30, 30),
        (1, 0, 30),
        (2, 0, 30),
        (4, 0, 30),
        (8, 0, 30),
        (12, 30, 30),
    )
)
"""Time from the first attempt to each attempt (D-29)."""
JITTER_PERCENT = 10
"""Maximum jitter in percent of an interval. Jitter spreads the retries of calls that failed at the same time (D-29)."""
WARN_AFTER = timedelta(minutes=15)
"""Time from an item's first failed price call to the event `invoice.pricing_warning` (D-29)."""


class CallMode(StrEnum):
    """`live` calls price an invoice; `test` calls are made by the pricing-test route (D-31)."""

    LIVE = "live"
    TEST = "test"


class PricingOutcome(StrEnum):
    """How a price call ended (spec 4.2)."""

    OK = "ok"
    SKIP = "skip"
    TIMEOUT = "timeout"
    HTTP_ERROR = "http_error"
    INVALID_RESPONSE = "invalid_response"
    OVER_CAP = "over_cap"


CLOSING = frozenset({PricingOutcome.OK, PricingOutcome.SKIP})
"""The outcomes that give an item a price or skip it; all other outcomes are failures (spec 4.7)."""


@dataclass(frozen=True, slots=True)
class PriceAnswer:
    """How a price call ended, with the raw answer to store (spec 2.5).

    `amount_cents` is None unless the outcome is `ok`. `problem` describes a failure in words. A call whose worker
    died has no `latency_ms`.
    """

    outcome: PricingOutcome
    amount_cents: int | None = None
    description: str | None = None
    problem: str | None = None
    response_status: int | None = None
    latency_ms: int | None = None
    response_body: str | None = None

    def erased(self) -> "PriceAnswer":
        """Return the answer without the texts that the price endpoint sent, for an erased customer (D-229)."""
        return replace(
            self,
            description=None if self.description is None else ERASED,
            response_body=None if self.response_body is None else ERASED,
        )


def read_answer(body: bytes, *, cap_cents: int) -> PriceAnswer:
    """Read the body of a 2xx answer. Ignore unknown keys; if `skip` is true, ignore `amount` too (spec 4.7, D-30)."""
    try:
        answer = _parsed(body)
    except (ValueError, RecursionError):
        return _invalid("the body is not a JSON object in UTF-8")
    skip, description = answer.get("skip", False), answer.get("description", "")
    if not isinstance(skip, bool):
        return _invalid("`skip` is not true or false")
    if not isinstance(description, str) or not _is_storable(description):
        return _invalid("`description` is not text")
    line = with_safe_characters(description[:MAX_DESCRIPTION_CHARS]) if "description" in answer else None
    if skip:
        return PriceAnswer(PricingOutcome.SKIP, description=line)
    amount = answer.get("amount")
    if not isinstance(amount, int) or isinstance(amount, bool) or amount < 0:
        return _invalid("`amount` is not an integer of cents, 0 or more")
    if amount > cap_cents:
        return PriceAnswer(
            PricingOutcome.OVER_CAP, problem=f"`amount` is above the product's cap of {cap_cents}"
        )
    return PriceAnswer(PricingOutcome.OK, amount, line)


def _invalid(problem: str) -> PriceAnswer:
    return PriceAnswer(PricingOutcome.INVALID_RESPONSE, problem=problem)


def _parsed(body: bytes) -> Mapping[str, Any]:
    """Parse a JSON object without duplicate keys, NaN or Infinity. Raises ValueError, RecursionError."""
    answer: object = json.loads(
        body.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant
    )
    if isinstance(answer, dict):
        return cast("dict[str, Any]", answer)
    raise ValueError("not an object")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _is_storable(text: str) -> bool:
    """Return whether PostgreSQL can store the text: no NUL, no lone surrogate."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


@dataclass(frozen=True, slots=True)
class PricingAttempt:
    """A finished price call with the fields that `GET /v1/invoices/{invoiceId}` shows (spec 2.5)."""

    item_id: UUID
    attempt: int
    url: str
    outcome: PricingOutcome
    response_status: int | None
    latency_ms: int | None
    response_body: str | None
    response_body_cut: bool
    created_at: datetime


def stored_body(body: bytes) -> str:
    """Return the first 64 KiB of a body as text; NUL and bytes that are not UTF-8 are replaced (D-30)."""
    text = body[:MAX_STORED_BYTES].decode(errors="replace").replace("\x00", "\ufffd")
    return text.encode()[:MAX_STORED_BYTES].decode(errors="ignore")


def next_attempt_at(
    first_attempt_at: datetime, failures: int, *, now: datetime, jitter_permille: int
) -> datetime | None:
    """Return when to make the next call after `failures` failed calls, or None when the schedule has ended (D-29).

    `jitter_permille` (0..1000) is the share of the maximum jitter that is added. The next call is made at least 30 s
    after `now`, even if an outage of the engine has delayed the calls. 30 s is the first interval of the schedule.
    """
    if failures >= len(OFFSETS):
        return None
    interval = OFFSETS[failures] - OFFSETS[failures - 1]
    jitter = interval * JITTER_PERCENT * jitter_permille // (100 * 1000)
    return max(first_attempt_at + OFFSETS[failures], now + OFFSETS[1]) + jitter
