"""Settings for tests: no rate limits, and calls to servers on this machine are allowed."""

UNLIMITED: dict[str, str] = {
    "FATURA_RATE_LIMIT": "0",
    "FATURA_WEBHOOK_RATE_LIMIT": "0",
    "FATURA_REFUSED_WEBHOOK_RATE_LIMIT": "0",
    "FATURA_PAY_PAGE_RATE_LIMIT": "0",
}
LOOPBACK = "127.0.0.1:1-65535"
"""Value of FATURA_OUTBOUND_ALLOW: any port of 127.0.0.1, because the tests' servers listen on free ports."""
