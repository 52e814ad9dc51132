"""What a call to a merchant comes to, and the limits it keeps."""

from dataclasses import dataclass
from enum import StrEnum

DEADLINE_SECONDS = 10
"""Of one whole exchange: from before the name is looked up to the last byte (spec 8, D-30)."""
MAX_BODY_BYTES = 64 * 1024
MAX_HEADER_BYTES = 16 * 1024
"""Of everything before the body: informational answers, status line and headers."""


class OutOfResourcesError(Exception):
    """This process cannot open another connection. Nothing was sent, and the merchant is not to blame."""


class ExchangeOutcome(StrEnum):
    """How an exchange ended."""

    ANSWERED = "answered"
    TIMED_OUT = "timed_out"
    UNREACHABLE = "unreachable"
    BROKEN_ANSWER = "broken_answer"


@dataclass(frozen=True, slots=True)
class Exchange:
    """How one call ended; `status` is null when no response came, `body` holds what was read of it."""

    outcome: ExchangeOutcome
    status: int | None
    body: bytes
    latency_ms: int
    error: str | None
    retry_after: str | None = None
