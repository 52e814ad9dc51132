"""The routes of invoices (spec 4.5)."""

from typing import Annotated, ClassVar, Self
from uuid import UUID

from pydantic import Field, model_validator
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import (
    Cents,
    Day,
    ExternalRef,
    Id,
    Instant,
    IntRange,
    PositiveCents,
    Text,
    refusals,
)
from fatura.api.http.forms import Body, Examples, Paging
from fatura.api.http.replies import answer, answer_once, answer_stored, run, run_once
from fatura.api.http.route import Call, KeyPolicy, PathId
from fatura.domain import audit_actions, errors
from fatura.domain.filters import InvoiceFilter
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.offer import MAX_INSTALLMENTS, PaymentMethod
from fatura.domain.payments import ManualMethod
from fatura.usecases.billing import invoices
from fatura.usecases.charging import issuance
from fatura.usecases.connections import charge_calls
from fatura.usecases.merchant_actions import cancellation, manual_payments, refunds, reissue
from fatura.usecases.pay_page import links
from fatura.usecases.pricing import manual_values, price_pull
from fatura.views.charge_calls import ChargeCallPageView
from fatura.views.invoices import InvoicePageView, InvoiceView, RetriedView
from fatura.views.payments import PaymentEntryPageView

routes = Routes("Invoices", "One invoice for each cycle of a subscription, from its value to its payment.")
InvoiceId = Annotated[UUID, PathId("invoice")]
InvoiceChargeId = Annotated[UUID, PathId("charge")]
ItemId = Annotated[UUID, PathId("invoice item")]


class InvoiceQuery(Paging):
    status: Annotated[InvoiceStatus | None, Field(description="Only invoices in this state.")] = None
    subscription_id: Annotated[Id | None, Field(description="Only invoices of this subscription.")] = None
    customer_id: Annotated[Id | None, Field(description="Only invoices of this customer.")] = None
    customer_external_ref: Annotated[
        ExternalRef | None, Field(description="Only invoices of the customer to whom you gave this id.")
    ] = None
    due_from: Annotated[Day | None, Field(description="Only invoices due on this day or later.")] = None
    due_to: Annotated[
        Day | None,
        Field(description="Only invoices due on this day or earlier; must not lie before `dueFrom`."),
    ] = None

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.due_from is not None and self.due_to is not None and self.due_to < self.due_from:
            raise refusals(("dueTo", "must not lie before dueFrom"))
        return self


@routes.get("/v1/invoices", "List invoices", answers=InvoicePageView)
async def list_invoices(call: Call, query: InvoiceQuery) -> Response:
    """Return a page of invoices without their items, newest first."""
    return await run(call, invoices.read_page, query.asked(), InvoiceFilter(**query.filters()))


@routes.get("/v1/invoices/{invoiceId}", "Read an invoice", answers=InvoiceView)
async def read_invoice(call: Call, invoice_id: InvoiceId) -> Response:
    """Return an invoice with its items, payments, refunds, price calls and charges.

    `payment` says how the payer can pay.
    """
    return await run(call, invoices.read, invoice_id)


@routes.get("/v1/invoices/{invoiceId}/payments", "List an invoice's payments", answers=PaymentEntryPageView)
async def list_payments(call: Call, invoice_id: InvoiceId, query: Paging) -> Response:
    """Return a page of the payments, refunds and disputes of an invoice, newest first.

    `GET /v1/invoices/{invoiceId}` shows only the newest 100 payments, refunds and disputes.
    """
    return await run(call, invoices.read_payments, query.asked(), invoice_id)


@routes.get(
    "/v1/invoices/{invoiceId}/charges/{chargeId}/calls",
    "List the calls about a charge",
    answers=ChargeCallPageView,
)
async def list_charge_calls(
    call: Call, invoice_id: InvoiceId, charge_id: InvoiceChargeId, query: Paging
) -> Response:
    """Return a page of the requests that Fatura sent to the provider about a charge, with the answers, newest first.

    `chargeId` is the `id` of an element of the invoice's `charges`. Credentials are removed. Reads that changed nothing
    are left out. At most 50 requests of a charge are kept. Providers that are not called over HTTP, such as `sandbox`,
    have none.
    """
    return await run(call, charge_calls.read_page, query.asked(), invoice_id, charge_id=charge_id)


class ReceivedForm(Body):
    """Money that was received without the gateway."""

    examples: ClassVar[Examples] = {
        "cash": {"method": "cash"},
        "a part": {"amountCents": 5000, "method": "transfer"},
    }

    method: Annotated[ManualMethod, Field(description="How you received the money.")]
    amountCents: Annotated[PositiveCents | None, Field(description="By default, what is open.")] = None
    paidAt: Annotated[
        Instant | None,
        Field(description="When you received the money; by default, now. It must not lie in the future."),
    ] = None
    reference: Annotated[
        Annotated[str, Text(1, 120)] | None,
        Field(description="Your own id of the payment, such as a receipt number."),
    ] = None
    note: Annotated[
        Annotated[str, Text(1, 500)] | None, Field(description="A note for people; `payments` shows it.")
    ] = None


