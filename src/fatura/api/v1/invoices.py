"""The routes of invoices (spec 4.5)."""

from typing import Annotated, ClassVar, Self
from uuid import UUID

from pydantic import Field, model_validator
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import Cents, Day, ExternalRef, Id, Text, refusals
from fatura.api.http.forms import Body, Examples, Paging
from fatura.api.http.replies import answer, replay, run, run_once
from fatura.api.http.route import Call, KeyPolicy, PathId
from fatura.domain import errors
from fatura.domain.filters import InvoiceFilter
from fatura.domain.invoice_states import InvoiceStatus
from fatura.usecases.billing import invoices
from fatura.usecases.charging import cancellation, issuance
from fatura.usecases.pricing import manual_values, price_pull
from fatura.views.invoices import InvoicePageView, InvoiceView, RetriedView

routes = Routes("Invoices", "One invoice for each cycle of a subscription, from its value to its payment.")
InvoiceId = Annotated[UUID, PathId("invoice")]
ItemId = Annotated[UUID, PathId("invoice item")]


class InvoiceQuery(Paging):
    status: Annotated[InvoiceStatus | None, Field(description="Only invoices in this state.")] = None
    subscription_id: Annotated[Id | None, Field(description="Only invoices of this subscription.")] = None
    customer_id: Annotated[Id | None, Field(description="Only invoices of this customer.")] = None
    customer_external_ref: Annotated[
        ExternalRef | None, Field(description="Only invoices of the customer with this id of your own.")
    ] = None
    due_from: Annotated[Day | None, Field(description="Only invoices due on this day or later.")] = None
    due_to: Annotated[
        Day | None, Field(description="Only invoices due on this day or earlier; not before `dueFrom`.")
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
    """Return an invoice with its items and price calls."""
    return await run(call, invoices.read, invoice_id)


class ManualValue(Body):
    """A value for a pending item."""

    examples: ClassVar[Examples] = {"two sessions": {"amount": 12000, "description": "2 sessions"}}

    amount: Annotated[Cents, Field(description="The item's amount, in cents.")]
    description: Annotated[str, Text(0, 300), Field(description="Text that the subscriber reads.")] | None = (
        None
    )


@routes.post(
    "/v1/invoices/{invoiceId}/retry-pricing", "Retry price calls", answers=RetriedView, key=KeyPolicy.IGNORED
)
async def retry_pricing(call: Call, invoice_id: InvoiceId) -> Response:
    """Call the price endpoint of every pending item now, outside the schedule. Answers when the calls have ended."""
    return answer(await price_pull.retry(call.deps, call.account, invoice_id))


@routes.post(
    "/v1/invoices/{invoiceId}/items/{itemId}/value",
    "Enter an item's value",
    answers=InvoiceView,
    problems=[errors.ITEM_NOT_PENDING],
)
async def close_item(call: Call, invoice_id: InvoiceId, item_id: ItemId, body: ManualValue) -> Response:
    """Set the value of a pending item. After the last one, the invoice is `ready`, or `paid` if its total is 0."""
    return await run_once(
        call, manual_values.close, invoice_id, item_id, amount_cents=body.amount, description=body.description
    )


@routes.post(
    "/v1/invoices/{invoiceId}/cancel",
    "Cancel an invoice",
    answers=InvoiceView,
    problems=[errors.INVOICE_NOT_CANCELABLE, errors.ACCOUNT_RECOVERING],
)
async def cancel_invoice(call: Call, invoice_id: InvoiceId) -> Response:
    """Cancel an invoice for good.

    If the invoice has a charge, Fatura first cancels the charge at the gateway. If the gateway does not confirm the
    cancellation, the answer is 409 with the reason, and the invoice does not change.
    """
    if repeated := await replay(call):
        return repeated
    released = await cancellation.release_charge(call.deps, call.account, invoice_id)
    return await run_once(call, cancellation.cancel, invoice_id, released=released)


@routes.post(
    "/v1/invoices/{invoiceId}/retry-issuance",
    "Retry issuance",
    answers=InvoiceView,
    problems=[errors.INVOICE_NOT_READY, errors.ACCOUNT_RECOVERING],
)
async def retry_issuance(call: Call, invoice_id: InvoiceId) -> Response:
    """Issue a `ready` invoice now: after the gateway refused it, or before its next scheduled attempt.

    The request waits for the gateway. The answer shows the invoice `issued`, or still `ready` if the attempt failed.
    Events give the reason of a failure.

    Fatura does not create a charge twice if it can search the gateway for the first one. If it cannot
    (`outcome_unknown`), look for the charge at the gateway yourself, because this request creates a new one. Send an
    Idempotency-Key, so that a repeated request creates no further charge.
    """
    return answer(await issuance.retry(call.deps, call.account, call.request, invoice_id))
