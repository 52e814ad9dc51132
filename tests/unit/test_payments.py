"""The ledger's rules. Their results do not depend on the order in which the engine records the entries."""

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from fatura.domain.invoice_states import ENTRY_FACTS, Fact, InvoiceStatus, decide
from fatura.domain.payments import (
    EntryKind,
    EntrySource,
    PaymentEntry,
    balance_of,
    balances,
    covering_entry,
    facts,
    open_cents,
)

AT = datetime(2034, 1, 1, tzinfo=UTC)
CONNECTION, INVOICE, CHARGE = uuid4(), uuid4(), uuid4()
K = EntryKind


def entry(
    kind: EntryKind, cents: int, minute: int, reference: str | None = None, *, charge: str = "ch"
) -> PaymentEntry:
    return PaymentEntry(
        payment_entry_id=uuid4(),
        invoice_id=INVOICE,
        charge_id=CHARGE,
        connection_id=CONNECTION,
        gateway_charge_id=charge,
        kind=kind,
        amount_cents=cents,
        fee_cents=0,
        currency="BRL",
        occurred_at=AT + timedelta(minutes=minute),
        source=EntrySource.GATEWAY,
        reference=reference or str(uuid4()),
        recorded_at=AT,
    )


@pytest.mark.parametrize(
    ("ledger", "held", "covered"),
    [
        ([], 0, None),
        ([(K.PAYMENT, 99)], 99, None),
        ([(K.PAYMENT, 100)], 100, 0),
        ([(K.PAYMENT, 60), (K.PAYMENT, 40)], 100, 1),
        ([(K.PAYMENT, 60), (K.REFUND, 60), (K.PAYMENT, 60)], 60, None),
        ([(K.PAYMENT, 100), (K.REFUND, 100)], 0, 0),
        ([(K.PAYMENT, 60), (K.DISPUTE_OPENED, 60), (K.PAYMENT, 40)], 40, None),
        ([(K.PAYMENT, 60), (K.DISPUTE_OPENED, 60), (K.PAYMENT, 40), (K.DISPUTE_WON, 60)], 100, 3),
        ([(K.PAYMENT, 60), (K.DISPUTE_OPENED, 60), (K.PAYMENT, 40), (K.DISPUTE_LOST, 60)], 40, None),
        ([(K.PAYMENT, 60), (K.REFUND, 60), (K.DISPUTE_OPENED, 60)], 0, None),
    ],
)
def test_an_invoice_is_covered_when_the_merchant_holds_its_total(
    ledger: list[tuple[EntryKind, int]], held: int, covered: int | None
) -> None:
    """[D-50, D-150]"""
    entries = [
        entry(kind, cents, minute, "dispute" if kind.startswith("dispute") else None)
        for minute, (kind, cents) in enumerate(ledger)
    ]
    random.Random(1).shuffle(shuffled := [*entries])  # noqa: S311 - not for secrets
    assert balance_of(shuffled).held_cents == held
    assert covering_entry(shuffled, total_cents=100) is (None if covered is None else entries[covered])
    assert open_cents(shuffled, total_cents=100) == 100 - held


@pytest.mark.parametrize(("won", "held"), [(False, [60, 0, 0, 100]), (True, [60, 0, 0, 100, 100])])
def test_a_charge_gives_back_at_most_its_payments(*, won: bool, held: list[int]) -> None:
    """A payment is refunded and also disputed, but is given back once. Another charge then pays the total. [D-150]"""
    entries = [
        entry(K.PAYMENT, 60, 0),
        entry(K.REFUND, 60, 1),
        entry(K.DISPUTE_OPENED, 60, 2, "dispute"),
        entry(K.PAYMENT, 100, 3, charge="next"),
        *([entry(K.DISPUTE_WON, 60, 4, "dispute")] if won else []),
    ]
    assert [balance.held_cents for _, balance in balances(entries)] == held
    assert covering_entry(entries, total_cents=100) is entries[3]
    assert open_cents(entries, total_cents=100) == 0


@dataclass
class Engine:
    """Applies facts to an invoice by the table of states, as `invoice_moves` does."""

    total_cents: int
    status: InvoiceStatus = InvoiceStatus.ISSUED
    ledger: dict[tuple[str, str], PaymentEntry] = field(default_factory=dict)
    emitted: list[tuple[str, UUID]] = field(default_factory=list)
    paid_at: datetime | None = None
    refunded: bool = False
    disputed: bool = False

    def record(self, answer: list[PaymentEntry]) -> None:
        """Record the new entries of a gateway's answer."""
        new = [each for each in answer if (each.kind, each.reference) not in self.ledger]
        for each in new:
            self.ledger[each.kind, str(each.reference)] = each
        found = facts(
            list(self.ledger.values()),
            new={each.payment_entry_id for each in new},
            unexpected=(),
            status=self.status,
            total_cents=self.total_cents,
        )
        for each in found:
            assert each.fact in ENTRY_FACTS
            transition = decide(self.status, each.fact, total_cents=self.total_cents)
            assert transition is not None, f"{each.fact} is dropped in {self.status}"
            if transition.to is not self.status:
                self.paid_at = each.entry.occurred_at
            self.status = transition.to
            self.refunded |= "refunded_at" in transition.stamps
            self.disputed = (self.disputed or "disputed_at" in transition.stamps) and not transition.clears
            self.emitted.append((each.fact, each.entry.payment_entry_id))


