"""The HTTP client for merchants' servers. It calls only allowed addresses, and follows no redirects (D-30, D-47).

Entry point: `MerchantClient.session` opens a MerchantSession, whose `post` returns an Exchange.
"""

from fatura.outbound.http.client import MerchantClient, MerchantSession
from fatura.outbound.http.exchange import (
    DEADLINE_SECONDS,
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    MAX_WAIT_SECONDS,
    Exchange,
    ExchangeOutcome,
    OutOfResourcesError,
)

__all__ = [
    "DEADLINE_SECONDS",
    "MAX_BODY_BYTES",
    "MAX_HEADER_BYTES",
    "MAX_WAIT_SECONDS",
    "Exchange",
    "ExchangeOutcome",
    "MerchantClient",
    "MerchantSession",
    "OutOfResourcesError",
]
