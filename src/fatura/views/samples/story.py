"""Ana subscribes to a gym: a fixed membership fee, and personal training priced by the gym's own server."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.charge import ChargeStage, PayData, ShownCharge
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
from fatura.domain.payments import EntryKind, EntrySource, PaymentEntry, balance_of
from fatura.domain.product import PricingMode, Product
from fatura.domain.refunds import RefundRequest, RefundStage
from fatura.domain.subscription import (
    Customer,
    PaymentMethodSource,
    Subscription,
    SubscriptionStatus,
    TermsChange,
    TermsReason,
)

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
PROPAGATION_ID = _id(15)
AUDIT_ENTRY_ID = _id(21)
OLD_CONNECTION_ID = _id(20)
CALL_ID = _id(31)
CHARGE_ID = "ch_0001"
PIX_CODE = "00020101021226580014br.gov.bcb.pix2536pay.example/qr/v2/ch_00015204000053039865802BR6304A13F"
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
    refunds=True,
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
    start_cycle=1,
    cycle_count=0,
    commitment_cycles=12,
    next_period_start=DUE,
    next_due_date=DUE,
    started_at=AT,
    canceled_at=None,
)

ENROLLED = TermsChange(
    from_cycle=1,
    plan_id=PLAN.plan_id,
    plan_version=1,
    customized=False,
    changed_at=AT,
    reason=TermsReason.ENROLLED,
)


TOTAL_CENTS = 19992
"""R$ 79.92 for the membership, R$ 120.00 for two training sessions."""


def entry(kind: EntryKind = EntryKind.PAYMENT, *, amount_cents: int = TOTAL_CENTS) -> PaymentEntry:
    """Return a payment of Ana's first invoice, or a refund or dispute of that payment."""
    return PaymentEntry(
        payment_entry_id=_id(20 + list(EntryKind).index(kind)),
        invoice_id=INVOICE_ID,
        charge_id=_id(15),
        connection_id=CONNECTION.connection_id,
        gateway_charge_id=CHARGE_ID,
        kind=kind,
        amount_cents=amount_cents,
        fee_cents=0,
        currency=ACCOUNT.currency,
        occurred_at=AT,
        source=EntrySource.GATEWAY,
        reference=f"{'pay' if kind is EntryKind.PAYMENT else 'ref' if kind is EntryKind.REFUND else 'dsp'}_0001",
        recorded_at=AT,
    )


def invoice(status: InvoiceStatus, *entries: PaymentEntry) -> InvoiceDetail:
    """Return Ana's first invoice in a state, with its entries. Without `entries`, a paid invoice has one payment."""
    if status is InvoiceStatus.PAID and not entries:
        entries = (entry(),)
    balance = balance_of(entries)
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
        total_cents=None if waits else TOTAL_CENTS,
        currency=ACCOUNT.currency,
        paid_cents=balance.paid_cents,
        refunded_cents=balance.refunded_cents,
        gateway_invoice_id=CHARGE_ID if charged else None,
        issued_at=AT if charged else None,
        paid_at=AT if status is InvoiceStatus.PAID else None,
        canceled_at=AT if status is InvoiceStatus.CANCELED else None,
        created_at=AT,
    )
    fee, training = DRAFT.items
    fee = InvoiceItem.of_draft(
        fee,
        item_id=FEE_ITEM_ID,
        currency=ACCOUNT.currency,
        product_external_ref=MEMBERSHIP.external_ref,
    )
    training = InvoiceItem.of_draft(
        training,
        item_id=TRAINING_ITEM_ID,
        currency=ACCOUNT.currency,
        product_external_ref=TRAINING.external_ref,
    )
    if not waits:
        priced = PricingStatus.PRICED
        training = replace(training, pricing_status=priced, amount_cents=12000, description="2 sessions")
    return InvoiceDetail(shown, [fee, training], SUBSCRIPTION.external_ref, entries, len(entries))


PAY_URL = f"https://billing.example.com/pay/{'Zm9vYmFy' * 9}"

CHARGE = ShownCharge(
    charge_id=_id(15),
    number=1,
    connection_id=CONNECTION.connection_id,
    provider=CONNECTION.provider,
    stage=ChargeStage.OPEN,
    gateway_invoice_id=CHARGE_ID,
    amount_cents=19992,
    currency=ACCOUNT.currency,
    payment_method=PaymentMethod.PIX,
    installments=None,
    due_date=DUE,
    created_at=AT,
    closed_at=None,
    error_code=None,
    error_detail=None,
    pay=PayData("https://pay.example/ch_0001", PIX_CODE, None, AT + timedelta(days=20)),
)
"""The charge of Ana's first invoice, before she pays it."""

REFUND = RefundRequest(
    refund_id=_id(30),
    invoice_id=INVOICE_ID,
    charge_id=CHARGE.charge_id,
    connection_id=CONNECTION.connection_id,
    gateway_charge_id=CHARGE_ID,
    stage=RefundStage.SENDING,
    amount_cents=TOTAL_CENTS,
    left_cents=TOTAL_CENTS,
    currency=ACCOUNT.currency,
    reason="The training was canceled.",
    created_at=AT,
    next_attempt_at=AT,
    sent_at=AT,
)
"""A refund of the payment of Ana's first invoice, before the gateway has answered."""
