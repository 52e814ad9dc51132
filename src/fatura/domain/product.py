"""Products of the catalog, priced by a fixed monthly amount or by the merchant's endpoint (spec 2.2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, cast
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
_NAMED = {PricingMode.FIXED: "a fixed product", PricingMode.ENDPOINT: "an endpoint product"}
_PRICE_FIELDS = {PricingMode.FIXED: "monthlyPriceCents", PricingMode.ENDPOINT: "capCents and endpointUrl"}


def check_patch(mode: PricingMode, sent: Mapping[str, Any]) -> None:
    """Refuse a change of the pricing mode, or of a field that only the other mode has (spec 4.2, D-18).

    Raises EngineError: `engine.pricing_mode_immutable` with `meta.fields`.
    """
    refused = sorted(sent.keys() & {"pricing", "pricingMode", *_FIELDS_OF_OTHER_MODE[mode]})
    if refused:
        advice = "create another product instead"
        if refused == ["pricing"] and _mode_of(sent["pricing"]) == mode:
            advice = f"to change the price, send {_PRICE_FIELDS[mode]} at the top level, without pricing"
        raise EngineError(
            PRICING_MODE_IMMUTABLE,
            f"The product's pricing mode is {mode} and cannot change; {advice}.",
            meta={
                "pricingMode": str(mode),
                "fields": [
                    {"path": field, "message": f"cannot be changed on {_NAMED[mode]}"} for field in refused
                ],
            },
        )


def _mode_of(pricing: object) -> object:
    return cast("dict[str, object]", pricing).get("mode") if isinstance(pricing, dict) else None
