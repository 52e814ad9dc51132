"""Errors as clients read them (RFC 9457, spec 7)."""

from typing import Annotated, Self

import msgspec
from msgspec import UNSET, Meta, UnsetType

from fatura.domain.credentials import Scope
from fatura.domain.errors import CATALOGUE, EngineError
from fatura.domain.offer import PaymentMethod
from fatura.domain.payments import EntrySource
from fatura.domain.product import PricingMode
from fatura.domain.quotas import Quota
from fatura.views.view import Id, Instant, Ordinal, TotalCents, View

_ROWS = "".join(f"| `{each.type}` | {each.status} | {each.when} |\n" for each in CATALOGUE)
_TYPES = f"Stable code to branch on.\n\n| Type | Status | When |\n|---|---|---|\n{_ROWS}"


class InvalidFieldView(View):
    """One invalid part of a request."""

    path: Annotated[
        str, Meta(description="Place such as `items[0].discounts[1].percent`; empty for the whole body.")
    ]
    message: Annotated[str, Meta(description="What is expected there.")]


class ConnectionOptionView(View):
    """A connection that can bill. Only `engine.payment_method_unsupported` adds `methods` and `maxInstallments`."""

    connection_id: Id
    provider: str
    label: str | None
    methods: list[PaymentMethod] | UnsetType = UNSET
    max_installments: Ordinal | UnsetType = UNSET


class RefundPartView(View):
    """Payments of an invoice that one refund can return: those of one charge, or those received without the gateway."""

    source: EntrySource
    charge_id: Id | None
    gateway_invoice_id: Annotated[str | None, Meta(description="Id of the charge in the gateway.")]
    refundable_cents: TotalCents


class ProblemMetaView(View):
    """Structured details; the `type` of the problem decides which of them are present."""

    fields: Annotated[list[InvalidFieldView], Meta(description="Every invalid field.")] | UnsetType = UNSET
    options: (
        Annotated[list[ConnectionOptionView], Meta(description="The connections to choose from.")] | UnsetType
    ) = UNSET
    pricing_mode: PricingMode | UnsetType = UNSET
    payment_method: PaymentMethod | UnsetType = UNSET
    max_installments: Annotated[Ordinal, Meta(description="Requested installments.")] | UnsetType = UNSET
    gateway_max: (
        Annotated[Ordinal, Meta(description="Maximum number of installments at the gateway.")] | UnsetType
    ) = UNSET
    amount_cents: (
        Annotated[TotalCents, Meta(description="The lowest amount that would be charged.")] | UnsetType
    ) = UNSET
    min_amount_cents: (
        Annotated[Ordinal, Meta(description="Lowest amount of a charge at the gateway.")] | UnsetType
    ) = UNSET
    min_installment_cents: (
        Annotated[Ordinal, Meta(description="Lowest amount of an installment at the gateway.")] | UnsetType
    ) = UNSET
    provider: str | UnsetType = UNSET
    product_ids: (
        Annotated[list[Id], Meta(description="The products that the problem is about.")] | UnsetType
    ) = UNSET
    subscription_ids: (
        Annotated[list[Id], Meta(description="Active subscriptions of the customer, at most 20.")] | UnsetType
    ) = UNSET
    invoice_ids: (
        Annotated[list[Id], Meta(description="Open invoices of the customer, at most 20.")] | UnsetType
    ) = UNSET
    pending_invoice_ids: (
        Annotated[
            list[Id], Meta(description="Closed invoices for which a call is still in progress, at most 20.")
        ]
        | UnsetType
    ) = UNSET
    open_cents: Annotated[TotalCents, Meta(description="Open amount of the invoice.")] | UnsetType = UNSET
    refundable_cents: (
        Annotated[TotalCents, Meta(description="What one refund can return at most.")] | UnsetType
    ) = UNSET
    parts: (
        Annotated[
            list[RefundPartView],
            Meta(description="What can be refunded, one refund for each, in this order."),
        ]
        | UnsetType
    ) = UNSET
    refund_id: Annotated[Id, Meta(description="The refund that was not made.")] | UnsetType = UNSET
    code: Annotated[str, Meta(description="Why it was not made, often the gateway's code.")] | UnsetType = (
        UNSET
    )
    limit: Annotated[Ordinal, Meta(description="The maximum number.")] | UnsetType = UNSET
    complete_from: (
        Annotated[Ordinal, Meta(description="The first number from which all events are kept.")] | UnsetType
    ) = UNSET
    quota: Annotated[Quota, Meta(description="The quota that is used up.")] | UnsetType = UNSET
    scope: Annotated[Scope, Meta(description="The scope that the API key lacks.")] | UnsetType = UNSET
    now: Annotated[Instant, Meta(description="Time of the test clock.")] | UnsetType = UNSET
    latest: (
        Annotated[Instant, Meta(description="The last instant to which the test clock can move.")] | UnsetType
    ) = UNSET


class ProblemView(View):
    """Why a request failed (RFC 9457). Branch on `type`, never on the texts."""

    type: Annotated[
        str, Meta(description=_TYPES, extra_json_schema={"enum": [problem.type for problem in CATALOGUE]})
    ]
    title: Annotated[str, Meta(description="Name of the kind of error.")]
    status: Annotated[int, Meta(ge=400, le=599, description="Same as the HTTP status.")]
    detail: Annotated[str, Meta(description="Message for people; safe to show to end users.")]
    request_id: Annotated[str | None, Meta(description="Correlation id of the request in the logs.")]
    meta: ProblemMetaView | UnsetType = UNSET

    @classmethod
    def of(cls, error: EngineError, request_id: str | None) -> Self:
        return cls(
            type=error.problem.type,
            title=error.problem.title,
            status=error.problem.status,
            detail=error.detail,
            request_id=request_id,
            meta=UNSET if error.meta is None else msgspec.convert(error.meta, ProblemMetaView),
        )
