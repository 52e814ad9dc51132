"""The routes of products (spec 4.2)."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.answers import answer
from fatura.api.http.declare import Routes
from fatura.api.http.fields import Cents, EndpointUrl, ExternalRef, Flag, PositiveCents, Text
from fatura.api.http.forms import Body, Paging, unsent
from fatura.api.http.replies import run, run_once
from fatura.api.http.route import Call, Key, Noun
from fatura.api.models.catalog import PricingTest, Product
from fatura.api.models.shared import Page
from fatura.domain.errors import PRICING_MODE_IMMUTABLE
from fatura.domain.filters import ProductFilter
from fatura.domain.product import PricingMode
from fatura.usecases.catalog import products
from fatura.usecases.pricing import pricing_test

routes = Routes("Products")
ProductId = Annotated[UUID, Noun("product")]
VariableProductId = Annotated[UUID, Noun("variable-priced product")]
Name = Annotated[str, Text(1, 120), Field(description="Name the subscriber reads on the invoice.")]
Description = Annotated[str, Text(0, 500), Field(description="Internal description.")]
Immutable = Annotated[Any, Field(description="Never changes: whatever is sent is refused with 409.")]
Url = Annotated[str, EndpointUrl(), Field(description="https URL that is asked for the price of each cycle.")]


class FixedPricing(Body):
    """A price of our own table."""

    mode: Literal["fixed"]
    monthlyPriceCents: Annotated[Cents, Field(description="Monthly price; the plan's period multiplies it.")]


class EndpointPricing(Body):
    """A price asked from the merchant's endpoint."""

    mode: Literal["endpoint"]
    url: Url
    capCents: Annotated[
        PositiveCents, Field(description="Ceiling of one charge; an answer above it is a failure.")
    ]


class ProductForm(Body):
    """A product to create."""

    name: Name
    description: Description | None = None
    externalRef: Annotated[ExternalRef | None, Field(description="Your own id for the product.")] = None
    pricing: Annotated[FixedPricing | EndpointPricing, Field(discriminator="mode")]


class ProductPatch(Body):
    """What changes of a product; its pricing mode and fields of the other one are refused with 409 (D-18)."""

    name: Name = unsent()
    description: Description | None = unsent()
    monthlyPriceCents: Annotated[Cents, Field(description="Only for fixed prices.")] = unsent()
    endpointUrl: Url = unsent()
    capCents: Annotated[PositiveCents, Field(description="Only for endpoint prices.")] = unsent()
    pricingMode: Immutable = unsent()
    pricing: Immutable = unsent()


class ProductQuery(Paging):
    """Which page of which products."""

    externalRef: Annotated[
        ExternalRef | None, Field(description="Only products with this id of your own.")
    ] = None
    archived: Annotated[Flag | None, Field(description="Only archived products, or only active ones.")] = None


@routes.post("/v1/products", answers=Product, status=201, key=Key.REQUIRED)
async def create_product(call: Call, body: ProductForm) -> Response:
    """Create a product."""
    pricing = body.pricing
    return await run_once(
        call,
        products.create,
        name=body.name,
        description=body.description,
        external_ref=body.externalRef,
        pricing_mode=PricingMode(pricing.mode),
        monthly_price_cents=pricing.monthlyPriceCents if isinstance(pricing, FixedPricing) else None,
        endpoint_url=pricing.url if isinstance(pricing, EndpointPricing) else None,
        cap_cents=pricing.capCents if isinstance(pricing, EndpointPricing) else None,
    )


@routes.get("/v1/products", answers=Page[Product])
async def list_products(call: Call, query: ProductQuery) -> Response:
    """List products, newest first, archived ones included."""
    wanted = ProductFilter(query.externalRef, query.archived)
    return await run(call, products.read_page, query.asked(), wanted)


@routes.get("/v1/products/{productId}", answers=Product)
async def read_product(call: Call, product_id: ProductId) -> Response:
    """Return a product."""
    return await run(call, products.read, product_id)


@routes.patch("/v1/products/{productId}", answers=Product, problems=[PRICING_MODE_IMMUTABLE])
async def patch_product(call: Call, product_id: ProductId, body: ProductPatch) -> Response:
    """Change what is sent. A new price applies from the next invoices; nothing is billed again."""
    return await run(call, products.patch, product_id, body.sent())


@routes.post("/v1/products/{productId}/archive", answers=Product)
async def archive_product(call: Call, product_id: ProductId) -> Response:
    """Archive a product: new plans cannot use it, existing ones keep billing."""
    return await run_once(call, products.archive, product_id)


@routes.post("/v1/products/{productId}/unarchive", answers=Product)
async def unarchive_product(call: Call, product_id: ProductId) -> Response:
    """Make a product usable in new plans again."""
    return await run_once(call, products.unarchive, product_id)


@routes.post("/v1/products/{productId}/pricing-test", answers=PricingTest, key=Key.IGNORED)
async def pricing_test_product(call: Call, product_id: VariableProductId) -> Response:
    """Call the price endpoint for real, in mode `test` with example ids; nothing is stored or billed."""
    return answer(await pricing_test.call(call.deps, call.account, product_id))
