"""What this process counts of its calls to gateways and merchants, by how each ended; `/metrics` shows it."""

from fatura.gateways.port import (
    AuthFailedError,
    Charge,
    GatewayError,
    PermanentError,
    TransientError,
    UnknownOutcomeError,
)
from fatura.observability import counter

charge_attempts = counter(
    "fatura_charge_attempts_total", "Calls to gateways that make or look for a charge.", "outcome"
)
price_calls = counter(
    "fatura_price_calls_total", "Calls to price endpoints that price an invoice.", "outcome"
)
deliveries = counter("fatura_deliveries_total", "Attempts to push an event.", "outcome")

_FAILURES: tuple[tuple[type[GatewayError], str], ...] = (
    (AuthFailedError, "credentials_refused"),
    (PermanentError, "refused"),
    (TransientError, "failed"),
    (UnknownOutcomeError, "unknown"),
)


def charge_outcome(answer: Charge | GatewayError | None) -> str:
    """Return the label of a gateway's answer: `charge`, `none` (an empty look-up), or how it failed."""
    if isinstance(answer, Charge):
        return "charge"
    if answer is None:
        return "none"
    return next((label for kind, label in _FAILURES if isinstance(answer, kind)), "other")
