"""Products of the catalog, priced by a fixed monthly amount or by the merchant's endpoint (spec 2.2)."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from fatura.domain.errors import PRICING_MODE_IMMUTABLE, EngineError


class PricingMode(StrEnum):
    """How a product's price is defined; immutable after creation (spec 2.2)."""

    FIXED = "fixed"
    ENDPOINT = "endpoint"


@dataclass(frozen=True, slots=True)
class Product:
    """A stored product. The price, the URL and the cap are None if its pricing mode does not use them (spec 2.2)."""

    product_id: UUID
    name: str
    description: str | None
    external_ref: str | None
    pricing_mode: PricingMode
    monthly_price_cents: int | None
    endpoint_url: str | None
    cap_cents: int | None
    archived_at: datetime | None
    created_at: datetime


_FIELDS_OF_OTHER_MODE = {
    PricingMode.FIXED: ("endpointUrl", "capCents"),
    PricingMode.ENDPOINT: ("monthlyPriceCents",),
}


def check_patch(mode: PricingMode, sent: frozenset[str]) -> None:
    """Refuse a change of the pricing mode, or of a field that only the other mode has (spec 4.2, D-18).

    Raises EngineError: `engine.pricing_mode_immutable` with `meta.fields`.
    """
    refused = sorted(sent & {"pricing", "pricingMode", *_FIELDS_OF_OTHER_MODE[mode]})
    if refused:
        raise EngineError(
            PRICING_MODE_IMMUTABLE,
            f"The product's pricing mode is {mode} and cannot change; create another product instead.",
            meta={
                "pricingMode": str(mode),
                "fields": [
                    {"path": field, "message": f"cannot be changed on a {mode} product"} for field in refused
                ],
            },
        )
