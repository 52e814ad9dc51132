"""The routes of invoices (spec 4.5)."""

from typing import Annotated, Self
from uuid import UUID

from pydantic import Field, model_validator
from starlette.responses import Response

from fatura.api.http.answers import answer
from fatura.api.http.declare import Routes
from fatura.api.http.fields import Cents, Day, ExternalRef, Id, Text, refusals
from fatura.api.http.forms import Body, Paging
from fatura.api.http.replies import replay, request_of, run, run_once
from fatura.api.http.route import Call, Key, Noun
from fatura.api.models.invoices import Invoice, InvoiceSummary, Retried
from fatura.api.models.shared import Page
from fatura.domain.errors import (
    ACCOUNT_RECOVERING,
    INVOICE_NOT_CANCELABLE,
    INVOICE_NOT_READY,
    ITEM_NOT_PENDING,
)
from fatura.domain.filters import InvoiceFilter
from fatura.domain.invoice_states import InvoiceStatus
from fatura.usecases.billing import invoices
from fatura.usecases.charging import cancellation, issuance
from fatura.usecases.pricing import manual_values, price_pull

routes = Routes("Invoices")
InvoiceId = Annotated[UUID, Noun("invoice")]
ItemId = Annotated[UUID, Noun("invoice item")]


class InvoiceQuery(Paging):
    """Which page of which invoices."""

    status: Annotated[InvoiceStatus | None, Field(description="Only invoices in this state.")] = None
    subscriptionId: Annotated[Id | None, Field(description="Only invoices of this subscription.")] = None
    customerId: Annotated[Id | None, Field(description="Only invoices of this customer.")] = None
    customerExternalRef: Annotated[
        ExternalRef | None, Field(description="Only invoices of the customer with this id of your own.")
    ] = None
    dueFrom: Annotated[Day | None, Field(description="Only invoices due on this day or later.")] = None
    dueTo: Annotated[
        Day | None, Field(description="Only invoices due on this day or earlier; not before `dueFrom`.")
    ] = None

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.dueFrom is not None and self.dueTo is not None and self.dueTo < self.dueFrom:
            raise refusals(("dueTo", "must not lie before dueFrom"))
        return self

    def wanted(self) -> InvoiceFilter:
        """Return the filter."""
        return InvoiceFilter(
            status=self.status,
            subscription_id=self.subscriptionId,
            customer_id=self.customerId,
            customer_external_ref=self.customerExternalRef,
            due_from=self.dueFrom,
            due_to=self.dueTo,
        )


@routes.get("/v1/invoices", answers=Page[InvoiceSummary])
async def list_invoices(call: Call, query: InvoiceQuery) -> Response:
    """List invoices, newest first, without items."""
    return await run(call, invoices.read_page, query.asked(), query.wanted())


@routes.get("/v1/invoices/{invoiceId}", answers=Invoice)
async def read_invoice(call: Call, invoice_id: InvoiceId) -> Response:
    """Return an invoice with its items and pricing attempts."""
    return await run(call, invoices.read, invoice_id)


class ManualValue(Body):
    """A value that releases an item."""

    amount: Annotated[Cents, Field(description="The item's amount, in cents.")]
    description: Annotated[str, Text(0, 300), Field(description="Line the subscriber reads.")] | None = None


@routes.post("/v1/invoices/{invoiceId}/retry-pricing", answers=Retried, key=Key.IGNORED)
async def retry_pricing(call: Call, invoice_id: InvoiceId) -> Response:
    """Call the price endpoint now for every pending item, outside the schedule; answers when the calls have ended."""
    return answer(await price_pull.retry(call.deps, call.account, invoice_id))


@routes.post("/v1/invoices/{invoiceId}/items/{itemId}/value", answers=Invoice, problems=[ITEM_NOT_PENDING])
async def close_item(call: Call, invoice_id: InvoiceId, item_id: ItemId, body: ManualValue) -> Response:
    """Release a pending item with a value of your own; with the last one the invoice goes on to be issued."""
    return await run_once(
        call,
        manual_values.close,
        invoice_id,
        item_id,
        amount_cents=body.amount,
        description=body.description,
    )


@routes.post(
    "/v1/invoices/{invoiceId}/cancel", answers=Invoice, problems=[INVOICE_NOT_CANCELABLE, ACCOUNT_RECOVERING]
)
async def cancel_invoice(call: Call, invoice_id: InvoiceId) -> Response:
    """Take an invoice out of the flow for good.

    One that has a charge is canceled once the gateway has confirmed that the charge is canceled there; when it does
    not, the answer is 409 and says why.
    """
    if repeated := await replay(call):
        return repeated
    released = await cancellation.release_charge(call.deps, call.account, invoice_id)
    return await run_once(call, cancellation.cancel, invoice_id, released=released)


@routes.post(
    "/v1/invoices/{invoiceId}/retry-issuance",
    answers=Invoice,
    problems=[INVOICE_NOT_READY, ACCOUNT_RECOVERING],
)
async def retry_issuance(call: Call, invoice_id: InvoiceId) -> Response:
    """Issue a `ready` invoice now, after its gateway refused it or while it waits for its next attempt.

    Answers the invoice as it is when the gateway has answered: `issued`, or `ready` when that went wrong again; the
    events say why. Safe to repeat while the gateway can be asked about its charges. Where it cannot
    (`outcome_unknown`), look there first: the retry then creates the charge anew, once for an Idempotency-Key. Send
    one, and a repeat of a request whose answer was lost creates nothing.
    """
    return answer(await issuance.retry(call.deps, call.account, request_of(call), invoice_id))
