"""The routes of subscriptions (spec 4.4)."""

from typing import Annotated, ClassVar
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import TAX_DOCUMENT, Day, Email, ExternalRef, Id, IntRange, TaxDocument
from fatura.api.http.forms import Body, Examples, Paging
from fatura.api.http.replies import run, run_once
from fatura.api.http.route import Call, KeyPolicy, PathId
from fatura.api.v1.customers import CustomerName
from fatura.api.v1.plans import TERMS_PROBLEMS
from fatura.api.v1.terms import TermsForm
from fatura.domain import audit_actions, errors
from fatura.domain.calendar import LAST_CHARGE_DAY
from fatura.domain.filters import SubscriptionFilter
from fatura.domain.offer import PaymentMethod
from fatura.domain.subscription import MAX_START_CYCLE, SubscriptionStatus
from fatura.usecases.subscriptions import subscriptions
from fatura.usecases.subscriptions.customers import CustomerInput
from fatura.usecases.subscriptions.subscriptions import Enrollment
from fatura.views import subscriptions as views
from fatura.views.plans import PlanView
from fatura.views.samples.story import ANA, PLAN

routes = Routes("Subscriptions", "A customer who is billed by a plan, cycle after cycle.")
SubscriptionId = Annotated[UUID, PathId("subscription")]


class CustomerForm(Body):
    """The customer to subscribe.

    If no customer has this `externalRef`, Fatura creates a customer. If a customer has it, Fatura uses this customer,
    ignores `name` and `email`, and stores `document` only if the customer has no tax document yet.
    """

    externalRef: Annotated[
        ExternalRef, Field(description="Your own id of the customer. Must not begin with `erased-`.")
    ]
    name: CustomerName
    email: Email
    document: Annotated[
        TaxDocument | None,
        Field(description=f"{TAX_DOCUMENT} Never shown again. Some gateways need it to issue a charge."),
    ] = None


class SubscriptionForm(Body):
    """The customer who subscribes to a plan, and the terms."""

    examples: ClassVar[Examples] = {
        "Ana": {
            "planId": str(PLAN.plan_id),
            "customer": {"externalRef": ANA.external_ref, "name": ANA.name, "email": ANA.email},
        }
    }

    planId: Id
    customer: CustomerForm
    externalRef: Annotated[
        ExternalRef | None, Field(description="Your own id of the subscription; need not be unique.")
    ] = None
    paymentMethod: Annotated[PaymentMethod | None, Field(description="Overrides the plan's default.")] = None
    chargeDay: Annotated[
        Annotated[int, IntRange(1, LAST_CHARGE_DAY)] | None,
        Field(
            description="Day of the month on which invoices are due. The default is the day of `firstChargeDate` or, "
            "without it, of the creation; 28 instead of a later day. Without `firstChargeDate`, the first invoice is "
            "due on the first such day that is at least three days ahead: with `chargeDay` 7 on 5 November, on 7 "
            "December."
        ),
    ] = None
    firstChargeDate: Annotated[
        Day | None,
        Field(
            description="First due date, today or up to five years ahead. Later cycles are due on the charge day. "
            "Without it and without `chargeDay`, the first invoice is due three days after the creation, and the "
            "second one `periodMonths` after the creation."
        ),
    ] = None
    startCycle: Annotated[
        int,
        IntRange(1, MAX_START_CYCLE),
        Field(
            description="Number of the first invoice's cycle. Discounts and the commitment use this number, so a "
            "customer who moves here in the middle of either keeps the rest."
        ),
    ] = 1
    gatewayConnectionId: Annotated[
        Id | None, Field(description="Required when several active connections can issue charges.")
    ] = None


class SubscriptionQuery(Paging):
    status: Annotated[SubscriptionStatus | None, Field(description="Only subscriptions in this state.")] = (
        None
    )
    external_ref: Annotated[
        ExternalRef | None, Field(description="Only subscriptions to which you gave this id.")
    ] = None
    plan_id: Annotated[Id | None, Field(description="Only subscriptions of this plan.")] = None
    customer_id: Annotated[Id | None, Field(description="Only subscriptions of this customer.")] = None
    customer_external_ref: Annotated[
        ExternalRef | None, Field(description="Only subscriptions of the customer to whom you gave this id.")
    ] = None


