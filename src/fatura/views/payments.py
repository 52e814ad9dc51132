"""The entries of an invoice's ledger, and the refunds that were asked for (D-50, D-151)."""

from typing import Annotated, Self

from msgspec import Meta

from fatura.domain.payments import EntryKind, EntrySource, ManualMethod, PaymentEntry
from fatura.domain.refunds import STAGES, RefundRequest, RefundStatus
from fatura.views.view import Id, Instant, PageView, TotalCents, View


class PaymentEntryView(View):
    """A payment, a refund, or a step of a dispute. An entry never changes (D-50)."""

    id: Id
    kind: EntryKind
    amount_cents: Annotated[TotalCents, Meta(description="Amount of the payment, refund or dispute.")]
    fee_cents: Annotated[TotalCents, Meta(description="The provider's fee; it does not lower `amountCents`.")]
    currency: Annotated[str, Meta(description="ISO 4217.")]
    occurred_at: Annotated[Instant, Meta(description="When the money moved, or the dispute changed.")]
    source: Annotated[
        EntrySource,
        Meta(description="`gateway`: reported by the gateway; `manual`: recorded by a person."),
    ]
    charge_id: Annotated[
        Id | None,
        Meta(description="The charge; null for a `manual` entry, and for a second charge."),
    ]
    reference: Annotated[
        str | None,
        Meta(description="The provider's own id of the entry, or the one that a person gave."),
    ]
    method: Annotated[
        ManualMethod | None, Meta(description="How the money of a `manual` entry was received.")
    ]
    note: Annotated[str | None, Meta(description="The note that a person gave; null otherwise.")]
    recorded_at: Annotated[Instant, Meta(description="When Fatura recorded the entry.")]

    @classmethod
    def of(cls, entry: PaymentEntry) -> Self:
        return cls.from_attributes(entry, id=str(entry.payment_entry_id))


class PaymentEntryPageView(PageView[PaymentEntryView]):
    """A page of an invoice's payments, refunds and disputes, newest first."""


class RefundErrorView(View):
    """Why a refund was not made (D-151)."""

    code: Annotated[
        str,
        Meta(
            description="The gateway's code, or `failed_at_gateway`, `charge_missing`, `not_left` if a dispute or "
            "another refund took the money first, `made_late` if an earlier refund that had failed was made after all, "
            "or `not_made` if the gateway shows no refund."
        ),
    ]
    detail: Annotated[str, Meta(description="The reason in words, often the gateway's.")]


class RefundView(View):
    """A refund that you asked for (D-151)."""

    id: Id
    status: Annotated[
        RefundStatus,
        Meta(
            description="`pending`: not made yet, or the outcome is unknown; `done`: the money was returned; "
            "`failed`: the gateway did not make the refund."
        ),
    ]
    amount_cents: TotalCents
    currency: Annotated[str, Meta(description="ISO 4217.")]
    reason: Annotated[str | None, Meta(description="The reason that you gave; null otherwise.")]
    source: Annotated[
        EntrySource,
        Meta(description="`gateway`: the gateway returns the money; `manual`: you return it yourself."),
    ]
    charge_id: Annotated[
        Id | None, Meta(description="The charge whose payment is refunded, as in `payments`.")
    ]
    payment_id: Annotated[
        Id | None, Meta(description="The refund's entry in `payments`; null until it is done.")
    ]
    created_at: Instant
    closed_at: Annotated[Instant | None, Meta(description="When the refund was done or failed.")]
    error: RefundErrorView | None

    @classmethod
    def of(cls, request: RefundRequest) -> Self:
        error = None
        if request.error_code is not None:
            error = RefundErrorView(code=request.error_code, detail=request.error_detail or "")
        entry_id = request.payment_entry_id
        return cls.from_attributes(
            request,
            id=str(request.refund_id),
            status=STAGES[request.stage].status,
            payment_id=None if entry_id is None else str(entry_id),
            error=error,
        )
