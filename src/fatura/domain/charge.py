"""The charges of an invoice: their stages, the allowed moves between stages, and what clients see (D-33, D-49).

PostgreSQL refuses moves that STAGES does not contain. The table of stages in docs/explanation/life-of-a-charge.md is
generated from STAGES.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from uuid import UUID

from fatura.domain.offer import PaymentMethod

MAX_CHARGES = 50
"""An invoice with this many confirmed charges is not reissued (D-176).

A poll reads every confirmed charge of the invoice, and each of these reads uses the connection's budget.
"""


class ChargeStage(StrEnum):
    """What the engine knows about a charge. `STAGES` says what each stage means."""

    PLANNED = "planned"
    SENDING = "sending"
    UNKNOWN = "unknown"
    ABSENT = "absent"
    PARKED = "parked"
    OPEN = "open"
    REFUSED = "refused"
    EXPIRED = "expired"
    CANCELED = "canceled"
    PAID = "paid"
    FAILED = "failed"
    MISSING = "missing"


class ChargeStatus(StrEnum):
    """The status of a charge that clients see (D-49)."""

    SENDING = "sending"
    UNKNOWN = "unknown"
    OPEN = "open"
    PAID = "paid"
    REFUSED = "refused"
    EXPIRED = "expired"
    CANCELED = "canceled"
    NOT_MADE = "not_made"


@dataclass(frozen=True, slots=True)
class StageRule:
    """One row of the table of stages.

    `is_live` is true if a payer can pay the charge, or if the engine does not know yet whether the charge exists at the
    gateway. An invoice has at most one live charge. `is_confirmed` is true if the gateway has confirmed that the charge
    exists. `is_closed` is true if the engine expects no further payment of the charge. `to` lists the stages that may
    follow.
    """

    status: ChargeStatus
    meaning: str
    to: tuple[ChargeStage, ...]
    is_live: bool = False
    is_confirmed: bool = False
    is_closed: bool = False


_G, _C = ChargeStage, ChargeStatus

STAGES: Mapping[ChargeStage, StageRule] = {
    _G.PLANNED: StageRule(
        _C.SENDING,
        "a reissue asked for the charge; its request was not sent yet",
        (_G.SENDING, _G.UNKNOWN, _G.FAILED),
    ),
    _G.SENDING: StageRule(
        _C.SENDING,
        "the request may have been sent, and its answer is not recorded yet",
        (_G.UNKNOWN, _G.ABSENT, _G.PARKED, _G.OPEN, _G.FAILED),
        is_live=True,
    ),
    _G.UNKNOWN: StageRule(
        _C.UNKNOWN,
        "the answer was lost; the engine repeats the request or looks the charge up",
        (_G.ABSENT, _G.PARKED, _G.OPEN, _G.FAILED),
        is_live=True,
    ),
    _G.ABSENT: StageRule(
        _C.SENDING,
        "the charge probably does not exist; the request is sent again under the same number",
        (_G.SENDING, _G.UNKNOWN, _G.PARKED, _G.OPEN, _G.FAILED),
        is_live=True,
    ),
    _G.PARKED: StageRule(
        _C.UNKNOWN,
        "the engine cannot find out whether the charge exists, or it found a wrong one; a person decides",
        (_G.UNKNOWN, _G.OPEN, _G.FAILED),
        is_live=True,
    ),
    _G.OPEN: StageRule(
        _C.OPEN,
        "the gateway confirmed the charge, and the payer can pay it",
        (_G.PAID, _G.REFUSED, _G.EXPIRED, _G.CANCELED, _G.MISSING),
        is_live=True,
        is_confirmed=True,
    ),
    _G.REFUSED: StageRule(
        _C.REFUSED,
        "the payment was declined; the payer may try again",
        (_G.OPEN, _G.PAID, _G.EXPIRED, _G.CANCELED, _G.MISSING),
        is_live=True,
        is_confirmed=True,
    ),
    _G.EXPIRED: StageRule(
        _C.EXPIRED,
        "the gateway closed the unpaid charge",
        (_G.OPEN, _G.REFUSED, _G.PAID, _G.CANCELED, _G.MISSING),
        is_confirmed=True,
        is_closed=True,
    ),
    _G.CANCELED: StageRule(
        _C.CANCELED,
        "the gateway confirmed that the charge is canceled",
        (_G.PAID,),
        is_confirmed=True,
        is_closed=True,
    ),
    _G.PAID: StageRule(_C.PAID, "the gateway confirmed the payment", (), is_confirmed=True, is_closed=True),
    _G.FAILED: StageRule(
        _C.NOT_MADE,
        "the gateway refused the request, the amount is below the minimum, or a person or a cancellation ended the "
        "attempt before the charge existed",
        (),
        is_closed=True,
    ),
    _G.MISSING: StageRule(
        _C.NOT_MADE,
        "two polls, at least an hour apart, found that the gateway does not know the charge any more",
        (_G.OPEN, _G.REFUSED, _G.EXPIRED, _G.PAID, _G.CANCELED),
        is_confirmed=True,
        is_closed=True,
    ),
}
"""The stages of a charge; PostgreSQL enforces the same moves, and the same sets of live and confirmed stages."""

IN_DOUBT = frozenset({_G.SENDING, _G.UNKNOWN})
"""Stages in which the engine does not know the result of the charge's request."""
MAY_APPEAR = IN_DOUBT | {_G.ABSENT, _G.PARKED}
"""If the engine finds a charge in one of these stages at the gateway, the invoice adopts this charge."""
PAYABLE = frozenset({_G.OPEN, _G.REFUSED})
"""Stages in which a payer can pay the charge."""
UNPAID = PAYABLE | {_G.EXPIRED}
"""Stages in which the charge is unpaid at the gateway. The gateway can open an expired charge again."""
INITIAL_STAGES = frozenset({_G.PLANNED, _G.SENDING, _G.UNKNOWN})
"""The stages in which a new charge is stored. UNKNOWN is for a charge that `fatura restored` found (D-123)."""