def history(rng: random.Random, total_cents: int) -> list[PaymentEntry]:
    """Return a random ledger that a provider could have."""
    made: list[PaymentEntry] = []
    for minute in range(rng.randrange(1, 9)):
        balance = balance_of(made)
        closed = {each.reference for each in made if each.kind in {K.DISPUTE_WON, K.DISPUTE_LOST}}
        opened = [each for each in made if each.kind is K.DISPUTE_OPENED and each.reference not in closed]
        kind = rng.choice((K.PAYMENT, K.PAYMENT, K.REFUND, K.DISPUTE_OPENED, K.DISPUTE_WON, K.DISPUTE_LOST))
        if kind is K.PAYMENT:
            made.append(
                entry(kind, rng.choice((total_cents, rng.randrange(1, total_cents + 5))), minute // 2)
            )
        elif kind in {K.DISPUTE_WON, K.DISPUTE_LOST} and opened:
            made.append(entry(kind, opened[0].amount_cents, minute // 2, opened[0].reference))
        elif kind in {K.REFUND, K.DISPUTE_OPENED} and balance.held_cents > 0:
            made.append(entry(kind, rng.randrange(1, balance.held_cents + 1), minute // 2))
    return made


@pytest.mark.parametrize("seed", range(60))
def test_answers_may_come_twice_late_and_in_any_order(seed: int) -> None:
    """The engine's ledger equals the provider's.

    The invoice is paid if and only if the payments cover its total. [D-50]
    """
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    for _ in range(40):
        total_cents = rng.randrange(1, 300)
        theirs = history(rng, total_cents)
        answers = [theirs[: rng.randrange(len(theirs) + 1)] for _ in range(5)] + [theirs]
        rng.shuffle(answers)
        engine = Engine(total_cents, status=rng.choice((InvoiceStatus.ISSUED, InvoiceStatus.OVERDUE)))
        before = engine.status

        for answer in answers:
            engine.record([replace(each, payment_entry_id=uuid4()) for each in answer])

        mine, balance = list(engine.ledger.values()), balance_of(theirs)
        assert balance_of(mine) == balance
        covering = covering_entry(theirs, total_cents=total_cents)
        assert engine.status is (before if covering is None else InvoiceStatus.PAID)
        assert engine.disputed is (balance.disputed_cents > 0)
        if 0 < balance.paid_cents <= balance.refunded_cents:
            assert engine.refunded
        payments = {Fact.PAID_IN_PART, Fact.PAID_IN_FULL, Fact.OVERPAID}
        for each in mine:
            told = [fact for fact, entry_id in engine.emitted if entry_id == each.payment_entry_id]
            others = [fact for fact in told if fact not in payments]
            assert len(others) == (0 if each.kind is K.PAYMENT else 1), (each.kind, told)
            assert len(told) == len(set(told))
            assert told, "an entry is not reported"


@pytest.mark.parametrize(("late", "told"), [(100, Fact.PAID_IN_FULL), (50, Fact.PAID_IN_PART)])
def test_an_earlier_payment_that_is_recorded_later_makes_the_invoice_overpaid(late: int, told: Fact) -> None:
    """[D-50]"""
    known, earlier = entry(K.PAYMENT, 70, 1), entry(K.PAYMENT, late, 0)
    engine = Engine(100)
    engine.record([known])
    engine.record([earlier])
    assert engine.status is InvoiceStatus.PAID
    assert [fact for fact, entry_id in engine.emitted if entry_id == earlier.payment_entry_id] == [
        told,
        Fact.OVERPAID,
    ]


@pytest.mark.parametrize(
    ("ledger", "overpaid"),
    [
        ([(K.PAYMENT, 40), (K.REFUND, 40), (K.PAYMENT, 100)], []),
        ([(K.PAYMENT, 40), (K.REFUND, 40), (K.PAYMENT, 101)], [2]),
        ([(K.PAYMENT, 40), (K.REFUND, 30), (K.PAYMENT, 100)], [2]),
        ([(K.PAYMENT, 100), (K.REFUND, 100), (K.PAYMENT, 100)], [2]),
        ([(K.PAYMENT, 40), (K.REFUND, 40), (K.PAYMENT, 100), (K.REFUND, 100), (K.PAYMENT, 1)], [4]),
    ],
)
def test_what_was_refunded_before_the_total_was_covered_is_not_overpaid(
    ledger: list[tuple[EntryKind, int]], overpaid: list[int]
) -> None:
    """[D-50]"""
    entries = [entry(kind, cents, minute) for minute, (kind, cents) in enumerate(ledger)]
    new = {each.payment_entry_id for each in entries}
    found = facts(entries, new=new, unexpected=(), status=InvoiceStatus.ISSUED, total_cents=100)
    assert [entries.index(each.entry) for each in found if each.fact is Fact.OVERPAID] == overpaid


@pytest.mark.parametrize(("refunded", "is_overpaid"), [(29, True), (30, False)])
def test_an_invoice_that_was_paid_before_its_values_may_be_overpaid(
    *, refunded: int, is_overpaid: bool
) -> None:
    """Money that was refunded before the total was known does not count as overpaid. [D-50]"""
    payment = entry(K.PAYMENT, 100, 0)
    entries = [payment, entry(K.REFUND, refunded, 1)]
    found = facts(entries, new=(), unexpected=(), status=InvoiceStatus.READY, total_cents=70)
    assert [(each.fact, each.entry) for each in found] == [
        (Fact.PAID_IN_FULL, payment),
        *([(Fact.OVERPAID, payment)] if is_overpaid else []),
    ]


def test_a_payment_of_a_closed_invoice_is_unexpected() -> None:
    """[D-50, D-27 payment unexpected]"""
    paid = entry(K.PAYMENT, 100, 0)
    for status in (InvoiceStatus.CANCELED, InvoiceStatus.DRAFT, InvoiceStatus.AWAITING_VALUE):
        found = facts([paid], new={paid.payment_entry_id}, unexpected=(), status=status, total_cents=None)
        assert [each.fact for each in found] == [Fact.PAYMENT_UNEXPECTED]
