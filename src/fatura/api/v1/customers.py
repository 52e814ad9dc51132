"""The routes of customers (D-15)."""

from typing import Annotated
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import Email, ExternalRef, Text
from fatura.api.http.forms import Body, Paging, unsent
from fatura.api.http.replies import run
from fatura.api.http.route import Call, Noun
from fatura.api.models.shared import Page
from fatura.api.models.subscriptions import CustomerProfile
from fatura.domain.filters import CustomerFilter
from fatura.usecases.subscriptions import customers

routes = Routes("Customers")
CustomerId = Annotated[UUID, Noun("customer")]
CustomerName = Annotated[str, Text(1, 200)]
Document = Annotated[str, Text(11, 18)]


class CustomerQuery(Paging):
    """Which page of which customers."""

    externalRef: Annotated[
        ExternalRef | None, Field(description="Only the customer with this id of your own.")
    ] = None
    email: Annotated[
        Email | None, Field(description="Only customers with this e-mail, in upper or lower case.")
    ] = None
    name: Annotated[
        CustomerName | None,
        Field(description="Only customers whose name starts with this; case and accents are ignored."),
    ] = None
    document: Annotated[
        Document | None,
        Field(description="Only customers with this tax id; all but letters and digits is ignored."),
    ] = None

    def wanted(self) -> CustomerFilter:
        """Return the filter."""
        return CustomerFilter(
            external_ref=self.externalRef, email=self.email, name=self.name, document=self.document
        )


class CustomerPatch(Body):
    """What to correct of a customer."""

    name: CustomerName = unsent()
    email: Email = unsent()
    document: Annotated[
        Document | None, Field(description="Tax id (CPF or CNPJ); never shown again. null removes it.")
    ] = unsent()


@routes.get("/v1/customers", answers=Page[CustomerProfile])
async def list_customers(call: Call, query: CustomerQuery) -> Response:
    """List customers, newest first. They come about with their first subscriptions."""
    return await run(call, customers.read_page, query.asked(), query.wanted())


@routes.get("/v1/customers/{customerId}", answers=CustomerProfile)
async def read_customer(call: Call, customer_id: CustomerId) -> Response:
    """Return a customer; whether a tax document is known is told, the document never."""
    return await run(call, customers.read, customer_id)


@routes.patch("/v1/customers/{customerId}", answers=CustomerProfile)
async def patch_customer(call: Call, customer_id: CustomerId, body: CustomerPatch) -> Response:
    """Correct what is sent, for all of the customer's subscriptions; charges created from now on carry it."""
    return await run(call, customers.patch, customer_id, body.sent())