def may_move(stage: ChargeStage, to: ChargeStage) -> bool:
    return to in STAGES[stage].to


def moves() -> frozenset[tuple[ChargeStage, ChargeStage]]:
    """Return the pairs of stages between which PostgreSQL allows a move."""
    return frozenset((stage, to) for stage, rule in STAGES.items() for to in rule.to)


@dataclass(frozen=True, slots=True)
class ChargeTerms:
    """How a charge is to be paid, and when it is due."""

    payment_method: PaymentMethod
    installments: int | None
    due_date: date


@dataclass(frozen=True, slots=True)
class PayData:
    """How the payer can pay a charge (by a link, a Pix code or the line of a boleto), and until when (D-49)."""

    url: str | None = None
    pix_code: str | None = None
    boleto_line: str | None = None
    expires_at: datetime | None = None


NO_PAY_DATA = PayData()


@dataclass(frozen=True, slots=True, kw_only=True)
class InvoiceCharge:
    """One charge of an invoice, committed before its request is sent (D-33).

    `charge_id` is Fatura's id; `gateway_invoice_id` is the provider's. `number` counts the invoice's charges from 1,
    and is the `attempt` of the reference that the gateway stores. `first_sent_at` is real time, because gateways expire
    idempotency keys in real time. Other instants are on the account's clock. `sent_at` is when the newest request was
    reserved, and identifies that request. `request_sealed` is that request, encrypted. `known_charge_ids` are the
    provider's ids of the charges that were found for this request, after a restore (D-123) or by a webhook (D-162). The
    engine looks these charges up, and never sends the request again. `unknown_since` is when a poll first got the
    answer that the gateway does not know the charge (D-56).
    """

    charge_id: UUID
    invoice_id: UUID
    number: int
    connection_id: UUID
    stage: ChargeStage
    amount_cents: int
    currency: str
    payment_method: PaymentMethod
    installments: int | None
    due_date: date
    created_at: datetime
    first_sent_at: datetime
    sent_at: datetime
    request_sealed: bytes | None = None
    empty_lookups: int = 0
    looked_up_at: datetime | None = None
    known_charge_ids: Sequence[str] = ()
    gateway_invoice_id: str | None = None
    confirmed_at: datetime | None = None
    closed_at: datetime | None = None
    unknown_since: datetime | None = None
    error_code: str | None = None

    @property
    def terms(self) -> ChargeTerms:
        return ChargeTerms(self.payment_method, self.installments, self.due_date)

    @property
    def is_unpaid_at_gateway(self) -> bool:
        """Return whether the charge is unpaid at the gateway.

        Before the invoice gets another charge, an unpaid charge must be canceled.
        """
        return self.stage in UNPAID


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCharge:
    """A charge as `GET /v1/invoices/{invoiceId}` shows it, with the name of the provider (D-49).

    `instructions` is a text of the merchant, which the pay page shows with the Pix code (D-256).
    """

    charge_id: UUID
    number: int
    connection_id: UUID
    provider: str
    stage: ChargeStage
    gateway_invoice_id: str | None
    amount_cents: int
    currency: str
    payment_method: PaymentMethod
    installments: int | None
    due_date: date
    created_at: datetime
    closed_at: datetime | None
    error_code: str | None
    error_detail: str | None
    pay: PayData
    instructions: str | None = None
