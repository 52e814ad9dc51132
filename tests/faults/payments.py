"""Compare the engine's ledger with the providers' ledgers and with the payments that merchants recorded (D-50)."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

KINDS = ("payment", "refund", "dispute_opened", "dispute_won", "dispute_lost")
"""The kinds of entries. Entries with the same instant are sorted in this order."""
_SIGN = {"payment": 1, "refund": -1, "dispute_opened": -1, "dispute_won": 1, "dispute_lost": 0}
OPEN = frozenset({"ready", "issued", "overdue"})
"""States of an invoice in which payments count towards its total."""

ENDS: Mapping[str, frozenset[str]] = {
    "awaiting_value": frozenset({"invoice.held", "invoice.pricing_exhausted"}),
    "ready": frozenset({"invoice.issue_failed", "invoice.issue_delayed"}),
    "issued": frozenset({"invoice.charge_missing"}),
    "overdue": frozenset({"invoice.overdue", "invoice.partially_paid", "invoice.charge_missing"}),
}
"""The states in which the engine may wait for a person, each with the events that say what the person must do.

What the person does depends on the state. In `awaiting_value`, the person enters a value. In `ready`, the person checks
the gateway and retries issuance. In `issued` and `overdue`, the person reissues the invoice or records a payment. In
each of these states, the person can also cancel the invoice. An invoice may end only in one of these states, or in
`paid` or `canceled`.
"""
_CONTINUES = frozenset({"invoice.created", "invoice.ready", "invoice.issued", "invoice.reissued"})
"""Events after which the engine continues by itself."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A payment, a refund, or a step of a dispute.

    `charge_id` is the provider's id of the charge. It is None for payments that a merchant recorded by hand, and for
    refunds of such payments.
    """

    invoice_id: str
    charge_id: str | None
    kind: str
    reference: str
    amount_cents: int
    occurred_at: datetime

    def __str__(self) -> str:
        return f"{self.kind} {self.reference} of {self.amount_cents} cents"


@dataclass(slots=True)
class ReceivedByHand:
    """A payment that a merchant asked the engine to record.

    While `is_acknowledged` is false, the engine may or may not have recorded the payment. Before the engine records a
    payment that covers the total, the gateway must cancel the invoice's charge. If the gateway's answer is lost, the
    engine records the payment when a poll finds the charge canceled (D-52).
    """

    account_id: str
    entry: Entry
    is_acknowledged: bool = False


@dataclass(slots=True)
class AskedRefund:
    """A refund that a merchant asked for. `statuses` has the HTTP status of the final answer to each request, including
    repeats. Each refund has a reason of its own, by which the run recognizes it.
    """

    invoice_id: str
    reason: str
    amount_cents: int | None
    statuses: list[int] = field(default_factory=list[int])


@dataclass(frozen=True, slots=True)
class MadeRefund:
    """A refund at the provider (`pending`, `done` or `failed`), or a recorded refund of manual payments."""

    invoice_id: str
    amount_cents: int
    state: str


def is_manual_refund(entry: Entry) -> bool:
    """Return whether an entry is a refund of manual payments. The entry's `reference` is the refund's reason."""
    return entry.kind == "refund" and entry.charge_id is None


def refund_errors(
    asked: AskedRefund, made: Sequence[MadeRefund], *, stage: str | None, complete: bool
) -> Iterator[str]:
    """Yield what is wrong with a refund (D-53, D-151).

    `stage` is the refund's stage in the engine, or None if the engine stored no refund. If `complete` is true, the
    engine must have finished the refund. A refusal counts only if it is the newest answer, because a repeat of the
    refused request may succeed.
    """
    live = [each for each in made if each.state != "failed"]
    is_done = any(each.state == "done" for each in live)
    if len(live) > 1:
        yield f"made {len(live)} times"
    for each in live:
        if each.invoice_id != asked.invoice_id or asked.amount_cents not in {None, each.amount_cents}:
            yield f"{each.amount_cents} cents of invoice {each.invoice_id} were refunded instead"
    if made and stage is None:
        yield "made, but the engine does not know it"
    if stage == "done" and not is_done:
        yield "done in the engine, but not made"
    elif complete and stage not in {None, "done" if is_done else "failed"}:
        yield f"{stage} in the engine, but {'made' if is_done else 'not made'}"
    if 200 in asked.statuses and not is_done:
        yield "answered 200, but not made"
    if live and asked.statuses and asked.statuses[-1] >= 400:
        yield f"answered {asked.statuses}, but made"


def held_after_each(entries: Iterable[Entry]) -> Iterator[int]:
    """Yield how many cents the merchant holds after each entry, in the order in which the entries happened.

    If the refunds and disputes of a provider's charge exceed its payments, the charge counts as 0 (D-150).
    """
    kept = Counter[str | None]()
    for entry in sorted(entries, key=lambda each: (each.occurred_at, KINDS.index(each.kind), each.reference)):
        kept[entry.charge_id] += _SIGN[entry.kind] * entry.amount_cents
        yield sum(cents if charge_id is None else max(cents, 0) for charge_id, cents in kept.items())


def sum_of(entries: Iterable[Entry], kind: str) -> int:
    return sum(entry.amount_cents for entry in entries if entry.kind == kind)


def differences(
    ours: Iterable[Entry], *, required: Iterable[Entry], optional: Iterable[Entry] = ()
) -> Sequence[str]:
    """Return one sentence for each entry that the engine lost, counted twice, changed or invented.

    The engine may have recorded each `optional` entry once, but need not have recorded it.
    """
    recorded, wanted = Counter(ours), Counter(required)
    extra, lost = recorded - wanted - Counter(optional), wanted - recorded
    return [
        *(f"recorded, but not in the provider's ledger, or counted twice: {entry}" for entry in extra),
        *(f"lost: {entry}" for entry in lost),
    ]


def unpaid_or_uncovered(
    true: Collection[Entry], *, status: str, total_cents: int | None, complete: bool
) -> str | None:
    """Return what is wrong with an invoice's state, judged by the entries `true` (D-50, D-150).

    The payments of a paid invoice must cover the total. If `complete` is true, the engine knows all entries, so an
    invoice must not be open if they have ever covered the total.
    """
    if not total_cents:
        return None
    if status == "paid" and sum_of(true, "payment") < total_cents:
        return "paid, but the payments do not cover the total"
    if complete and status in OPEN and any(held >= total_cents for held in held_after_each(true)):
        return f"{status}, although the payments cover the total"
    return None


def may_be_charged(
    amount_cents: int, *, total_cents: int, theirs: Collection[Entry], by_hand: Collection[Entry]
) -> bool:
    """Return whether the engine could, at some time, compute `amount_cents` as the invoice's open amount.

    The open amount is the total minus the money that the merchant holds. The engine learns of the entries of a charge
    from the oldest to the newest. It learns of different charges and of manual payments in any order.
    """
    ledgers = defaultdict[str, list[Entry]](list)
    for entry in (*theirs, *by_hand):
        ledgers[entry.charge_id or entry.reference].append(entry)
    held = {0}
    for ledger in ledgers.values():
        held = {one + other for one in held for other in (0, *held_after_each(ledger))}
    return total_cents - amount_cents in held


def unreported(
    ours: Collection[Entry], ids: Mapping[Entry, str], *, status: str, named: Collection[str]
) -> Sequence[str]:
    """Return messages about payments that no event reports. `named` has the ids of the entries that events name.

    `invoice.paid` names no entry, so no event needs to name the payment that covered the total.
    """
    unnamed = [entry for entry in ours if entry.kind == "payment" and ids[entry] not in named]
    if len(unnamed) <= (status == "paid"):
        return []
    return [f"no event reports {entry}" for entry in unnamed]


def says_what_to_do(status: str, types: Sequence[str]) -> bool:
    """Return whether the newest event about an invoice's progress says what a person must do.

    `types` are the types of all events of the invoice, oldest first.
    """
    wanted = ENDS.get(status, frozenset())
    newest = next((each for each in reversed(types) if each in wanted | _CONTINUES), None)
    return newest in wanted
