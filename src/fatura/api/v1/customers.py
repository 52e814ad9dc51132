"""The routes of customers (D-15)."""

from typing import Annotated, ClassVar
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import TAX_DOCUMENT, Email, ExternalRef, TaxDocument, Text
from fatura.api.http.forms import Body, Examples, Paging, unsent
from fatura.api.http.replies import answer_once, run
from fatura.api.http.route import Call, PathId
from fatura.domain.audit_actions import CUSTOMER_ERASE, CUSTOMER_UPDATE
from fatura.domain.credentials import Scope
from fatura.domain.errors import CUSTOMER_ERASED, CUSTOMER_IN_USE
from fatura.domain.filters import CustomerFilter
from fatura.usecases.subscriptions import customers, erasure
from fatura.views.customers import CustomerPageView, CustomerProfileView

routes = Routes("Customers", "Your end customers. A customer is created with its first subscription.")
CustomerId = Annotated[UUID, PathId("customer")]
CustomerName = Annotated[str, Text(1, 200)]
DocumentFilter = Annotated[str, Text(11, 18)]


class CustomerQuery(Paging):
    external_ref: Annotated[
        ExternalRef | None, Field(description="Only the customer to whom you gave this id.")
    ] = None
    email: Annotated[
        Email | None, Field(description="Only customers with this e-mail address; case is ignored.")
    ] = None
    name: Annotated[
        CustomerName | None,
        Field(description="Only customers whose name starts with this; case and accents are ignored."),
    ] = None
    document: Annotated[
        DocumentFilter | None,
        Field(
            description="Only customers with this tax id; other characters than letters and digits are ignored."
        ),
    ] = None


class CustomerPatch(Body):
    """The customer fields that the request changes."""

    examples: ClassVar[Examples] = {"a new address": {"email": "ana.souza@example.com"}}

    name: CustomerName = unsent()
    email: Email = unsent()
    document: Annotated[
        TaxDocument | None,
        Field(description=f"{TAX_DOCUMENT} Never shown again. null removes it."),
    ] = unsent()


@routes.get("/v1/customers", "List customers", answers=CustomerPageView)
async def list_customers(call: Call, query: CustomerQuery) -> Response:
    """Return a page of customers, newest first."""
    return await run(call, customers.read_page, query.asked(), CustomerFilter(**query.filters()))


@routes.get("/v1/customers/{customerId}", "Read a customer", answers=CustomerProfileView)
async def read_customer(call: Call, customer_id: CustomerId) -> Response:
    """Return a customer. `hasDocument` says whether a tax document is stored; the document is never shown."""
    return await run(call, customers.read, customer_id)


@routes.patch(
    "/v1/customers/{customerId}",
    "Change a customer",
    answers=CustomerProfileView,
    audit=CUSTOMER_UPDATE,
    problems=[CUSTOMER_ERASED],
)
async def patch_customer(call: Call, customer_id: CustomerId, body: CustomerPatch) -> Response:
    """Change the fields that are sent. The change applies to all subscriptions and all new charges of the customer."""
    return await run(call, customers.patch, customer_id, body.sent())


@routes.post(
    "/v1/customers/{customerId}/erase",
    "Erase a customer",
    answers=CustomerProfileView,
    audit=CUSTOMER_ERASE,
    scope=Scope.ADMIN,
    other_status=202,
    problems=[CUSTOMER_IN_USE],
)
async def erase_customer(call: Call, customer_id: CustomerId) -> Response:
    """Remove the name, e-mail, tax document and `externalRef` of a customer from everything that Fatura stores.

    Cancel the customer's subscriptions first. Also cancel the open invoices, or wait until they are paid. Texts about
    the customer disappear too: descriptions, notes, reasons, answers of gateways, price endpoints and webhooks, and the
    `externalRef` of subscriptions. Invoices, amounts and events stay. The erasure cannot be undone. If the erasure
    takes longer than 15 seconds, the answer is 202 with `erasedAt` null, and workers continue. Send the request again
    until the answer is 200.
    """
    erased = await erasure.erase(call.deps, call.account, call.request, customer_id, draft=call.draft)
    return answer_once(erased.view, status=200 if erased.is_done else 202, is_replayed=erased.is_replayed)
