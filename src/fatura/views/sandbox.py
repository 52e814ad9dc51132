"""The test clock, and the charges, products and faults of the sandbox gateway (D-45, D-46)."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Literal, Self

from msgspec import UNSET, Meta, UnsetType

from fatura.domain.offer import PaymentMethod
from fatura.domain.sandbox import SandboxCharge, SandboxFault, SandboxOperation, SandboxProduct, SandboxStatus
from fatura.views.invoices import Installments
from fatura.views.view import Id, Instant, ListView, Ordinal, TotalCents, View
from fatura.views.webhooks import AdvancedWebhookView


class TestClockView(View):
    """The clock of a sandbox account (D-45)."""

    now: Instant
    status: Literal["ready", "advancing"]
    processed: Annotated[
        Mapping[str, int], Meta(description="How much work each lane has done since the last advance began.")
    ]
    target: (
        Annotated[
            Instant, Meta(description="Instant to which the clock advances; absent when `status` is `ready`.")
        ]
        | UnsetType
    ) = UNSET
    webhook: (
        Annotated[
            AdvancedWebhookView,
            Meta(
                description="Pushes to the webhook since the last advance began; absent if none is registered."
            ),
        ]
        | UnsetType
    ) = UNSET


class SandboxChargeView(View):
    """A charge in the sandbox gateway (D-46)."""

    charge_id: Annotated[str, Meta(description="The invoice's `gatewayInvoiceId`.")]
    invoice_id: Id
    connection_id: Id
    amount_cents: TotalCents
    payment_method: PaymentMethod
    installments: Installments
    due_date: date
    status: SandboxStatus

    @classmethod
    def of(cls, charge: SandboxCharge) -> Self:
        return cls.from_attributes(charge, payment_method=charge.method)


class SandboxChargeListView(ListView[SandboxChargeView]):
    """The charges in the sandbox gateway, newest first."""


class SandboxProductView(View):
    """A product that was mirrored to the sandbox gateway's catalog (D-46)."""

    id: Annotated[str, Meta(description="Id of the product in the gateway's catalog.")]
    product_id: Id
    connection_id: Id
    name: str
    description: str | None
    created_at: Instant

    @classmethod
    def of(cls, product: SandboxProduct) -> Self:
        return cls.from_attributes(product, id=product.gateway_product_id)


class SandboxProductListView(ListView[SandboxProductView]):
    """The products that were mirrored to the sandbox gateway."""


class QueuedFaultView(View):
    """A fault that makes calls of an operation fail, for a number of calls or for some time (D-46, D-61)."""

    id: Id
    connection_id: Id
    operation: SandboxOperation
    fault: SandboxFault
    times: (
        Annotated[Ordinal, Meta(description="Number of calls that fail; absent with `seconds`.")] | UnsetType
    ) = UNSET
    seconds: (
        Annotated[
            Ordinal, Meta(description="Seconds of real time for which calls fail; absent with `times`.")
        ]
        | UnsetType
    ) = UNSET
