"""The guarded client for every call to a merchant: public addresses, one deadline, nothing followed (D-30, D-47)."""

from fatura.outbound.http.client import MerchantClient, MerchantSession
from fatura.outbound.http.exchange import (
    DEADLINE_SECONDS,
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    Exchange,
    ExchangeOutcome,
    OutOfResourcesError,
)

__all__ = [
    "DEADLINE_SECONDS",
    "MAX_BODY_BYTES",
    "MAX_HEADER_BYTES",
    "Exchange",
    "ExchangeOutcome",
    "MerchantClient",
    "MerchantSession",
    "OutOfResourcesError",
]
