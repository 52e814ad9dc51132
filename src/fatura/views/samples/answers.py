"""A sample of every answer."""

from collections.abc import Mapping
from datetime import timedelta
from typing import TypeVar

from fatura.domain.audit import ActorKind
from fatura.domain.audit_actions import PRODUCT_UPDATE
from fatura.domain.connection import Reconciliation
from fatura.domain.connection_move import ConnectionMove, MoveStatus
from fatura.domain.credentials import ApiKey, Scope
from fatura.domain.delivery import Attempt, AttemptResult, DeliveryStatus, Outcome, Webhook
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.offer import PaymentMethod
from fatura.domain.pricing import PricingAttempt, PricingOutcome
from fatura.domain.propagation import PropagationStatus
from fatura.domain.provider_field import ProviderField
from fatura.domain.sandbox import SandboxCharge, SandboxFault, SandboxOperation, SandboxProduct, SandboxStatus
from fatura.domain.subscription import CustomerProfile, commitment
from fatura.views.audit import AuditActorView, AuditEntryView, AuditLogView, AuditResourceView
from fatura.views.charge_calls import ChargeCallPageView, ChargeCallView
from fatura.views.connection_moves import ConnectionMoveProgressView, ConnectionMoveView
from fatura.views.customers import CustomerPageView, CustomerProfileView
from fatura.views.events import EventListView
from fatura.views.health import AliveView, ChecksView, ReadinessView
from fatura.views.integration import (
    ApiKeyPageView,
    ApiKeyView,
    ConnectionListView,
    ConnectionView,
    IntegratedConnectionView,
    IntegrationView,
    NewApiKeyView,
    NewSecretView,
    ReceivedView,
)
from fatura.views.invoices import InvoicePageView, InvoiceSummaryView, InvoiceView, RetriedView
from fatura.views.pay_page import PayPageView
from fatura.views.payments import PaymentEntryPageView, PaymentEntryView
from fatura.views.plans import (
    PlanPageView,
    PlanSummaryView,
    PlanView,
    PropagationProgressView,
    PropagationView,
)
from fatura.views.products import PricingTestView, ProductPageView, ProductView
from fatura.views.providers import ConnectionCheckView, ProviderListView, ProviderView
from fatura.views.samples import events, story
from fatura.views.samples.story import AT, CONNECTION, ITEMS, MEMBERSHIP, PLAN, SUBSCRIPTION
from fatura.views.sandbox import (
    QueuedFaultView,
    SandboxChargeListView,
    SandboxChargeView,
    SandboxProductListView,
    SandboxProductView,
    TestClockView,
)
from fatura.views.statements import CreditResult, CreditView, MatchedBy, StatementView
from fatura.views.subscriptions import (
    CanceledSubscriptionView,
    PreviewView,
    SubscriptionPageView,
    SubscriptionView,
    TermsChangeView,
    TermsHistoryView,
)
from fatura.views.view import PageView, PaginationView, View, instant
from fatura.views.webhooks import AdvancedWebhookView, DeliveriesView, DeliveryAttemptView, WebhookView

RecordT = TypeVar("RecordT", bound=View)