@routes.post(
    "/v1/subscriptions",
    "Create a subscription",
    answers=views.SubscriptionView,
    audit=audit_actions.SUBSCRIPTION_CREATE,
    status=201,
    key=KeyPolicy.REQUIRED,
    problems=[
        errors.CUSTOMER_ERASED,
        errors.NOT_FOUND,
        errors.PLAN_ARCHIVED,
        errors.GATEWAY_CHOICE_REQUIRED,
        errors.GATEWAY_CONNECTION_NOT_FOUND,
        errors.PAYMENT_METHOD_UNSUPPORTED,
        errors.INSTALLMENTS_UNSUPPORTED,
        errors.AMOUNT_UNSUPPORTED,
    ],
)
async def create_subscription(call: Call, body: SubscriptionForm) -> Response:
    """Subscribe a customer to the plan's current version.

    The first invoice is generated three days before it is due, or immediately if it is due sooner. `nextDueDate` in the
    answer is the due date of this invoice. If the customer already has an active subscription to this plan, the answer
    also has `warnings`.
    """
    asked = Enrollment(
        plan_id=body.planId,
        customer=CustomerInput(
            body.customer.externalRef, body.customer.name, body.customer.email, body.customer.document
        ),
        external_ref=body.externalRef,
        payment_method=body.paymentMethod,
        charge_day=body.chargeDay,
        first_charge_date=body.firstChargeDate,
        start_cycle=body.startCycle,
        connection_id=body.gatewayConnectionId,
    )
    return await run_once(call, subscriptions.create, asked)


@routes.get("/v1/subscriptions", "List subscriptions", answers=views.SubscriptionPageView)
async def list_subscriptions(call: Call, query: SubscriptionQuery) -> Response:
    """Return a page of subscriptions, newest first."""
    return await run(call, subscriptions.read_page, query.asked(), SubscriptionFilter(**query.filters()))


@routes.get("/v1/subscriptions/{subscriptionId}", "Read a subscription", answers=views.SubscriptionView)
async def read_subscription(call: Call, subscription_id: SubscriptionId) -> Response:
    """Return a subscription."""
    return await run(call, subscriptions.read, subscription_id)


@routes.get("/v1/subscriptions/{subscriptionId}/terms", "Read a subscription's terms", answers=PlanView)
async def read_terms(call: Call, subscription_id: SubscriptionId) -> Response:
    """Return the terms by which the subscription is billed, in the form of a plan."""
    return await run(call, subscriptions.read_terms, subscription_id)


@routes.get(
    "/v1/subscriptions/{subscriptionId}/terms/history",
    "Read the history of a subscription's terms",
    answers=views.TermsHistoryView,
)
async def read_terms_history(call: Call, subscription_id: SubscriptionId) -> Response:
    """Return the changes of the subscription's terms, oldest first, each with its first cycle, time and reason.

    The answer has the newest 1,000 changes. If two changes have the same `fromCycle`, the later change applies.
    """
    return await run(call, subscriptions.read_terms_history, subscription_id)


@routes.get(
    "/v1/subscriptions/{subscriptionId}/preview",
    "Preview the next invoice",
    answers=views.PreviewView,
    problems=[errors.SUBSCRIPTION_CANCELED, errors.INSTALLMENTS_UNSUPPORTED, errors.AMOUNT_UNSUPPORTED],
)
async def preview_subscription(call: Call, subscription_id: SubscriptionId) -> Response:
    """Return the next invoice as the billing run would build it now. Nothing is stored.

    If the gateway would refuse the amount, the answer is 422 with the gateway's minimum.
    """
    return await run(call, subscriptions.preview, subscription_id)


@routes.post(
    "/v1/subscriptions/{subscriptionId}/customize",
    "Customize a subscription",
    answers=views.SubscriptionView,
    audit=audit_actions.SUBSCRIPTION_CUSTOMIZE,
    problems=[*TERMS_PROBLEMS, errors.AMOUNT_UNSUPPORTED, errors.SUBSCRIPTION_CANCELED],
)
async def customize_subscription(call: Call, subscription_id: SubscriptionId, body: TermsForm) -> Response:
    """Replace the plan's terms for this subscription from its next cycle on. Send the complete terms."""
    given = "commitmentCycles" in body.sent()
    return await run_once(
        call, subscriptions.customize, subscription_id, body.terms(), commitment_given=given
    )


@routes.post(
    "/v1/subscriptions/{subscriptionId}/cancel",
    "Cancel a subscription",
    answers=views.CanceledSubscriptionView,
    audit=audit_actions.SUBSCRIPTION_CANCEL,
    problems=[errors.SUBSCRIPTION_CANCELED],
)
async def cancel_subscription(call: Call, subscription_id: SubscriptionId) -> Response:
    """End the subscription for good. Invoices that were generated already are not affected."""
    return await run_once(call, subscriptions.cancel, subscription_id)
