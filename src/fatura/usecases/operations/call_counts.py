"""Counters of this process's calls to gateways and merchants, by outcome."""

from collections.abc import Mapping

from fatura.gateways import port
from fatura.observability import counter, histogram

charge_attempts = counter(
    "fatura_charge_attempts_total", "Calls to gateways that create or look up a charge.", "outcome"
)
price_calls = counter(
    "fatura_price_calls_total",
    "Calls to price endpoints for invoices; test calls are not counted.",
    "outcome",
)
deliveries = counter("fatura_deliveries_total", "Attempts to deliver an event to a webhook.", "outcome")

gateway_calls = histogram(
    "fatura_gateway_call_seconds",
    "Duration of each call to a payment provider; the outcome is `answered` or the kind of failure.",
    "provider",
    "operation",
    "outcome",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20),
)

sweep_findings = counter(
    "fatura_sweep_findings_total",
    "Differences that the nightly sweeps found between our charges and the lists of the payment providers.",
    "kind",
)
FINDINGS = ("entry_missing", "invalid", "not_listed", "state_differs", "unmatched", "without_invoice")
# create each counter at 0, because Prometheus notices only an increase of an existing counter
for _kind in FINDINGS:
    sweep_findings.labels(_kind)

_FAILURES: tuple[tuple[type[port.GatewayError], str], ...] = (
    (port.AuthFailedError, "credentials_refused"),
    (port.PermanentError, "refused"),
    (port.TransientError, "failed"),
    (port.UnknownOutcomeError, "unknown"),
)


def count_findings(found: Mapping[str, int]) -> None:
    for kind, count in found.items():
        assert kind in FINDINGS, kind
        sweep_findings.labels(kind).inc(count)


def charge_outcome(answer: port.Charge | port.GatewayError | None) -> str:
    """Return the `outcome` label of a gateway's answer: `charge`, `none` (an empty look-up) or the kind of failure."""
    if isinstance(answer, port.Charge):
        return "charge"
    if answer is None:
        return "none"
    return next((label for kind, label in _FAILURES if isinstance(answer, kind)), "other")
