"""Build an invoice's content, for both the preview and the billing run (spec 2.5, 4.4, D-24)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from itertools import zip_longest
from typing import Self
from uuid import UUID

from fatura.domain.connection import installments_of
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.money import item_amount_cents
from fatura.domain.offer import Discount, PaymentMethod, discount_percent
from fatura.domain.payments import PaymentEntry
from fatura.domain.product import PricingMode
from fatura.domain.subscription import Customer


class PricingSource(StrEnum):
    """Where an item's value comes from (spec 2.5)."""

    TABLE = "table"
    ENDPOINT = "endpoint"
    MANUAL = "manual"


class PricingStatus(StrEnum):
    """Whether an item has a price, still needs one, or is skipped (spec 2.5)."""

    PENDING = "pending"
    PRICED = "priced"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class BilledProduct:
    """One item of the terms, with its product as it is when the invoice is generated."""

    product_id: UUID
    product_name: str
    pricing_mode: PricingMode
    monthly_price_cents: int | None
    discounts: tuple[Discount, ...]


@dataclass(frozen=True, slots=True)
class BillingTerms:
    """A plan version, with all data needed to build an invoice from it."""

    plan_version_id: UUID
    period_months: int
    max_installments: int
    products: tuple[BilledProduct, ...]


@dataclass(frozen=True, slots=True)
class ItemDraft:
    """A new invoice item, before it is stored; amounts are null while the item is pending (spec 2.5)."""

    product_id: UUID
    product_name: str
    pricing_source: PricingSource
    pricing_status: PricingStatus
    months: int
    monthly_price_cents: int | None
    discount_percent: int | None
    amount_cents: int | None


@dataclass(frozen=True, slots=True)
class InvoiceDraft:
    """The content of a new invoice, without ids and dates. It depends only on terms, cycle and payment method."""

    cycle: int
    status: InvoiceStatus
    payment_method: PaymentMethod
    installments: int | None
    total_cents: int | None
    fixed_total_cents: int
    items: tuple[ItemDraft, ...]

    @property
    def has_pending_items(self) -> bool:
        return self.total_cents is None


def build(terms: BillingTerms, *, cycle: int, method: PaymentMethod) -> InvoiceDraft:
    """Build a cycle's invoice.

    Its status is `draft` if items are pending, `paid` if the total is 0, and else `ready` (D-9, D-24).
    """
    items = tuple(_item(product, months=terms.period_months, cycle=cycle) for product in terms.products)
    fixed_total_cents = sum(item.amount_cents for item in items if item.amount_cents is not None)
    pending = any(item.pricing_status is PricingStatus.PENDING for item in items)
    return InvoiceDraft(
        cycle=cycle,
        status=_initial_status(pending=pending, total_cents=fixed_total_cents),
        payment_method=method,
        installments=installments_of(method, terms.max_installments),
        total_cents=None if pending else fixed_total_cents,
        fixed_total_cents=fixed_total_cents,
        items=items,
    )


def amounts_by_cycle(terms: BillingTerms) -> Sequence[tuple[int, int]]:
    """Return pairs `(cycle, invoice total)` in the order of the cycles.

    Each total applies from its cycle on, until the cycle of the next pair begins. The last total applies to all later
    cycles. If an item has no fixed price, the totals are not known, and the result is empty.
    """
    if any(product.monthly_price_cents is None for product in terms.products):
        return []
    rules = [rule for product in terms.products for rule in product.discounts]
    ends = {rule.to_cycle + 1 for rule in rules if rule.to_cycle is not None}
    cycles = sorted({1} | {rule.from_cycle for rule in rules} | ends)
    return [
        (cycle, build(terms, cycle=cycle, method=PaymentMethod.PIX).fixed_total_cents) for cycle in cycles
    ]


