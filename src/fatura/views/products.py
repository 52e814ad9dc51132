"""Products, and the test call to a price endpoint (spec 2.2, 4.2)."""

from typing import Annotated, Self

from msgspec import Meta

from fatura.domain.endpoint_url import MAX_CHARS
from fatura.domain.pricing import PricingOutcome
from fatura.domain.product import PricingMode, Product
from fatura.views.view import Cents, Count, ExternalRef, Id, Instant, PageView, View


class ProductView(View):
    """A catalog product (spec 2.2)."""

    id: Id
    name: Annotated[str, Meta(min_length=1, max_length=120, description="Name that the subscriber reads.")]
    description: Annotated[
        Annotated[str, Meta(max_length=500)] | None, Meta(description="Internal description.")
    ]
    external_ref: Annotated[
        ExternalRef | None, Meta(description="Your own id of the product; need not be unique.")
    ]
    pricing_mode: Annotated[PricingMode, Meta(description="How the price is defined; immutable.")]
    monthly_price_cents: Annotated[
        Cents | None, Meta(description="Monthly price; null for `endpoint` products.")
    ]
    endpoint_url: Annotated[
        Annotated[str, Meta(max_length=MAX_CHARS)] | None,
        Meta(description="Price endpoint; null for `fixed` products."),
    ]
    cap_cents: Annotated[
        Cents | None,
        Meta(description="Highest amount that the price endpoint may answer; null for `fixed` products."),
    ]
    archived_at: Annotated[
        Instant | None, Meta(description="null while active; new plans cannot use an archived product.")
    ]
    created_at: Instant

    @classmethod
    def of(cls, product: Product) -> Self:
        return cls.from_attributes(product, id=str(product.product_id))


class ProductPageView(PageView[ProductView]):
    """A page of products, newest first."""


class PricingTestView(View):
    """The result of a test call to the product's price endpoint (spec 4.2)."""

    outcome: PricingOutcome
    amount_cents: Annotated[Cents | None, Meta(description="Amount in the answer; null unless `ok`.")]
    description: Annotated[
        Annotated[str, Meta(max_length=300)] | None, Meta(description="Description in the answer.")
    ]
    response_status: Annotated[int | None, Meta(description="HTTP status; null when there was no response.")]
    latency_ms: Count | None
    response_body: Annotated[str | None, Meta(description="Raw response body, at most 64 KiB.")]
