"""Refunds that merchants request: their stages, and which payments a refund uses (D-53, D-151).

PostgreSQL refuses moves that STAGES does not contain.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from fatura.domain.charging import next_late_look_at
from fatura.domain.errors import AMOUNT_EXCEEDS_PAID, INVOICE_NOT_REFUNDABLE, TOO_MANY_REFUNDS, EngineError
from fatura.domain.payments import EntryKind, EntrySource, PaymentEntry, balance_of, in_order

MAX_REFUNDS = 100
"""Maximum number of refunds of an invoice. A refund of all the money that is left of a `Part` is exempt (D-178)."""
PARTS_SHOWN = 100
"""Maximum number of parts that `engine.amount_exceeds_paid` lists (D-151)."""


class RefundStage(StrEnum):
    """What the engine knows about a refund. `STAGES` says what each stage means."""

    PLANNED = "planned"
    SENDING = "sending"
    ACCEPTED = "accepted"
    DONE = "done"
    FAILED = "failed"


class RefundStatus(StrEnum):
    """The status of a refund that clients see."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class StageRule:
    """One row of the table of stages. `to` lists the stages that may follow."""

    status: RefundStatus
    meaning: str
    to: tuple[RefundStage, ...]

    @property
    def is_open(self) -> bool:
        return self.status is RefundStatus.PENDING


_G, _R = RefundStage, RefundStatus

STAGES: Mapping[RefundStage, StageRule] = {
    _G.PLANNED: StageRule(
        _R.PENDING,
        "nothing was sent, or a look-up did not find the refund; the request is still to be sent",
        (_G.SENDING, _G.ACCEPTED, _G.DONE, _G.FAILED),
    ),
    _G.SENDING: StageRule(
        _R.PENDING,
        "the request may have been sent, and its answer is not recorded yet",
        (_G.PLANNED, _G.ACCEPTED, _G.DONE, _G.FAILED),
    ),
    _G.ACCEPTED: StageRule(
        _R.PENDING, "the gateway works on the refund; no money has moved yet", (_G.DONE, _G.FAILED)
    ),
    _G.DONE: StageRule(_R.DONE, "the money was returned, and the ledger has the refund", ()),
    _G.FAILED: StageRule(
        _R.FAILED, "the gateway did not make the refund; a late one is still recorded", (_G.DONE,)
    ),
}
"""The stages of a refund. An invoice has at most one open refund, whose status is `pending`."""


def may_move(stage: RefundStage, to: RefundStage) -> bool:
    return to in STAGES[stage].to


def moves() -> frozenset[tuple[RefundStage, RefundStage]]:
    """Return the pairs of stages between which PostgreSQL allows a move."""
    return frozenset((stage, to) for stage, rule in STAGES.items() for to in rule.to)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundRequest:
    """A refund that a merchant asked for, committed before it is sent (D-33, D-53).

    `left_cents` is the amount that could be refunded when the refund was stored. A refund of manual payments has no
    connection. `sent_at` is the time that was stored just before the newest request was sent. `unknown_since` is this
    time of the first request whose outcome is unknown, or None. `looked_up_at` is when the newest look-up began that
    did not find the refund. `empty_lookups` counts such look-ups, except those that were made too early. `lease_until`
    is real time; other instants are on the account's clock. `next_attempt_at` is None if the refund is done, or if it
    failed and no late look-up follows.
    """

    refund_id: UUID
    invoice_id: UUID
    charge_id: UUID | None
    connection_id: UUID | None
    gateway_charge_id: str | None
    stage: RefundStage
    amount_cents: int
    left_cents: int
    currency: str
    reason: str | None
    created_at: datetime
    next_attempt_at: datetime | None
    lease_until: datetime | None = None
    failures: int = 0
    sent_at: datetime | None = None
    unknown_since: datetime | None = None
    empty_lookups: int = 0
    looked_up_at: datetime | None = None
    closed_at: datetime | None = None
    payment_entry_id: UUID | None = None
    error_code: str | None = None
    error_detail: str | None = None

    @property
    def is_open(self) -> bool:
        return STAGES[self.stage].is_open

    def done_by(self, payment_entry_id: UUID, *, at: datetime) -> "RefundRequest":
        """Return the refund as done; the ledger's entry of the refund has the id `payment_entry_id`."""
        return replace(
            self,
            stage=RefundStage.DONE,
            payment_entry_id=payment_entry_id,
            closed_at=at,
            next_attempt_at=None,
            lease_until=None,
            error_code=None,
            error_detail=None,
        )

    def failed_with(self, code: str, detail: str, *, at: datetime) -> "RefundRequest":
        """Return the refund as failed. If a request may still have an effect, late look-ups follow (D-151)."""
        return replace(
            self,
            stage=RefundStage.FAILED,
            closed_at=at,
            next_attempt_at=None if self.unknown_since is None else next_late_look_at(at, now=at),
            lease_until=None,
            error_code=code,
            error_detail=detail,
        )

    @property
    def source(self) -> EntrySource:
        return EntrySource.MANUAL if self.connection_id is None else EntrySource.GATEWAY