class RefundForm(Body):
    """How much to return, and why."""

    may_be_absent: ClassVar[bool] = True

    examples: ClassVar[Examples] = {
        "everything": {},
        "a part": {"amountCents": 5000, "reason": "One session was canceled."},
    }

    amountCents: Annotated[
        PositiveCents | None,
        Field(
            description="By default, all that was paid and not refunded yet. Send it if several charges have money."
        ),
    ] = None
    reason: Annotated[
        Annotated[str, Text(1, 500)] | None,
        Field(description="Why you return the money. The gateway gets it, and the payer may see it."),
    ] = None


class ManualValue(Body):
    """A value for a pending item."""

    examples: ClassVar[Examples] = {"two sessions": {"amount": 12000, "description": "2 sessions"}}

    amount: Annotated[Cents, Field(description="The item's amount, in cents.")]
    description: Annotated[
        Annotated[str, Text(0, 300)] | None, Field(description="Text that the subscriber reads.")
    ] = None


@routes.post(
    "/v1/invoices/{invoiceId}/retry-pricing",
    "Retry price calls",
    answers=RetriedView,
    audit=audit_actions.INVOICE_RETRY_PRICING,
    key=KeyPolicy.IGNORED,
)
async def retry_pricing(call: Call, invoice_id: InvoiceId) -> Response:
    """Call the price endpoint of every pending item now, outside the schedule. The request waits for the calls."""
    return answer(await price_pull.retry(call.deps, call.account, invoice_id, draft=call.draft))


@routes.post(
    "/v1/invoices/{invoiceId}/items/{itemId}/value",
    "Enter an item's value",
    answers=InvoiceView,
    audit=audit_actions.INVOICE_ENTER_VALUE,
    problems=[errors.ITEM_NOT_PENDING],
)
async def close_item(call: Call, invoice_id: InvoiceId, item_id: ItemId, body: ManualValue) -> Response:
    """Set the value of a pending item.

    When no item is pending any more, the invoice becomes `ready`, or `paid` if its total is 0.
    """
    return await run_once(
        call, manual_values.close, invoice_id, item_id, amount_cents=body.amount, description=body.description
    )


@routes.post(
    "/v1/invoices/{invoiceId}/cancel",
    "Cancel an invoice",
    answers=InvoiceView,
    audit=audit_actions.INVOICE_CANCEL,
    problems=[errors.INVOICE_NOT_CANCELABLE, errors.ACCOUNT_RECOVERING],
)
async def cancel_invoice(call: Call, invoice_id: InvoiceId) -> Response:
    """Cancel an invoice for good.

    If the invoice is issued or overdue, Fatura first cancels the charge at the gateway. If the gateway does not confirm
    that the charge is canceled, the answer is 409 with the reason, and the invoice does not change. If Fatura learns
    later that the charge is canceled, Fatura cancels the invoice.
    """
    stored = await cancellation.cancel(
        call.deps, call.account, call.request, invoice_id, draft=call.needed_draft
    )
    return answer_stored(stored)


class ReissueForm(Body):
    """How and when the payer has to pay the next charge."""

    may_be_absent: ClassVar[bool] = True

    examples: ClassVar[Examples] = {"by pix, today": {"paymentMethod": "pix"}}

    dueDate: Annotated[
        Day | None,
        Field(
            description="Due date of the next charge, today or up to five years ahead. Send it if the invoice is not "
            "due yet; the default is today."
        ),
    ] = None
    paymentMethod: Annotated[
        PaymentMethod | None, Field(description="The default is the method of the earlier charge.")
    ] = None
    installments: Annotated[
        Annotated[int, IntRange(1, MAX_INSTALLMENTS)] | None,
        Field(description="Card installments. If the payment method changes, the default is 1."),
    ] = None


@routes.post(
    "/v1/invoices/{invoiceId}/reissue",
    "Reissue an invoice",
    answers=InvoiceView,
    audit=audit_actions.INVOICE_REISSUE,
    key=KeyPolicy.REQUIRED,
    problems=[
        errors.INVOICE_NOT_REISSUABLE,
        errors.PAYMENT_METHOD_UNSUPPORTED,
        errors.INSTALLMENTS_UNSUPPORTED,
        errors.AMOUNT_UNSUPPORTED,
        errors.ACCOUNT_RECOVERING,
    ],
)
async def reissue_invoice(call: Call, invoice_id: InvoiceId, body: ReissueForm) -> Response:
    """Cancel the charge of an issued or overdue invoice at the gateway, and issue the invoice with a new charge.

    You can also reissue a `ready` invoice if the gateway refused to create its charge. The invoice keeps its due date,
    payment method and installments. The new charge can have a different due date, payment method or number of
    installments, which its entry in `charges` shows.

    If the gateway does not confirm that the charge is canceled, the answer is 409 with the reason, and the invoice does
    not change. If the gateway's answer was lost and the charge turns out to be canceled, Fatura completes the reissue.
    """
    assert call.request is not None, "the route requires an Idempotency-Key"
    wanted = reissue.Wanted(body.dueDate, body.paymentMethod, body.installments)
    stored = await reissue.reissue(
        call.deps, call.account, call.request, invoice_id, wanted=wanted, draft=call.needed_draft
    )
    return answer_stored(stored)


