"""One signed call to a merchant's price endpoint; failures are outcomes, not exceptions (spec 4.7, D-30)."""

from collections.abc import Sequence
from dataclasses import replace

from fatura import signature
from fatura.domain.pricing import PriceAnswer, PricingOutcome, read_answer, stored_body
from fatura.outbound.http import Exchange, ExchangeOutcome, MerchantSession


async def call_price_endpoint(
    session: MerchantSession, url: str, *, body: str, cap_cents: int, secrets: Sequence[str], timestamp: int
) -> PriceAnswer:
    """Send a price request with one signature for each secret. `timestamp` is Unix time (spec 5.6, D-40).

    Raises OutOfResourcesError.
    """
    raw = body.encode()
    headers = {
        "Content-Type": "application/json",
        signature.HEADER: signature.sign(raw, secrets, timestamp=timestamp),
    }
    exchange = await session.post(url, body=raw, headers=headers)
    return replace(
        _meaning(exchange, cap_cents=cap_cents),
        response_status=exchange.status,
        latency_ms=exchange.latency_ms,
        response_body=None if exchange.status is None else stored_body(exchange.body),
    )


def _meaning(exchange: Exchange, *, cap_cents: int) -> PriceAnswer:
    status = exchange.status
    if exchange.outcome is ExchangeOutcome.TIMED_OUT:
        return PriceAnswer(PricingOutcome.TIMEOUT, problem="no whole answer within 10 seconds")
    if status is None:
        return PriceAnswer(PricingOutcome.HTTP_ERROR, problem=exchange.error or "no answer")
    if not 200 <= status < 300:
        return PriceAnswer(PricingOutcome.HTTP_ERROR, problem=f"the endpoint answered {status}")
    if exchange.outcome is ExchangeOutcome.BROKEN_ANSWER:
        return PriceAnswer(PricingOutcome.INVALID_RESPONSE, problem=exchange.error)
    return read_answer(exchange.body, cap_cents=cap_cents)