@dataclass(frozen=True, slots=True)
class Part:
    """The payments that one refund can use: the payments of one charge at the gateway, or the manual payments."""

    source: EntrySource
    left_cents: int
    charge_id: UUID | None = None
    connection_id: UUID | None = None
    gateway_charge_id: str | None = None

    def as_meta(self) -> dict[str, Any]:
        return {
            "source": str(self.source),
            "chargeId": None if self.charge_id is None else str(self.charge_id),
            "gatewayInvoiceId": self.gateway_charge_id,
            "refundableCents": self.left_cents,
        }


def parts(ledger: Sequence[PaymentEntry]) -> Sequence[Part]:
    """Return the parts of a ledger that have payments, in the order in which refunds use them.

    The charge with the newest payment comes first, and the manual payments come last. Money in a dispute that is open
    or lost cannot be refunded.
    """
    by_charge: dict[tuple[UUID | None, str | None], list[PaymentEntry]] = {}
    for entry in in_order(ledger):
        by_charge.setdefault((entry.connection_id, entry.gateway_charge_id), []).append(entry)
    paid = [entries for entries in by_charge.values() if balance_of(entries).paid_cents]
    paid.sort(
        key=lambda entries: (entries[0].source is EntrySource.GATEWAY, _newest_payment(entries)), reverse=True
    )
    return [
        Part(
            source=entries[0].source,
            left_cents=max(balance_of(entries).held_cents, 0),
            charge_id=entries[0].charge_id,
            connection_id=entries[0].connection_id,
            gateway_charge_id=entries[0].gateway_charge_id,
        )
        for entries in paid
    ]


def is_left(ledger: Sequence[PaymentEntry], request: RefundRequest) -> bool:
    """Return whether the payments that a refund uses can still cover the refund's amount."""
    key = request.connection_id, request.gateway_charge_id
    return any(
        (part.connection_id, part.gateway_charge_id) == key and part.left_cents >= request.amount_cents
        for part in parts(ledger)
    )


def _newest_payment(entries: Sequence[PaymentEntry]) -> datetime:
    return max(entry.occurred_at for entry in entries if entry.kind is EntryKind.PAYMENT)


def choose(
    ledger: Sequence[PaymentEntry], amount_cents: int | None, *, failed_count: int = 0
) -> tuple[Part, int]:
    """Return the part that a refund uses, and the refund's amount. `failed_count` counts the invoice's failed refunds.

    If `amount_cents` is None, exactly one part must have money left, and the refund returns all of this money.
    Otherwise, the refund uses the first part that has enough money left.
    Raises EngineError: `engine.invoice_not_refundable`, `engine.amount_exceeds_paid`, `engine.too_many_refunds`.
    """
    paid = parts(ledger)
    left = [part for part in paid if part.left_cents]
    if not paid:
        raise EngineError(INVOICE_NOT_REFUNDABLE, "Nothing was paid.")
    if not left and balance_of(ledger).disputed_cents:
        detail = "All that is left is in a dispute that is open or lost, so it cannot be refunded."
        raise EngineError(INVOICE_NOT_REFUNDABLE, detail)
    if amount_cents is None and len(left) == 1:
        return left[0], left[0].left_cents
    if amount_cents is not None:
        enough = next((part for part in left if part.left_cents >= amount_cents), None)
        if enough is not None:
            _check_count(ledger, enough, amount_cents, failed_count=failed_count)
            return enough, amount_cents
    most_cents = max((part.left_cents for part in left), default=0)
    detail = f"At most {most_cents} cents can be refunded."
    if len(left) > 1:
        detail = (
            f"One refund can return at most {most_cents} cents, because it returns the payments of one charge, or "
            "payments that were received elsewhere. Ask for one refund for each of `meta.parts`, in this order, "
            "with its amount."
        )
    meta = {"refundableCents": most_cents, "parts": [part.as_meta() for part in left[:PARTS_SHOWN]]}
    raise EngineError(AMOUNT_EXCEEDS_PAID, detail, meta=meta)


def _check_count(ledger: Sequence[PaymentEntry], part: Part, amount_cents: int, *, failed_count: int) -> None:
    """Refuse a partial refund of an invoice that already has MAX_REFUNDS refunds, including failed refunds.

    A refund of all that is left of the part is allowed. The number is limited because each event about a refund reads
    all entries of the invoice's ledger (D-178).
    """
    count = failed_count + sum(entry.kind is EntryKind.REFUND for entry in ledger)
    if count >= MAX_REFUNDS and amount_cents < part.left_cents:
        counted = f"{count} refunds" + (f", of which {failed_count} failed" if failed_count else "")
        detail = (
            f"The invoice has {counted}; refund all {part.left_cents} cents that are left of the payment."
        )
        meta = {"limit": MAX_REFUNDS, "refundableCents": part.left_cents}
        raise EngineError(TOO_MANY_REFUNDS, detail, meta=meta)