def lowest_charge_cents(amounts: Sequence[tuple[int, int]], *, from_cycle: int) -> int:
    """Return the lowest invoice total above 0 among the cycles from `from_cycle` on.

    Return 0 if all these totals are 0 or unknown. `amounts` is the result of `amounts_by_cycle`.
    """
    ends = [cycle for cycle, _ in amounts[1:]]
    current = [cents for (_, cents), end in zip_longest(amounts, ends) if end is None or end > from_cycle]
    return min((cents for cents in current if cents), default=0)


def _initial_status(*, pending: bool, total_cents: int) -> InvoiceStatus:
    if pending:
        return InvoiceStatus.DRAFT
    return InvoiceStatus.READY if total_cents else InvoiceStatus.PAID


def _item(product: BilledProduct, *, months: int, cycle: int) -> ItemDraft:
    """Return an item: priced if the product has a fixed price, else pending."""
    price = product.monthly_price_cents
    assert (price is None) is (product.pricing_mode is PricingMode.ENDPOINT), product.product_id
    percent = amount_cents = None
    if price is not None:
        percent = discount_percent(product.discounts, cycle)
        amount_cents = item_amount_cents(price, months=months, discount_percent=percent or 0)
    return ItemDraft(
        product_id=product.product_id,
        product_name=product.product_name,
        pricing_source=PricingSource.ENDPOINT if price is None else PricingSource.TABLE,
        pricing_status=PricingStatus.PENDING if price is None else PricingStatus.PRICED,
        months=months,
        monthly_price_cents=price,
        discount_percent=percent,
        amount_cents=amount_cents,
    )


@dataclass(frozen=True, slots=True)
class InvoiceItem:
    """A stored item (spec 2.5). Only events show its `product_external_ref`."""

    item_id: UUID
    product_id: UUID
    product_name: str
    pricing_source: PricingSource
    pricing_status: PricingStatus
    months: int
    monthly_price_cents: int | None
    discount_percent: int | None
    amount_cents: int | None
    currency: str
    description: str | None
    product_external_ref: str | None

    @classmethod
    def of_draft(
        cls, draft: ItemDraft, *, item_id: UUID, currency: str, product_external_ref: str | None
    ) -> Self:
        return cls(
            item_id=item_id,
            product_id=draft.product_id,
            product_name=draft.product_name,
            pricing_source=draft.pricing_source,
            pricing_status=draft.pricing_status,
            months=draft.months,
            monthly_price_cents=draft.monthly_price_cents,
            discount_percent=draft.discount_percent,
            amount_cents=draft.amount_cents,
            currency=currency,
            description=None,
            product_external_ref=product_external_ref,
        )


@dataclass(frozen=True, slots=True)
class IssueFailure:
    """Why the engine does not issue a `ready` invoice until a person acts. `invoice.issue_failed` shows it (D-34)."""

    code: str
    detail: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Invoice:
    """A stored invoice without its items (spec 2.5). `paid_cents` and `refunded_cents` are sums of its ledger.

    `pay_link_version` is how often the link of its pay page was replaced (ADR 0020).
    """

    invoice_id: UUID
    subscription_id: UUID
    customer: Customer
    cycle: int
    status: InvoiceStatus
    due_date: date
    payment_method: PaymentMethod
    installments: int | None
    total_cents: int | None
    currency: str
    created_at: datetime
    gateway_invoice_id: str | None = None
    issued_at: datetime | None = None
    paid_at: datetime | None = None
    refunded_at: datetime | None = None
    disputed_at: datetime | None = None
    canceled_at: datetime | None = None
    issue_error: IssueFailure | None = None
    paid_cents: int = 0
    refunded_cents: int = 0
    pay_link_version: int = 0


@dataclass(frozen=True, slots=True)
class InvoiceDetail:
    """An invoice with its items, its payments and each `externalRef` that its events show (D-37, D-50).

    `payments` are the newest entries of the ledger, at most SHOWN_ENTRIES. `payment_count` counts all entries.
    """

    invoice: Invoice
    items: Sequence[InvoiceItem]
    subscription_external_ref: str | None
    payments: Sequence[PaymentEntry] = ()
    payment_count: int = 0
