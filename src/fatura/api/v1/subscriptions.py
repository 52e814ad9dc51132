"""The routes of subscriptions (spec 4.4)."""

from typing import Annotated
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import Day, Email, ExternalRef, Id, IntRange
from fatura.api.http.forms import Body, Paging
from fatura.api.http.replies import run, run_once
from fatura.api.http.route import Call, Key, Noun
from fatura.api.models.catalog import Plan
from fatura.api.models.shared import Page
from fatura.api.models.subscriptions import CanceledSubscription, Preview, Subscription
from fatura.api.v1.customers import CustomerName, Document
from fatura.api.v1.plans import TERMS_PROBLEMS
from fatura.api.v1.terms import TermsForm
from fatura.domain.calendar import LAST_CHARGE_DAY
from fatura.domain.errors import (
    GATEWAY_CHOICE_REQUIRED,
    GATEWAY_CONNECTION_NOT_FOUND,
    INSTALLMENTS_UNSUPPORTED,
    NOT_FOUND,
    PAYMENT_METHOD_UNSUPPORTED,
    PLAN_ARCHIVED,
    SUBSCRIPTION_CANCELED,
)
from fatura.domain.filters import SubscriptionFilter
from fatura.domain.offer import PaymentMethod
from fatura.domain.subscription import SubscriptionStatus
from fatura.usecases.subscriptions import subscriptions
from fatura.usecases.subscriptions.customers import CustomerInput
from fatura.usecases.subscriptions.subscriptions import Enrollment

routes = Routes("Subscriptions")
SubscriptionId = Annotated[UUID, Noun("subscription")]


class CustomerForm(Body):
    """The end customer, created or found again by externalRef; a known one is used as it is."""

    externalRef: Annotated[ExternalRef, Field(description="Your own id for the customer.")]
    name: CustomerName
    email: Email
    document: Annotated[
        Document | None,
        Field(description="Tax id (CPF or CNPJ); never shown again. Some gateways need it to issue."),
    ] = None


class SubscriptionForm(Body):
    """A customer to bind to a plan."""

    planId: Id
    customer: CustomerForm
    externalRef: Annotated[
        ExternalRef | None, Field(description="Your own id for the subscription; need not be unique.")
    ] = None
    paymentMethod: Annotated[PaymentMethod | None, Field(description="Overrides the plan's default.")] = None
    chargeDay: Annotated[
        Annotated[int, IntRange(1, LAST_CHARGE_DAY)] | None,
        Field(description="Due day of the invoices; left out, the day of creation, at most 28."),
    ] = None
    firstChargeDate: Annotated[
        Day | None,
        Field(description="First due date, today or up to five years ahead; its day anchors later cycles."),
    ] = None
    gatewayConnectionId: Annotated[
        Id | None, Field(description="Required when several active connections issue charges.")
    ] = None


class SubscriptionQuery(Paging):
    """Which page of which subscriptions."""

    status: Annotated[SubscriptionStatus | None, Field(description="Only subscriptions in this state.")] = (
        None
    )
    externalRef: Annotated[
        ExternalRef | None, Field(description="Only subscriptions with this id of your own.")
    ] = None
    planId: Annotated[Id | None, Field(description="Only subscriptions of this plan.")] = None
    customerId: Annotated[Id | None, Field(description="Only subscriptions of this customer.")] = None
    customerExternalRef: Annotated[
        ExternalRef | None, Field(description="Only subscriptions of the customer with this id of your own.")
    ] = None

    def wanted(self) -> SubscriptionFilter:
        """Return the filter."""
        return SubscriptionFilter(
            status=self.status,
            external_ref=self.externalRef,
            plan_id=self.planId,
            customer_id=self.customerId,
            customer_external_ref=self.customerExternalRef,
        )


@routes.post(
    "/v1/subscriptions",
    answers=Subscription,
    status=201,
    key=Key.REQUIRED,
    problems=[
        NOT_FOUND,
        PLAN_ARCHIVED,
        GATEWAY_CHOICE_REQUIRED,
        GATEWAY_CONNECTION_NOT_FOUND,
        PAYMENT_METHOD_UNSUPPORTED,
        INSTALLMENTS_UNSUPPORTED,
    ],
)
async def create_subscription(call: Call, body: SubscriptionForm) -> Response:
    """Bind a customer to the plan's current version; the first invoice comes with the next billing run."""
    asked = Enrollment(
        plan_id=body.planId,
        customer=CustomerInput(
            body.customer.externalRef, body.customer.name, body.customer.email, body.customer.document
        ),
        external_ref=body.externalRef,
        payment_method=body.paymentMethod,
        charge_day=body.chargeDay,
        first_charge_date=body.firstChargeDate,
        connection_id=body.gatewayConnectionId,
    )
    return await run_once(call, subscriptions.create, asked)


@routes.get("/v1/subscriptions", answers=Page[Subscription])
async def list_subscriptions(call: Call, query: SubscriptionQuery) -> Response:
    """List subscriptions, newest first."""
    return await run(call, subscriptions.read_page, query.asked(), query.wanted())


@routes.get("/v1/subscriptions/{subscriptionId}", answers=Subscription)
async def read_subscription(call: Call, subscription_id: SubscriptionId) -> Response:
    """Return a subscription."""
    return await run(call, subscriptions.read, subscription_id)


@routes.get("/v1/subscriptions/{subscriptionId}/terms", answers=Plan)
async def read_terms(call: Call, subscription_id: SubscriptionId) -> Response:
    """Return the terms that bill the subscription, in the plan's shape."""
    return await run(call, subscriptions.read_terms, subscription_id)


@routes.get("/v1/subscriptions/{subscriptionId}/preview", answers=Preview, problems=[SUBSCRIPTION_CANCELED])
async def preview_subscription(call: Call, subscription_id: SubscriptionId) -> Response:
    """Return the next invoice as the billing run would build it now; nothing is stored."""
    return await run(call, subscriptions.preview, subscription_id)


@routes.post(
    "/v1/subscriptions/{subscriptionId}/customize",
    answers=Subscription,
    problems=[*TERMS_PROBLEMS, SUBSCRIPTION_CANCELED],
)
async def customize_subscription(call: Call, subscription_id: SubscriptionId, body: TermsForm) -> Response:
    """Give the subscription terms of its own, complete, from its next cycle on; nobody else's change."""
    given = "commitmentCycles" in body.sent()
    return await run_once(
        call,
        subscriptions.customize,
        subscription_id,
        body.terms(),
        commitment_given=given,
    )


@routes.post(
    "/v1/subscriptions/{subscriptionId}/cancel",
    answers=CanceledSubscription,
    problems=[SUBSCRIPTION_CANCELED],
)
async def cancel_subscription(call: Call, subscription_id: SubscriptionId) -> Response:
    """End the subscription for good; the current cycle's invoice goes its normal way."""
    return await run_once(call, subscriptions.cancel, subscription_id)
