"""The routes of products (spec 4.2)."""

from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import Cents, EndpointUrl, ExternalRef, Flag, PositiveCents, Text
from fatura.api.http.forms import Body, Examples, Paging, unsent
from fatura.api.http.replies import answer, run, run_once
from fatura.api.http.route import Call, KeyPolicy, PathId
from fatura.domain import audit_actions, errors
from fatura.domain.filters import ProductFilter
from fatura.domain.product import PricingMode
from fatura.usecases.catalog import products
from fatura.usecases.pricing import pricing_test
from fatura.views.products import PricingTestView, ProductPageView, ProductView
from fatura.views.samples.story import PRICE_URL

routes = Routes("Products", "What you sell, at a fixed price or at a price that your server answers.")
ProductId = Annotated[UUID, PathId("product")]
VariableProductId = Annotated[UUID, PathId("variable-priced product")]
Name = Annotated[str, Text(1, 120), Field(description="Name that the subscriber reads on the invoice.")]
Description = Annotated[str, Text(0, 500), Field(description="Internal description.")]
Immutable = SkipJsonSchema[Any]
"""A field that cannot change. Every value is refused with 409, so the OpenAPI document omits the field."""
Url = Annotated[
    str, EndpointUrl(), Field(description="https URL that is called for the price of each cycle.")
]


class FixedPricing(Body):
    """A fixed price."""

    mode: Literal["fixed"]
    monthlyPriceCents: Annotated[
        Cents, Field(description="Monthly price; multiplied by the months of the plan's period.")
    ]


class EndpointPricing(Body):
    """A price that Fatura requests from your price endpoint for each cycle."""

    mode: Literal["endpoint"]
    url: Url
    capCents: Annotated[
        PositiveCents,
        Field(description="Highest amount that the endpoint may answer; a higher amount is a failed call."),
    ]


class ProductForm(Body):
    """A product to create."""

    examples: ClassVar[Examples] = {
        "fixed price": {
            "name": "Gym membership",
            "externalRef": "membership",
            "pricing": {"mode": "fixed", "monthlyPriceCents": 9990},
        },
        "price endpoint": {
            "name": "Personal training",
            "externalRef": "training",
            "pricing": {"mode": "endpoint", "url": PRICE_URL, "capCents": 50000},
        },
    }

    name: Name
    description: Description | None = None
    externalRef: Annotated[ExternalRef | None, Field(description="Your own id of the product.")] = None
    pricing: Annotated[FixedPricing | EndpointPricing, Field(discriminator="mode")]


class ProductPatch(Body):
    """The product fields that the request changes. Fields of the other pricing mode are refused with 409 (D-18)."""

    examples: ClassVar[Examples] = {"a new price": {"monthlyPriceCents": 10990}}

    name: Name = unsent()
    description: Description | None = unsent()
    monthlyPriceCents: Annotated[Cents, Field(description="Only for products with a fixed price.")] = unsent()
    endpointUrl: Url = unsent()
    capCents: Annotated[PositiveCents, Field(description="Only for products with a price endpoint.")] = (
        unsent()
    )
    pricingMode: Immutable = unsent()
    pricing: Immutable = unsent()


class ProductQuery(Paging):
    external_ref: Annotated[
        ExternalRef | None, Field(description="Only products to which you gave this id.")
    ] = None
    archived: Annotated[
        Flag | None, Field(description="true: only archived products; false: only active ones.")
    ] = None


@routes.post(
    "/v1/products",
    "Create a product",
    answers=ProductView,
    audit=audit_actions.PRODUCT_CREATE,
    status=201,
    key=KeyPolicy.REQUIRED,
    problems=[errors.QUOTA_EXCEEDED],
)
async def create_product(call: Call, body: ProductForm) -> Response:
    """Create a product with a fixed price, or with a price endpoint that Fatura calls for each cycle."""
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


@routes.get("/v1/products", "List products", answers=ProductPageView)
async def list_products(call: Call, query: ProductQuery) -> Response:
    """Return a page of products, newest first, including archived products."""
    return await run(call, products.read_page, query.asked(), ProductFilter(**query.filters()))


@routes.get("/v1/products/{productId}", "Read a product", answers=ProductView)
async def read_product(call: Call, product_id: ProductId) -> Response:
    """Return a product."""
    return await run(call, products.read, product_id)


@routes.patch(
    "/v1/products/{productId}",
    "Change a product",
    answers=ProductView,
    audit=audit_actions.PRODUCT_UPDATE,
    problems=[errors.PRICING_MODE_IMMUTABLE],
)
async def patch_product(call: Call, product_id: ProductId, body: ProductPatch) -> Response:
    """Change the fields that are sent. A new price applies to the invoices generated from now on."""
    return await run(call, products.patch, product_id, body.sent())


@routes.post(
    "/v1/products/{productId}/archive",
    "Archive a product",
    answers=ProductView,
    audit=audit_actions.PRODUCT_ARCHIVE,
)
async def archive_product(call: Call, product_id: ProductId) -> Response:
    """Archive a product. New plan versions cannot use it; existing subscriptions are still billed for it."""
    return await run_once(call, products.archive, product_id)


@routes.post(
    "/v1/products/{productId}/unarchive",
    "Restore an archived product",
    answers=ProductView,
    audit=audit_actions.PRODUCT_UNARCHIVE,
)
async def unarchive_product(call: Call, product_id: ProductId) -> Response:
    """Restore an archived product, so that new plan versions can use it again."""
    return await run_once(call, products.unarchive, product_id)


@routes.post(
    "/v1/products/{productId}/pricing-test",
    "Test a price endpoint",
    answers=PricingTestView,
    audit=None,
    key=KeyPolicy.IGNORED,
)
async def pricing_test_product(call: Call, product_id: VariableProductId) -> Response:
    """Call the price endpoint now, in mode `test` and with example ids. Nothing is stored or billed."""
    return answer(await pricing_test.call(call.deps, call.account, product_id))
