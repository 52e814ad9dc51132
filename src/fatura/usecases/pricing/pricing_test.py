"""Make a test call to a product's price endpoint, with example ids (spec 4.2, D-31)."""

from datetime import timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.calendar import next_period_start
from fatura.domain.errors import UNAVAILABLE, EngineError, account_suspended, not_found
from fatura.domain.pricing import CallMode
from fatura.domain.product import Product
from fatura.outbound.http import OutOfResourcesError
from fatura.outbound.price_endpoint import call_price_endpoint
from fatura.store import suspension
from fatura.store.catalog import products
from fatura.usecases.accounts.integration_secret import signing_secrets
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_transaction
from fatura.views.price_calls import PricePeriodView, PriceReferenceView, PriceRequestView
from fatura.views.products import PricingTestView

EXAMPLE_SUBSCRIPTION = "example-subscription"
EXAMPLE_CUSTOMER = "example-customer"
RETRY_AFTER_SECONDS = 10


async def call(deps: Deps, account: Account, product_id: UUID) -> PricingTestView:
    """Call the endpoint in mode `test`, check the answer as in a live call, and return the outcome; store nothing.

    Raises EngineError: `engine.not_found` if the product is unknown or has a fixed price; `engine.rate_limited`;
    `engine.unavailable` if the process has too many open calls or no free sockets; `engine.account_suspended`.
    """
    with deps.open_calls.one(account.account_id):
        product, body, secrets = await in_transaction(deps, account, _prepare, product_id)
        assert product.endpoint_url is not None, product.product_id
        assert product.cap_cents is not None, product.product_id
        try:
            async with deps.merchants.session(account) as session:
                answer = await call_price_endpoint(
                    session,
                    product.endpoint_url,
                    body=body,
                    cap_cents=product.cap_cents,
                    secrets=secrets,
                    timestamp=int(deps.clock().timestamp()),
                )
        except OutOfResourcesError:
            busy = "Too many calls are open now; try again soon."
            raise EngineError(UNAVAILABLE, busy, retry_after_seconds=RETRY_AFTER_SECONDS) from None
    return PricingTestView.from_attributes(answer)


async def _prepare(work: Work, product_id: UUID) -> tuple[Product, str, tuple[str, ...]]:
    # the account may have been suspended after the request was admitted
    if not await suspension.may_work(work.tx):
        raise account_suspended()
    product = await products.find(work.tx, product_id)
    if product is None or product.endpoint_url is None:
        raise not_found("variable-priced product", product_id)
    return product, _example(work, product).json_text(), await signing_secrets(work)


def _example(work: Work, product: Product) -> PriceRequestView:
    following = next_period_start(work.today, charge_day=min(work.today.day, 28), period_months=1)
    return PriceRequestView(
        version=1,
        mode=CallMode.TEST,
        pricing_request_id=f"test-{work.new_id()}",
        product=PriceReferenceView(external_ref=product.external_ref or str(product.product_id)),
        subscription=PriceReferenceView(external_ref=EXAMPLE_SUBSCRIPTION),
        customer=PriceReferenceView(external_ref=EXAMPLE_CUSTOMER),
        period=PricePeriodView(start=work.today, end=following - timedelta(days=1)),
        cycle=1,
        currency=work.account.currency,
    )
