"""Create, read, change and archive products (spec 4.2)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from fatura.domain.errors import require
from fatura.domain.filters import ProductFilter
from fatura.domain.product import PricingMode, Product, check_patch
from fatura.store import counters
from fatura.store.catalog import mirrors, products
from fatura.usecases.paging import Page
from fatura.usecases.transaction import LaneName, Work
from fatura.views.products import ProductPageView, ProductView


async def create(
    work: Work,
    *,
    name: str,
    description: str | None,
    external_ref: str | None,
    pricing_mode: PricingMode,
    monthly_price_cents: int | None = None,
    endpoint_url: str | None = None,
    cap_cents: int | None = None,
) -> ProductView:
    """Create a product and schedule its copy to every gateway that has a product catalog (spec 2.2, 4.2)."""
    product = Product(
        product_id=work.new_id(),
        name=name,
        description=description,
        external_ref=external_ref,
        pricing_mode=pricing_mode,
        monthly_price_cents=monthly_price_cents,
        endpoint_url=endpoint_url,
        cap_cents=cap_cents,
        archived_at=None,
        created_at=work.now,
    )
    await products.insert(work.tx, product)
    await _mirror(work, product.product_id)
    work.totals["products"] += 1
    view = ProductView.of(product)
    work.audit(product.product_id, after=view)
    return view


async def read(work: Work, product_id: UUID) -> ProductView:
    """Return a product. Raises EngineError: `engine.not_found`."""
    return ProductView.of(require(await products.find(work.tx, product_id), "product", id_=product_id))


async def read_page(work: Work, page: Page, wanted: ProductFilter) -> ProductPageView:
    """Return a page of the products that match a filter, newest first (spec 4.2, D-16)."""
    if wanted == ProductFilter():
        total = (await counters.totals(work.tx))["products"]
    else:
        total = await products.count(work.tx, wanted)
    records = partial(products.page, work.tx, wanted)
    return await page.read(ProductPageView, records, of=ProductView.of, total=total)


_COLUMN_OF = {
    "name": "name",
    "description": "description",
    "monthlyPriceCents": "monthly_price_cents",
    "endpointUrl": "endpoint_url",
    "capCents": "cap_cents",
}


async def patch(work: Work, product_id: UUID, changes: Mapping[str, Any]) -> ProductView:
    """Change the given fields; invoices generated later use the new values (spec 4.2).

    Raises EngineError: `engine.not_found`, `engine.pricing_mode_immutable`.
    """
    product = require(await products.lock(work.tx, product_id), "product", id_=product_id)
    check_patch(product.pricing_mode, changes)
    changed = replace(product, **{_COLUMN_OF[field]: value for field, value in changes.items()})
    await products.update(work.tx, changed)
    if (changed.name, changed.description) != (product.name, product.description):
        await _mirror(work, product_id)
    return _audited(work, product, changed)


async def archive(work: Work, product_id: UUID) -> ProductView:
    """Archive a product; idempotent (spec 3.1, D-18). Raises EngineError: `engine.not_found`."""
    product = require(await products.lock(work.tx, product_id), "product", id_=product_id)
    archived = replace(product, archived_at=product.archived_at or work.now)
    await products.update(work.tx, archived)
    return _audited(work, product, archived)


async def unarchive(work: Work, product_id: UUID) -> ProductView:
    """Make a product active again; idempotent (spec 3.1, D-18). Raises EngineError: `engine.not_found`."""
    product = require(await products.lock(work.tx, product_id), "product", id_=product_id)
    unarchived = replace(product, archived_at=None)
    await products.update(work.tx, unarchived)
    return _audited(work, product, unarchived)


def _audited(work: Work, before: Product, after: Product) -> ProductView:
    """Add the audit entry of a change, and return the changed product."""
    view = ProductView.of(after)
    work.audit(after.product_id, before=ProductView.of(before), after=view)
    return view


async def _mirror(work: Work, product_id: UUID) -> None:
    if await mirrors.enqueue_product(work.tx, product_id, now=work.now):
        work.notify(LaneName.MIRRORING)
