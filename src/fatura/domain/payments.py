"""The ledger of an invoice: its payments, refunds and disputes, and the facts that follow from new entries (D-50)."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from fatura.domain.invoice_states import Fact, InvoiceStatus


class EntryKind(StrEnum):
    """What an entry of the ledger records."""

    PAYMENT = "payment"
    REFUND = "refund"
    DISPUTE_OPENED = "dispute_opened"
    DISPUTE_WON = "dispute_won"
    DISPUTE_LOST = "dispute_lost"


class EntrySource(StrEnum):
    """Who reported an entry: the gateway, or a person who received or returned the money elsewhere."""

    GATEWAY = "gateway"
    MANUAL = "manual"


class ManualMethod(StrEnum):
    """How money was received without the gateway (D-52)."""

    CASH = "cash"
    TRANSFER = "transfer"
    PIX = "pix"
    CARD = "card"
    CHECK = "check"
    OTHER = "other"


SHOWN_ENTRIES = 100
"""`GET /v1/invoices/{invoiceId}` and the events of an invoice show only this many of its newest entries (D-178)."""
MAX_MANUAL_PAYMENTS = 100
"""Maximum number of manual payments of an invoice. A payment of the whole open amount is exempt (D-178)."""

_ORDER = {kind: place for place, kind in enumerate(EntryKind)}
"""The order of entries that happened at the same instant."""
_OPEN = frozenset({InvoiceStatus.READY, InvoiceStatus.ISSUED, InvoiceStatus.OVERDUE})
"""States in which a payment counts towards the total."""
_CLOSING = frozenset({EntryKind.DISPUTE_WON, EntryKind.DISPUTE_LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentEntry:
    """One entry of the ledger; it never changes.

    If the gateway reported the entry, `reference` is the provider's id of the entry, unique for each connection and
    kind. The entries of one dispute have the same reference. `gateway_charge_id` is the provider's id of the charge.
    `charge_id` is None for manual entries, and for entries of a second charge, which is not stored as an InvoiceCharge.
    """

    payment_entry_id: UUID
    invoice_id: UUID
    kind: EntryKind
    amount_cents: int
    fee_cents: int
    currency: str
    occurred_at: datetime
    source: EntrySource
    recorded_at: datetime
    charge_id: UUID | None = None
    connection_id: UUID | None = None
    gateway_charge_id: str | None = None
    reference: str | None = None
    method: ManualMethod | None = None
    note: str | None = None

    @property
    def polled_from(self) -> datetime:
        """Return the instant from which the delays of the polls after this payment are counted (D-55).

        Normally, this is `occurred_at`. It is `recorded_at` if the entry was recorded more than a day later, or if
        `occurred_at` is after `recorded_at` because the gateway's clock is ahead.
        """
        in_time = self.recorded_at - timedelta(days=1) <= self.occurred_at <= self.recorded_at
        return self.occurred_at if in_time else self.recorded_at


@dataclass(slots=True)
class Balance:
    """The sums of a ledger.

    `disputed_cents` is the money in disputes that are open or lost. `held_cents` is what the merchant has left of the
    payments. For this sum, a charge whose refunds and disputes exceed its payments counts as 0 (D-150).
    """

    paid_cents: int = 0
    refunded_cents: int = 0
    disputed_cents: int = 0
    held_cents: int = 0


@dataclass(frozen=True, slots=True)
class EntryFact:
    """A fact, and the entry that caused it. For PAID_IN_FULL, the instant of the entry becomes `paidAt`."""

    fact: Fact
    entry: PaymentEntry


def in_order(entries: Sequence[PaymentEntry]) -> Sequence[PaymentEntry]:
    """Return entries in the order in which they happened. They can be recorded in another order."""
    return sorted(
        entries,
        key=lambda each: (each.occurred_at, _ORDER[each.kind], each.reference or "", each.payment_entry_id),
    )


def balances(entries: Sequence[PaymentEntry]) -> Iterator[tuple[PaymentEntry, Balance]]:
    """Yield each entry in order, with the balance after it. Each step changes and yields the same Balance object."""
    balance = Balance()
    open_disputes: dict[tuple[UUID | None, str | None], int] = {}
    # For each charge, its payments minus its refunds and disputes.
    kept: dict[tuple[UUID | None, str | None], int] = {}
    for entry in in_order(entries):
        dispute = (entry.connection_id, entry.reference)
        charge = (entry.connection_id, entry.gateway_charge_id)
        before_cents = kept.get(charge, 0)
        after_cents = before_cents
        match entry.kind:
            case EntryKind.PAYMENT:
                balance.paid_cents += entry.amount_cents
                after_cents += entry.amount_cents
            case EntryKind.REFUND:
                balance.refunded_cents += entry.amount_cents
                after_cents -= entry.amount_cents
            case EntryKind.DISPUTE_OPENED:
                open_disputes[dispute] = entry.amount_cents
                balance.disputed_cents += entry.amount_cents
                after_cents -= entry.amount_cents
            case EntryKind.DISPUTE_WON:
                won_cents = open_disputes.pop(dispute, 0)
                balance.disputed_cents -= won_cents
                after_cents += won_cents
            case EntryKind.DISPUTE_LOST:
                pass
        kept[charge] = after_cents
        balance.held_cents += max(after_cents, 0) - max(before_cents, 0)
        yield entry, balance


def balance_of(entries: Sequence[PaymentEntry]) -> Balance:
    after_each = [balance for _, balance in balances(entries)]
    return after_each[-1] if after_each else Balance()


def covering_entry(entries: Sequence[PaymentEntry], *, total_cents: int) -> PaymentEntry | None:
    """Return the first entry after which the merchant holds the total, or None (D-50)."""
    covered = (entry for entry, balance in balances(entries) if balance.held_cents >= total_cents)
    return next(covered, None)


def covers(entry: PaymentEntry, entries: Sequence[PaymentEntry], *, total_cents: int) -> bool:
    """Return whether a new entry covers the total. `entries` is the ledger without it, which never covered the total.

    The total is covered if `entry` pays at least the open amount. It is also covered if, with `entry` in the ledger,
    the merchant held the total at some time in the past, for example before a refund (D-150).
    """
    is_rest = entry.amount_cents >= open_cents(entries, total_cents=total_cents)
    return is_rest or covering_entry([*entries, entry], total_cents=total_cents) is not None


def open_cents(entries: Sequence[PaymentEntry], *, total_cents: int) -> int:
    """Return how much of the total is still to be paid: at least 0, at most the total (D-150)."""
    return max(total_cents - balance_of(entries).held_cents, 0)


def facts(
    entries: Sequence[PaymentEntry],
    *,
    new: Collection[UUID],
    unexpected: Collection[UUID],
    status: InvoiceStatus,
    total_cents: int | None,
) -> Sequence[EntryFact]:
    """Return the facts that follow from the new entries of a ledger, in order (D-50).

    `entries` is the whole ledger. `new` has the ids of its new entries. `unexpected` has the ids of payments of charges
    that are not the invoice's own. One payment can cause several facts, for example that it is unexpected, that it
    covers the total, and that the payments exceed the total. The result does not depend on the order in which entries
    were recorded. If the total has just become known, `new` can be empty.
    """
    is_open = status in _OPEN
    covering = None
    if is_open and total_cents is not None:
        covering = covering_entry(entries, total_cents=total_cents)
    final = balance_of(entries)
    last_refund = _last_new(entries, new, EntryKind.REFUND)
    is_paid = status is InvoiceStatus.PAID
    returned_cents = 0  # the sum of the refunds before the total was covered
    found: list[EntryFact] = []
    for entry, balance in balances(entries):
        is_new = entry.payment_entry_id in new
        is_payment = is_new and entry.kind is EntryKind.PAYMENT
        if is_payment and (entry.payment_entry_id in unexpected or not (is_open or is_paid)):
            found.append(EntryFact(Fact.PAYMENT_UNEXPECTED, entry))
        if entry is covering:
            found.append(EntryFact(Fact.PAID_IN_FULL, entry))
            is_open, is_paid, returned_cents = False, True, balance.refunded_cents
        if is_payment and is_open:
            found.append(EntryFact(Fact.PAID_IN_PART, entry))
        paid_cents = final.paid_cents if status is InvoiceStatus.PAID else balance.paid_cents
        if is_payment and is_paid and total_cents is not None and paid_cents - returned_cents > total_cents:
            found.append(EntryFact(Fact.OVERPAID, entry))
        if is_new and entry.kind is EntryKind.REFUND:
            is_full = entry is last_refund and final.refunded_cents >= final.paid_cents
            found.append(EntryFact(Fact.REFUNDED_IN_FULL if is_full else Fact.REFUNDED_IN_PART, entry))
        if is_new and entry.kind is EntryKind.DISPUTE_OPENED:
            found.append(EntryFact(Fact.DISPUTED, entry))
        if is_new and entry.kind in _CLOSING:
            is_over = balance.disputed_cents == 0
            found.append(EntryFact(Fact.DISPUTE_WON if is_over else Fact.DISPUTE_LOST, entry))
    paid_cents = final.paid_cents - (returned_cents if new else final.refunded_cents)
    return [*found, *_late_excess(entries, new, found, paid_cents=paid_cents, total_cents=total_cents)]


def _late_excess(
    entries: Sequence[PaymentEntry],
    new: Collection[UUID],
    found: Sequence[EntryFact],
    *,
    paid_cents: int,
    total_cents: int | None,
) -> Sequence[EntryFact]:
    """Return OVERPAID if the payments exceed a total that was just covered, but the loop in `facts` did not find this.

    The loop checks the sum only at new payments. It therefore does not find the excess in two cases: a new payment
    happened before payments that the ledger already had, or all payments were recorded before the total was known.
    """
    told = {each.fact for each in found}
    payment = _last_new(entries, new or [each.payment_entry_id for each in entries], EntryKind.PAYMENT)
    exceeds = total_cents is not None and paid_cents > total_cents
    if exceeds and payment is not None and Fact.PAID_IN_FULL in told and Fact.OVERPAID not in told:
        return [EntryFact(Fact.OVERPAID, payment)]
    return []


def _last_new(entries: Sequence[PaymentEntry], new: Collection[UUID], kind: EntryKind) -> PaymentEntry | None:
    found = [each for each in in_order(entries) if each.payment_entry_id in new and each.kind is kind]
    return found[-1] if found else None
