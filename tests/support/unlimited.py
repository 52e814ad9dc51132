"""Settings for tests that send more requests than the limits allow."""

UNLIMITED: dict[str, str] = {
    "FATURA_RATE_LIMIT": "0",
    "FATURA_WEBHOOK_RATE_LIMIT": "0",
    "FATURA_FAILURE_RATE_LIMIT": "0",
}
