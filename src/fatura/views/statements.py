"""What an import of a bank statement did with each credit (D-257)."""

from collections.abc import Sequence
from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Self

from msgspec import Meta

from fatura.domain.bank_statement import MAX_CREDITS, Credit
from fatura.views.view import Cents, Count, Id, Ordinal, View


class CreditResult(StrEnum):
    """What an import does with a credit."""

    NEW = "new"
    """The credit is a payment of a charge, and is imported."""
    DUPLICATE = "duplicate"
    """The payment was certainly imported before, or recorded by hand with the bank's id as its reference."""
    SIMILAR = "similar"
    """The payment may be recorded already. It is imported only if a person confirms it."""
    AMBIGUOUS = "ambiguous"
    """The credit may pay several charges."""
    ID_REUSED = "id_reused"
    """A payment with the same id of the bank was imported before, but it may be another payment."""
    UNMATCHED = "unmatched"
    """The credit pays no charge of the connection."""

    @property
    def needs_you(self) -> bool:
        return self in {CreditResult.SIMILAR, CreditResult.AMBIGUOUS, CreditResult.ID_REUSED}


class MatchedBy(StrEnum):
    """How the import found the charge that a credit pays: by its txid, or by the payer's document."""

    TXID = "txid"
    DOCUMENT = "document"


class CreditView(View):
    """A credit of the statement, and what the import does with it."""

    number: Annotated[Ordinal, Meta(description="Position in the file, from 1; debits count too.")]
    bank_id: Annotated[str, Meta(description="The Pix's end-to-end id, or else the bank's id of the credit.")]
    occurred_on: date
    amount_cents: Cents
    result: Annotated[
        CreditResult,
        Meta(
            description="`new`: a payment, imported now. `duplicate`: imported before, or recorded by hand with this "
            "`bankId` as its `reference`. `similar`: may be recorded already; send its `bankId` in `confirmed` if it "
            "is another payment. `ambiguous`: may pay several invoices; record it by hand. `id_reused`: an imported "
            "payment has this id, but may be another one; if it is, record this one by hand. `unmatched`: pays no "
            "invoice of this connection."
        ),
    ]
    matched_by: Annotated[
        MatchedBy | None,
        Meta(description="`txid`: the credit names the charge. `document`: amount and payer's tax id match."),
    ]
    invoice_id: Id | None
    charge_id: Annotated[str | None, Meta(description="The charge's `gatewayInvoiceId`, its txid.")]

    @classmethod
    def of(cls, credit: Credit, **more: Any) -> Self:
        return cls.from_attributes(credit, **more)


class StatementView(View):
    """The result of an import, or of a dry run."""

    dry_run: Annotated[bool, Meta(description="true: nothing was imported.")]
    new: Annotated[Count, Meta(description="Payments that are imported now.")]
    duplicates: Annotated[Count, Meta(description="Payments that were imported or recorded before.")]
    needs_you: Annotated[
        Count, Meta(description="Credits that are `similar`, `ambiguous` or `id_reused`: look at them.")
    ]
    debits: Annotated[Count, Meta(description="Debits in the file, which are ignored.")]
    data: Annotated[Sequence[CreditView], Meta(max_length=MAX_CREDITS, description="The credits, in order.")]
