"""Ana subscribes to a gym: a fixed membership fee, and personal training priced by the gym's own server."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.connection import Connection
from fatura.domain.credentials import Mode
from fatura.domain.invoice import (
    BilledProduct,
    BillingTerms,
    Invoice,
    InvoiceDetail,
    InvoiceItem,
    PricingStatus,
    build,
)
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.offer import Discount, OfferItem, PaymentMethod, Plan
from fatura.domain.product import PricingMode, Product
from fatura.domain.subscription import Customer, PaymentMethodSource, Subscription, SubscriptionStatus

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
DUE = date(2026, 12, 10)


def _id(number: int) -> UUID:
    return UUID(f"019a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f{number:02x}")


EVENT_ID = _id(0)
REQUEST_ID = str(_id(1))
INVOICE_ID = _id(2)
FEE_ITEM_ID = _id(3)
TRAINING_ITEM_ID = _id(4)
API_KEY_ID = _id(5)
FAULT_ID = _id(6)
CHARGE_ID = "ch_0001"
PRICE_URL = "https://gym.example/price"
WEBHOOK_URL = "https://gym.example/fatura"

ACCOUNT = Account(_id(7), Mode.SANDBOX, "BRL", timedelta(0))
CONNECTION = Connection(
    connection_id=_id(8),
    provider="sandbox",
    label="Main",
    active=True,
    issues_charges=True,
    methods=(PaymentMethod.CARD, PaymentMethod.PIX, PaymentMethod.BOLETO),
    max_installments=12,
    product_catalog=False,
    created_at=AT,
)
MEMBERSHIP = Product(
    product_id=_id(9),
    name="Gym membership",
    description=None,
    external_ref="membership",
    pricing_mode=PricingMode.FIXED,
    monthly_price_cents=9990,
    endpoint_url=None,
    cap_cents=None,
    archived_at=None,
    created_at=AT,
)
TRAINING = Product(
    product_id=_id(10),
    name="Personal training",
    description=None,
    external_ref="training",
    pricing_mode=PricingMode.ENDPOINT,
    monthly_price_cents=None,
    endpoint_url=PRICE_URL,
    cap_cents=50000,
    archived_at=None,
    created_at=AT,
)
PLAN = Plan(
    plan_id=_id(11),
    plan_version_id=_id(12),
    name="Monthly",
    version=1,
    period_months=1,
    default_payment_method=PaymentMethod.PIX,
    max_installments=1,
    commitment_cycles=12,
    archived_at=None,
    created_at=AT,
)
ITEMS = (OfferItem(MEMBERSHIP.product_id, (Discount(20, 1, 3),)), OfferItem(TRAINING.product_id, ()))
DRAFT = build(
    BillingTerms(
        PLAN.plan_version_id,
        PLAN.period_months,
        PLAN.max_installments,
        tuple(
            BilledProduct(
                product.product_id,
                product.name,
                product.pricing_mode,
                product.monthly_price_cents,
                item.discounts,
            )
            for product, item in zip((MEMBERSHIP, TRAINING), ITEMS, strict=True)
        ),
    ),
    cycle=1,
    method=PLAN.default_payment_method,
)
ANA = Customer(_id(13), "ana-1", "Ana", "ana@example.com")
SUBSCRIPTION = Subscription(
    subscription_id=_id(14),
    external_ref="membership-77",
    plan_id=PLAN.plan_id,
    plan_version_id=PLAN.plan_version_id,
    plan_version=1,
    customized=False,
    customer=ANA,
    status=SubscriptionStatus.ACTIVE,
    charge_day=10,
    payment_method=PaymentMethod.PIX,
    payment_method_source=PaymentMethodSource.PLAN_DEFAULT,
    connection_id=CONNECTION.connection_id,
    cycle_count=0,
    commitment_cycles=12,
    next_period_start=DUE,
    next_due_date=DUE,
    started_at=AT,
    canceled_at=None,
)


def invoice(status: InvoiceStatus) -> InvoiceDetail:
    """Return Ana's first invoice in a state: R$ 79.92 for the membership, R$ 120.00 for two training sessions."""
    waits = status in {InvoiceStatus.DRAFT, InvoiceStatus.AWAITING_VALUE}
    charged = status in {InvoiceStatus.ISSUED, InvoiceStatus.PAID, InvoiceStatus.OVERDUE}
    shown = Invoice(
        invoice_id=INVOICE_ID,
        subscription_id=SUBSCRIPTION.subscription_id,
        customer=ANA,
        cycle=1,
        status=status,
        due_date=DUE,
        payment_method=PaymentMethod.PIX,
        installments=None,
        total_cents=None if waits else 19992,
        gateway_invoice_id=CHARGE_ID if charged else None,
        issued_at=AT if charged else None,
        paid_at=AT if status is InvoiceStatus.PAID else None,
        canceled_at=AT if status is InvoiceStatus.CANCELED else None,
        created_at=AT,
    )
    fee, training = DRAFT.items
    fee = InvoiceItem.of_draft(fee, item_id=FEE_ITEM_ID, product_external_ref=MEMBERSHIP.external_ref)
    training = InvoiceItem.of_draft(
        training, item_id=TRAINING_ITEM_ID, product_external_ref=TRAINING.external_ref
    )
    if not waits:
        priced = PricingStatus.PRICED
        training = replace(training, pricing_status=priced, amount_cents=12000, description="2 sessions")
    return InvoiceDetail(shown, [fee, training], SUBSCRIPTION.external_ref)
