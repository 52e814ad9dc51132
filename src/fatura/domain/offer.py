"""Plan terms: period, method, items and discount schedules, and the rules they must meet (spec 2.3, 4.3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from fatura.domain.errors import DISCOUNT_ON_VARIABLE_PRODUCT, NOT_FOUND, PRODUCT_ARCHIVED, EngineError
from fatura.domain.product import PricingMode

MAX_ITEMS = 20
MAX_DISCOUNTS = 20
MAX_INSTALLMENTS = 12


class PaymentMethod(StrEnum):
    """How an invoice is paid; only the card allows installments (spec 2.3)."""

    CARD = "card"
    PIX = "pix"
    BOLETO = "boleto"


@dataclass(frozen=True, slots=True)
class Discount:
    """A discount on a range of cycles. The range has no end if `to_cycle` is None."""

    percent: int
    from_cycle: int
    to_cycle: int | None

    def covers(self, cycle: int) -> bool:
        """Return whether the discount applies to a cycle; cycles count from 1."""
        return self.from_cycle <= cycle and (self.to_cycle is None or cycle <= self.to_cycle)


def discount_percent(discounts: Sequence[Discount], cycle: int) -> int | None:
    """Return the percentage of the first discount that covers the cycle, or None if no discount does (spec 2.3)."""
    return next((rule.percent for rule in discounts if rule.covers(cycle)), None)


@dataclass(frozen=True, slots=True)
class OfferItem:
    """One product of the terms, with its discount rules in priority order."""

    product_id: UUID
    discounts: tuple[Discount, ...]


@dataclass(frozen=True, slots=True)
class Terms:
    """The complete terms of one plan version; they never change (spec 2.3, D-19)."""

    period_months: int
    default_payment_method: PaymentMethod
    max_installments: int
    commitment_cycles: int | None
    items: tuple[OfferItem, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan with its current version, without items (spec 2.3)."""

    plan_id: UUID
    plan_version_id: UUID
    name: str
    version: int
    period_months: int
    default_payment_method: PaymentMethod
    max_installments: int
    commitment_cycles: int | None
    archived_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ProductFacts:
    """The data of a product that `check_products` needs."""

    product_id: UUID
    pricing_mode: PricingMode
    archived_at: datetime | None


def check_products(items: Sequence[OfferItem], products: Mapping[UUID, ProductFacts]) -> None:
    """Refuse unknown products (404), archived products (409) and discounts on variable products (422), in this order.

    Raises EngineError: `engine.not_found`, `engine.product_archived`, `engine.discount_on_variable_product`,
    each with `meta.productIds` (spec 4.3, D-10, D-18a).
    """
    named = [item.product_id for item in items]
    unknown = [product_id for product_id in named if product_id not in products]
    if unknown:
        raise EngineError(NOT_FOUND, "The items name products that do not exist.", meta=_product_ids(unknown))
    archived = [product_id for product_id in named if products[product_id].archived_at is not None]
    if archived:
        raise EngineError(
            PRODUCT_ARCHIVED,
            "The items name archived products; unarchive them or leave them out.",
            meta=_product_ids(archived),
        )
    discounted = [
        item.product_id
        for item in items
        if item.discounts and products[item.product_id].pricing_mode is PricingMode.ENDPOINT
    ]
    if discounted:
        raise EngineError(
            DISCOUNT_ON_VARIABLE_PRODUCT,
            "Only fixed-price products take discounts; remove the discounts of the variable ones.",
            meta=_product_ids(discounted),
        )


def _product_ids(product_ids: Sequence[UUID]) -> dict[str, list[str]]:
    return {"productIds": [str(product_id) for product_id in dict.fromkeys(product_ids)]}
