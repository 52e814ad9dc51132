"""Customers: as a part of other objects, and on their own routes (spec 2.4, D-15)."""

from typing import Annotated, Any, Self

from msgspec import Meta

from fatura.domain.subscription import Customer, CustomerProfile
from fatura.views.view import ExternalRef, Id, Instant, PageView, View, instant


class CustomerView(View):
    """The customer of a subscription or an invoice. The tax document is never shown."""

    id: Id
    external_ref: ExternalRef
    name: Annotated[
        str, Meta(min_length=1, max_length=200, description="`[erased]` if the customer is erased.")
    ]
    email: Annotated[
        Annotated[str, Meta(extra_json_schema={"format": "email"})] | None,
        Meta(description="null only if the customer is erased, or is being erased."),
    ]

    @classmethod
    def of(cls, customer: Customer, **more: Any) -> Self:
        return cls(
            id=str(customer.customer_id),
            external_ref=customer.external_ref,
            name=customer.name,
            email=customer.email,
            **more,
        )


class CustomerProfileView(CustomerView):
    """A customer, as the routes of customers show it. The tax document is never shown."""

    has_document: Annotated[bool, Meta(description="Whether a tax document is stored.")]
    created_at: Instant
    erased_at: Annotated[
        Instant | None,
        Meta(description="When the customer's data was gone everywhere; null before (D-62)."),
    ]

    @classmethod
    def of_profile(cls, profile: CustomerProfile) -> Self:
        return cls.of(
            profile.customer,
            has_document=profile.has_document,
            created_at=instant(profile.created_at),
            erased_at=instant(profile.erased_at),
        )


class CustomerPageView(PageView[CustomerProfileView]):
    """A page of customers, newest first."""
