"""The result of a call to a merchant's server, and the limits of a call."""

from dataclasses import dataclass
from enum import StrEnum

from fatura.failure_text import OwnTextError

DEADLINE_SECONDS = 10
"""Maximum time from the start of the host's lookup to the last byte of the response (spec 8, D-30)."""
MAX_WAIT_SECONDS = 3
"""Maximum time, in addition to DEADLINE_SECONDS, that a call waits until fewer other calls are open (D-215)."""
MAX_BODY_BYTES = 64 * 1024
MAX_HEADER_BYTES = 16 * 1024
"""Limit for all bytes before the body: informational responses, status line and headers."""


class OutOfResourcesError(OwnTextError):
    """This process cannot make another call now, and the merchant's server is not the cause.

    In most cases, nothing was sent. But the request may already have been sent on a reused connection that the server
    then closed without an answer.
    """


class ExchangeOutcome(StrEnum):
    ANSWERED = "answered"
    TIMED_OUT = "timed_out"
    UNREACHABLE = "unreachable"
    BROKEN_ANSWER = "broken_answer"


@dataclass(frozen=True, slots=True)
class Exchange:
    """The result of one call. `status` is None if no complete headers arrived. `body` may be incomplete."""

    outcome: ExchangeOutcome
    status: int | None
    body: bytes
    latency_ms: int
    error: str | None
    retry_after: str | None = None