_KEY = "rk_test_0tqrK9wzYtYl2bVnJd1sPc_8fKqWm3xTzR5vNc7LhYdBg2EjUa4Ss"
_API_KEY = ApiKey(
    story.API_KEY_ID,
    "checkout server",
    _KEY[:35],
    (Scope.READ, Scope.WRITE),
    AT,
    AT + timedelta(days=90),
    None,
    None,
)
_ATTEMPT = PricingAttempt(
    item_id=story.TRAINING_ITEM_ID,
    attempt=1,
    url=story.PRICE_URL,
    outcome=PricingOutcome.OK,
    response_status=200,
    latency_ms=84,
    response_body='{"amount":12000,"description":"2 sessions"}',
    response_body_cut=False,
    created_at=AT,
)
_CHARGE_CALL = ChargeCallView(
    id=str(story.CALL_ID),
    at=instant(AT),
    operation="create",
    method="POST",
    path="/payments",
    request_body='{"billingType":"PIX","value":199.92,"dueDate":"2026-03-10"}',
    response_status=200,
    response_body='{"id":"pay_080225913252","status":"PENDING"}',
    failure=None,
    latency_ms=412,
)
_DELIVERY = Attempt(42, 1, story.WEBHOOK_URL, AT, AttemptResult(Outcome.DELIVERED, 200, 42, None, None))
_CHARGE = SandboxCharge(
    charge_id=story.CHARGE_ID,
    connection_id=CONNECTION.connection_id,
    invoice_id=story.INVOICE_ID,
    attempt=1,
    amount_cents=19992,
    currency=story.ACCOUNT.currency,
    method=PaymentMethod.PIX,
    installments=None,
    due_date=story.DUE,
    status=SandboxStatus.PAID,
    created_at=AT,
)
_AUDIT_ENTRY = AuditEntryView(
    id=str(story.AUDIT_ENTRY_ID),
    at=instant(AT),
    actor=AuditActorView(kind=ActorKind.API_KEY, id=str(_API_KEY.api_key_id), name=_API_KEY.name),
    action=PRODUCT_UPDATE.name,
    resource=AuditResourceView(type=PRODUCT_UPDATE.resource.type, id=str(MEMBERSHIP.product_id)),
    request_id=story.REQUEST_ID,
    address="203.0.113.7",
    before={"monthlyPriceCents": 9990},
    after={"monthlyPriceCents": 10990},
)
_ADVANCED_WEBHOOK = AdvancedWebhookView(enabled=True, delivered=3, failed=0)
_CUSTOMER = CustomerProfileView.of_profile(
    CustomerProfile(story.ANA, has_document=False, created_at=AT, erased_at=None)
)
_MIRRORED = SandboxProduct(CONNECTION.connection_id, MEMBERSHIP.product_id, MEMBERSHIP.name, None, AT)


def _page(of: type[PageView[RecordT]], record: RecordT) -> PageView[RecordT]:
    pagination = PaginationView(page=1, page_size=25, total_records=1, total_pages=1)
    return of(data=[record], pagination=pagination)