@routes.post(
    "/v1/invoices/{invoiceId}/payments",
    "Record a payment",
    answers=InvoiceView,
    audit=audit_actions.INVOICE_RECORD_PAYMENT,
    key=KeyPolicy.REQUIRED,
    problems=[
        errors.INVOICE_NOT_PAYABLE,
        errors.AMOUNT_EXCEEDS_OPEN,
        errors.TOO_MANY_PAYMENTS,
        errors.ACCOUNT_RECOVERING,
    ],
)
async def record_payment(call: Call, invoice_id: InvoiceId, body: ReceivedForm) -> Response:
    """Record money that you received without the gateway, for a ready, issued or overdue invoice.

    If the payment covers the rest of the total, Fatura first cancels the charge at the gateway. If the gateway does not
    confirm that the charge is canceled, the answer is 409 with the reason, and the invoice does not change. If the
    gateway's answer was lost and the charge turns out to be canceled, Fatura records the payment later.
    """
    assert call.request is not None, "the route requires an Idempotency-Key"
    received = manual_payments.Received(
        key=call.request.key,
        amount_cents=body.amountCents,
        paid_at=body.paidAt,
        method=body.method,
        reference=body.reference,
        note=body.note,
    )
    stored = await manual_payments.receive(
        call.deps, call.account, call.request, invoice_id, received=received, draft=call.needed_draft
    )
    return answer_stored(stored)


@routes.post(
    "/v1/invoices/{invoiceId}/refunds",
    "Refund a payment",
    answers=InvoiceView,
    audit=audit_actions.INVOICE_REFUND,
    other_status=202,
    key=KeyPolicy.REQUIRED,
    problems=[
        errors.INVOICE_NOT_REFUNDABLE,
        errors.AMOUNT_EXCEEDS_PAID,
        errors.TOO_MANY_REFUNDS,
        errors.REFUND_UNSUPPORTED,
        errors.REFUND_REFUSED,
        errors.ACCOUNT_RECOVERING,
    ],
)
async def refund_invoice(call: Call, invoice_id: InvoiceId, body: RefundForm) -> Response:
    """Return a payment to the payer through the gateway, in part or in full. The state of the invoice does not change.

    The answer is 200 if the gateway has made the refund. It is 202 if the gateway still works on the refund, or if the
    outcome is unknown. `refunds` then shows the refund as `pending`, and Fatura finishes it. When the refund is done or
    failed, `invoice.refunded` or `invoice.refund_failed` is emitted. A repeat with the same Idempotency-Key never makes
    a second refund. The repeat's answer shows the current state of the first refund.

    One refund returns payments of a single charge. Fatura takes the most recently paid charge that has enough money
    left. If no charge has enough, Fatura takes the payments that you received without the gateway. In this case, Fatura
    only records the refund, and you return the money yourself. Send `amountCents` if several charges have money left.
    """
    assert call.request is not None, "the route requires an Idempotency-Key"
    refunded = await refunds.refund(
        call.deps,
        call.account,
        call.request,
        invoice_id,
        amount_cents=body.amountCents,
        reason=body.reason,
        draft=call.needed_draft,
    )
    return answer_once(
        refunded.view, status=200 if refunded.is_done else 202, is_replayed=refunded.is_replayed
    )


@routes.post(
    "/v1/invoices/{invoiceId}/pay-link/rotate",
    "Replace an invoice's pay link",
    answers=InvoiceView,
    audit=audit_actions.INVOICE_ROTATE_PAY_LINK,
    holds_secret=True,
)
async def rotate_pay_link(call: Call, invoice_id: InvoiceId) -> Response:
    """Give the invoice another link to its pay page, for example if the link has reached the wrong person.

    The earlier link opens nothing any more, so send the new one to the payer. `payUrl` is the new link.
    """
    return await run_once(call, links.rotate, invoice_id)


@routes.post(
    "/v1/invoices/{invoiceId}/retry-issuance",
    "Retry issuance",
    answers=InvoiceView,
    audit=audit_actions.INVOICE_RETRY_ISSUANCE,
    problems=[errors.INVOICE_NOT_READY, errors.ACCOUNT_RECOVERING],
)
async def retry_issuance(call: Call, invoice_id: InvoiceId) -> Response:
    """Try to issue a `ready` invoice now.

    Use this after the gateway refused the charge, or if you do not want to wait for the next scheduled attempt.
    The request waits for the gateway. The answer shows the invoice `issued`, or still `ready` if the attempt failed.
    Events give the reason for a failure.

    If an earlier call may have created the charge, Fatura repeats that call or looks the charge up, so that no second
    charge is created. If `issueError.code` is `outcome_unknown`, Fatura can do neither, and this request creates a new
    charge. Before you send it, look for the earlier charge at the gateway yourself. Send an Idempotency-Key, so that a
    repeated request creates no further charge.
    """
    issued = await issuance.retry(call.deps, call.account, call.request, invoice_id, draft=call.draft)
    return answer(issued)
