"""Send a webhook request with headers and signatures, and interpret the answer (D-39, D-40)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from fatura import signature
from fatura.domain.delivery import MAX_RETRY_AFTER, AttemptResult, Outcome
from fatura.outbound.http import Exchange, ExchangeOutcome, MerchantSession

MAX_LOGGED_CHARS = 1000
"""Maximum number of characters stored from the response body of a failed attempt."""
MAX_LOGGED_BYTES = MAX_LOGGED_CHARS * 4
_MAX_DIGITS = 9


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """One attempt to deliver an event; `body` is byte for byte the event as GET /v1/events shows it."""

    event_id: str
    type: str
    attempt: int
    body: bytes


async def post(
    session: MerchantSession, message: WebhookMessage, *, url: str, secrets: Sequence[str], real_now: datetime
) -> AttemptResult:
    """Post an event, signed at `real_now` with every valid secret. Raises OutOfResourcesError."""
    headers = headers_of(message, secrets=secrets, timestamp=int(real_now.timestamp()))
    return read(await session.post(url, body=message.body, headers=headers), real_now=real_now)


def read(exchange: Exchange, *, real_now: datetime) -> AttemptResult:
    """Return the attempt's result. A 2xx status within the deadline is a success, even if the body is incomplete."""
    delivered = exchange.status is not None and _is_success(exchange.status)
    return AttemptResult(
        outcome=_outcome(exchange, delivered=delivered),
        response_status=exchange.status,
        latency_ms=exchange.latency_ms,
        error=None if delivered else _error(exchange),
        response_body=None if delivered or exchange.status is None else _text(exchange.body),
        retry_after=None if delivered else parse_retry_after(exchange.retry_after, real_now=real_now),
    )


def headers_of(message: WebhookMessage, *, secrets: Sequence[str], timestamp: int) -> dict[str, str]:
    """Return headers with the signatures of Fatura and of Standard Webhooks; `timestamp` is Unix time (D-39)."""
    event_id, body = message.event_id, message.body
    return {
        "Content-Type": "application/json",
        signature.HEADER: signature.sign(body, secrets, timestamp=timestamp),
        "X-Service-Event-Id": event_id,
        "X-Service-Event-Type": message.type,
        "X-Service-Delivery-Attempt": str(message.attempt),
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature.standard_signature(
            event_id, body, secrets=secrets, timestamp=timestamp
        ),
    }


def _outcome(exchange: Exchange, *, delivered: bool) -> Outcome:
    if delivered:
        return Outcome.DELIVERED
    return Outcome.TIMEOUT if exchange.outcome is ExchangeOutcome.TIMED_OUT else Outcome.HTTP_ERROR


def _is_success(status: int) -> bool:
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


def _error(exchange: Exchange) -> str:
    if exchange.error is not None:
        return exchange.error
    assert exchange.status is not None, "an exchange without an error has a status"
    if HTTPStatus.MULTIPLE_CHOICES <= exchange.status < HTTPStatus.BAD_REQUEST:
        return f"answered {exchange.status}; redirects are not followed"
    return f"answered {exchange.status}"


def _text(body: bytes) -> str:
    """Return the start of a response body as text, without NUL characters, which PostgreSQL cannot store."""
    return body[:MAX_LOGGED_BYTES].decode(errors="replace").replace("\0", "\ufffd")[:MAX_LOGGED_CHARS]


def parse_retry_after(header: str | None, *, real_now: datetime) -> timedelta | None:
    """Return the pause that a Retry-After header requests, at most a day; None if it cannot be parsed."""
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return min(timedelta(seconds=int(text[:_MAX_DIGITS])), MAX_RETRY_AFTER)
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    until = until.replace(tzinfo=until.tzinfo or UTC)
    return min(max(until - real_now, timedelta()), MAX_RETRY_AFTER)