_ALL: tuple[View, ...] = (
    ProductView.of(MEMBERSHIP),
    _page(ProductPageView, ProductView.of(MEMBERSHIP)),
    PricingTestView.from_attributes(_ATTEMPT, amount_cents=12000, description="2 sessions"),
    PlanView.with_items(PLAN, ITEMS),
    PlanSummaryView.of(PLAN),
    _page(PlanPageView, PlanSummaryView.of(PLAN)),
    PropagationView(
        version=2,
        moved=1,
        skipped_count=0,
        skipped=[],
        next_cycle_cents_before=7992,
        next_cycle_cents_after=8792,
    ),
    PropagationProgressView(
        id=str(story.PROPAGATION_ID),
        status=PropagationStatus.DONE,
        version=2,
        from_version=None,
        moved=1,
        skipped_count=0,
        skipped=[],
        next_cycle_cents_before=7992,
        next_cycle_cents_after=8792,
        created_at=instant(AT),
        ended_at=instant(AT),
    ),
    StatementView(
        dry_run=True,
        new=1,
        duplicates=0,
        needs_you=0,
        debits=0,
        data=[
            CreditView(
                number=1,
                bank_id="E18236120202611101512s0123456789",
                occurred_on=AT.date(),
                amount_cents=19980,
                result=CreditResult.NEW,
                matched_by=MatchedBy.TXID,
                invoice_id=str(story.INVOICE_ID),
                charge_id="7Q2M9ZK4T1V8C6XB3N5R0JWLD",
            )
        ],
    ),
    ConnectionMoveView.of(to_connection_id=CONNECTION.connection_id, moved=1, skipped_count=0, skipped=[]),
    ConnectionMoveProgressView.of_progress(
        ConnectionMove(
            connection_move_id=story.PROPAGATION_ID,
            from_connection_id=story.OLD_CONNECTION_ID,
            to_connection_id=CONNECTION.connection_id,
            status=MoveStatus.DONE,
            visited_to=None,
            moved=1,
            skipped=0,
            created_at=AT,
            ended_at=AT,
        ),
        [],
    ),
    SubscriptionView.of(SUBSCRIPTION),
    _page(SubscriptionPageView, SubscriptionView.of(SUBSCRIPTION)),
    TermsHistoryView(data=[TermsChangeView.of(story.ENROLLED)]),
    CanceledSubscriptionView.with_commitment(events.CANCELED, commitment(events.CANCELED)),
    PreviewView.of(SUBSCRIPTION, story.DRAFT),
    _CUSTOMER,
    _page(CustomerPageView, _CUSTOMER),
    InvoiceView.of_detail(
        story.invoice(InvoiceStatus.ISSUED), [_ATTEMPT], charges=[story.CHARGE], pay_url=story.PAY_URL
    ),
    _page(InvoicePageView, InvoiceSummaryView.of(story.invoice(InvoiceStatus.PAID).invoice)),
    _page(PaymentEntryPageView, PaymentEntryView.of(story.entry())),
    _page(ChargeCallPageView, _CHARGE_CALL),
    RetriedView(retried=1),
    events.sample("invoice.paid"),
    EventListView(data=[events.sample("invoice.paid")], next_cursor="42", complete_from=1),
    WebhookView.of(Webhook(story.WEBHOOK_URL, AT, None), shows_path=True),
    DeliveriesView(
        status=DeliveryStatus.DELIVERED,
        next_attempt_at=None,
        data=[DeliveryAttemptView.of(_DELIVERY, shows_path=True)],
    ),
    IntegrationView.of(
        story.ACCOUNT,
        [
            IntegratedConnectionView.with_reconciliation(
                ConnectionView.of(CONNECTION, settings={}),
                Reconciliation(
                    AT, AT + timedelta(days=1), None, None, unknown_charges=0, unmatched_charges=0
                ),
            )
        ],
    ),
    NewApiKeyView.of(_API_KEY, key=_KEY),
    _page(ApiKeyPageView, ApiKeyView.of(_API_KEY)),
    AuditLogView(data=[_AUDIT_ENTRY], next_cursor="42"),
    PayPageView(name="Academia Sol", color="#0b6bcb", logo=None),
    NewSecretView(
        secret="whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",  # noqa: S106 - a made-up secret
        previous_valid_until=instant(AT + timedelta(days=1)),
    ),
    ConnectionView.of(CONNECTION, settings={}),
    ConnectionListView(data=[ConnectionView.of(CONNECTION, settings={})]),
    ConnectionCheckView.of(ConnectionView.of(CONNECTION, settings={}), None),
    ProviderListView(
        data=[
            ProviderView.of(
                "pix_key",
                settings=[ProviderField("pixKey", "your Pix key", is_required=True)],
                credentials=[],
                returns_money=False,
            )
        ]
    ),
    ReceivedView(received=True),
    TestClockView(
        now=instant(AT),
        status="ready",
        processed={"generation": 1, "issuance": 1, "push": 3},
        webhook=_ADVANCED_WEBHOOK,
    ),
    SandboxChargeView.of(_CHARGE),
    SandboxChargeListView(data=[SandboxChargeView.of(_CHARGE)]),
    SandboxProductListView(data=[SandboxProductView.of(_MIRRORED)]),
    QueuedFaultView(
        id=str(story.FAULT_ID),
        connection_id=str(CONNECTION.connection_id),
        operation=SandboxOperation.CREATE_CHARGE,
        fault=SandboxFault.TIMEOUT_AFTER,
        times=1,
    ),
    AliveView(status="ok"),
    ReadinessView(status="ok", checks=ChecksView(database=True, clock=True, workers=True)),
)
SAMPLES: Mapping[type[View], View] = {type(sample): sample for sample in _ALL}
