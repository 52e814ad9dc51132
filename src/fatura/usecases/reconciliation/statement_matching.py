"""Decide which charge each credit of a bank statement pays, and whether the payment is new (D-257).

When in doubt, a person decides. A credit is `duplicate` only if it is certainly a stored payment, and `new` only if it
is certainly none.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import date
from uuid import UUID

from fatura.domain.bank_statement import Credit, is_end_to_end_id, same_id
from fatura.domain.calendar import local_date
from fatura.domain.payments import EntryKind, PaymentEntry
from fatura.domain.statement_payments import (
    ChargePayments,
    ImportedPayment,
    StatementPayment,
    may_be_one,
)
from fatura.gateways.port import Charge, ChargeState
from fatura.views.statements import CreditResult, MatchedBy


@dataclass(frozen=True, slots=True)
class ManualPayments:
    """Manual payments by their references (`same_id`), and the sum of each invoice's manual payments.

    The sums include payments that are stored as requests (D-171).
    """

    by_reference: Mapping[str, Sequence[PaymentEntry]]
    by_invoice: Mapping[UUID, int]

    @classmethod
    def of(cls, referenced: Iterable[PaymentEntry], by_invoice: Mapping[UUID, int]) -> "ManualPayments":
        by_reference = defaultdict[str, list[PaymentEntry]](list)
        for entry in referenced:
            assert entry.reference is not None, "the entries were found by their references"
            by_reference[same_id(entry.reference)].append(entry)
        return cls(by_reference, by_invoice)


@dataclass(frozen=True, slots=True)
class PayersCharge:
    """A charge of an open invoice of a payer, of any connection."""

    charge_id: str
    amount_cents: int
    is_open: bool


@dataclass(frozen=True, slots=True)
class PayersPayment:
    """A stored payment of a payer.

    `occurred_on` of a manual payment is the day of the payment or the day of its recording, whichever is later.
    """

    payer: str
    amount_cents: int
    occurred_on: date
    reference: str | None = None
    charge_id: str | None = None
    by_hand: bool = False

    def may_be(self, credit: Credit) -> bool:
        """Return whether this payment and `credit`, which have the same payer and amount, can be the same payment.

        Both must have the same day. But a manual payment can be some days later, because the merchant may have recorded
        it later. Two different end-to-end ids belong to two payments.
        """
        if self.occurred_on != credit.occurred_on and not (
            self.by_hand and self.occurred_on > credit.occurred_on
        ):
            return False
        both = credit.has_end_to_end_id and self.reference is not None and is_end_to_end_id(self.reference)
        return not both or same_id(self.reference or "") == credit.same_id


@dataclass(frozen=True, slots=True)
class Payers:
    """The customers whose tax documents or charges the credits name. The document identifies a payer.

    `charges` has the charges of each customer whose document a credit has, by document. `of_invoices` has the payer of
    each invoice. `payments` are the stored payments of the payers.
    """

    charges: Mapping[str, Sequence[PayersCharge]]
    of_invoices: Mapping[UUID, str]
    payments: Sequence[PayersPayment]


@dataclass(frozen=True, slots=True)
class Known:
    """The stored data before the import.

    `imported` has the earlier imported payments whose id of the bank occurs in this statement, by `same_id`. `charges`
    has the connection's charges that the credits may pay, by id. `invoices` has the invoice of each charge, by the
    charge's id, and includes charges of other connections.
    """

    imported: Mapping[str, ImportedPayment]
    charges: Mapping[str, Charge]
    invoices: Mapping[str, UUID]
    payers: Payers
    manual: ManualPayments

    def named_by(self, credit: Credit) -> Sequence[str]:
        """Return the ids of the charges whose txid occurs as a word in the credit's texts."""
        return sorted(credit.words & self.invoices.keys())


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision about a credit. `charge` is the credit's charge, if known; `payment` is set if the credit is new."""

    credit: Credit
    result: CreditResult
    matched_by: MatchedBy | None = None
    charge: Charge | None = None
    payment: StatementPayment | None = None


def decide(read: Sequence[Credit], known: Known, *, confirmed: Collection[str]) -> Sequence[Decided]:
    """Return a decision about each credit, in the order in which they were made, which is also that of the import.

    Credits that name a charge are decided first, because they are certain.
    """
    matching = _Matching(known, frozenset(map(same_id, confirmed)))
    for payment in _stored(known):
        matching.of_payers[payment.payer, payment.amount_cents].append(payment)
    certain_first = sorted(read, key=lambda credit: not known.named_by(credit))
    return [matching.decide(credit) for credit in certain_first]


def _stored(known: Known) -> Iterator[PayersPayment]:
    """Yield the stored payments of the payers, including imported payments that no poll has recorded yet."""
    yield from known.payers.payments
    for charge in known.charges.values():
        payer = known.payers.of_invoices.get(charge.invoice_id)
        if payer is None:
            continue
        for entry in charge.entries:
            if entry.kind is EntryKind.PAYMENT:
                day = local_date(entry.occurred_at)
                yield PayersPayment(payer, entry.amount_cents, day, entry.reference, charge.charge_id)


def is_equal(payment: StatementPayment, stored: ImportedPayment) -> bool:
    """Return whether a stored payment with the same id of the bank also has the same charge, amount and day."""
    return (payment.charge_id, payment.amount_cents, local_date(payment.occurred_at)) == (
        stored.charge_id,
        stored.amount_cents,
        stored.occurred_on,
    )


@dataclass(slots=True)
class _Matching:
    """Decides about the credits, one after the other.

    `new` has the payments of this statement that will be imported, by the bank's id. `of_payers` has the stored
    payments and the payments in `new`, by payer and amount. `decided` has the bank's ids of the credits of this
    statement that are `new` or `duplicate`. All ids are in the form of `same_id`.
    """

    known: Known
    confirmed: frozenset[str]
    new: dict[str, ImportedPayment] = field(default_factory=dict[str, ImportedPayment])
    of_payers: defaultdict[tuple[str, int], list[PayersPayment]] = field(
        default_factory=lambda: defaultdict[tuple[str, int], list[PayersPayment]](list)
    )
    decided: set[str] = field(default_factory=set[str])
    paid: dict[str, ChargePayments] = field(default_factory=dict[str, ChargePayments])

    def decide(self, credit: Credit) -> Decided:
        named = self.known.named_by(credit)
        decided = (
            self._as_imported(credit, named) or self._as_manual(credit, named) or self._new(credit, named)
        )
        if decided.result in {CreditResult.NEW, CreditResult.DUPLICATE}:
            self.decided.add(credit.same_id)
        return decided

    def _as_imported(self, credit: Credit, named: Sequence[str]) -> Decided | None:
        """Decide about a credit if an imported payment has the same id of the bank. Otherwise, return None."""
        earlier = self.known.imported.get(credit.same_id) or self.new.get(credit.same_id)
        if earlier is None:
            return None
        if named:
            names_it: bool | None = earlier.charge_id in named
        else:
            names_it = self._names_payer(credit, {earlier.invoice_id})
        is_same = (
            self._may_be_stored(credit)
            and (names_it or (names_it is None and credit.has_end_to_end_id))
            and (earlier.amount_cents, earlier.occurred_on) == (credit.amount_cents, credit.occurred_on)
        )
        result = CreditResult.DUPLICATE if is_same else CreditResult.ID_REUSED
        return Decided(credit, result, charge=self.known.charges.get(earlier.charge_id))

    def _as_manual(self, credit: Credit, named: Sequence[str]) -> Decided | None:
        """Decide about a credit if its id of the bank is the reference of manual payments. Otherwise, return None.

        Also return None if the credit is confirmed and is not certainly one of these payments.
        """
        recorded = self.known.manual.by_reference.get(credit.same_id)
        if recorded is None:
            return None
        invoice_ids = {entry.invoice_id for entry in recorded}
        if named:
            names_them: bool | None = not invoice_ids.isdisjoint(self.known.invoices[each] for each in named)
        else:
            names_them = self._names_payer(credit, invoice_ids)
        amounts_cents = [entry.amount_cents for entry in recorded]
        days = {local_date(entry.occurred_at) for entry in recorded}
        if (
            self._may_be_stored(credit)
            and names_them is not False
            and (credit.has_end_to_end_id or credit.occurred_on in days)
            and credit.amount_cents in {*amounts_cents, sum(amounts_cents)}
        ):
            return Decided(credit, CreditResult.DUPLICATE)
        return None if credit.same_id in self.confirmed else Decided(credit, CreditResult.SIMILAR)

    def _may_be_stored(self, credit: Credit) -> bool:
        """Return whether a stored payment with the credit's id can be this credit.

        An end-to-end id is unique. The bank may give any other id to several credits. So return False if the import has
        already decided that another credit of the statement with this id is `new` or `duplicate`.
        """
        return credit.has_end_to_end_id or credit.same_id not in self.decided

    def _names_payer(self, credit: Credit, invoice_ids: AbstractSet[UUID]) -> bool | None:
        """Return whether a credit has the tax document of the payer of one of these invoices.

        Return None if the credit has no tax document of a customer.
        """
        named = [document for document in credit.documents if document in self.known.payers.charges]
        if not named:
            return None
        return any(self.known.payers.of_invoices.get(each) in named for each in invoice_ids)

    def _new(self, credit: Credit, named: Sequence[str]) -> Decided:
        """Decide about a credit whose id of the bank is unknown.

        A credit that names only charges of other connections is UNMATCHED.
        """
        own = [self.known.charges[each] for each in named if each in self.known.charges]
        if own:
            if len(named) > 1:
                return Decided(credit, CreditResult.AMBIGUOUS)
            return self._add(credit, own[0], MatchedBy.TXID)
        return Decided(credit, CreditResult.UNMATCHED) if named else self._by_payer(credit)

    def _by_payer(self, credit: Credit) -> Decided:
        """Decide about a credit that names no charge, by the payer's tax document.

        The credit pays the only open charge of the payer with the same amount. If there is no such charge, look for a
        charge that has a payment of the same payer, amount and day: the credit may be this payment. A charge that is
        newer than the credit does not count.
        """
        charges = {
            each.charge_id
            for document in credit.documents
            for each in self.known.payers.charges.get(document, ())
            if each.is_open and credit.amount_cents in self._open_amounts(each)
        }
        if len(charges) > 1:
            return Decided(credit, CreditResult.AMBIGUOUS)
        if not charges:
            charges = {
                each.charge_id
                for document in credit.documents
                for each in self.of_payers.get((document, credit.amount_cents), ())
                if each.occurred_on == credit.occurred_on and each.charge_id is not None
            }
        for charge_id in sorted(charges):
            charge = self.known.charges.get(charge_id)
            if charge is None or charge.created_at is None or charge.state is ChargeState.CANCELED:
                continue
            if credit.occurred_on >= local_date(charge.created_at):
                return self._add(credit, charge, MatchedBy.DOCUMENT)
        return Decided(credit, CreditResult.UNMATCHED)

    def _open_amounts(self, open_charge: PayersCharge) -> AbstractSet[int]:
        """Return the two amounts that a payer may pay for a charge: its whole amount, and its unpaid part."""
        charge = self.known.charges.get(open_charge.charge_id)
        if charge is None:
            return {open_charge.amount_cents}
        by_hand_cents = self.known.manual.by_invoice.get(charge.invoice_id, 0)
        paid_cents = self._payments_of(charge).paid_cents + by_hand_cents
        return {charge.amount_cents, charge.amount_cents - paid_cents}

    def _add(self, credit: Credit, charge: Charge, matched_by: MatchedBy) -> Decided:
        payment = StatementPayment(
            bank_id=credit.bank_id,
            charge_id=charge.charge_id,
            amount_cents=credit.amount_cents,
            occurred_at=credit.occurred_at,
            is_confirmed=credit.same_id in self.confirmed,
            is_guess=matched_by is MatchedBy.DOCUMENT,
        )
        stored = self._payments_of(charge)
        if stored.may_have(payment) or (not payment.is_confirmed and self._may_have(credit, charge, payment)):
            return Decided(credit, CreditResult.SIMILAR, matched_by, charge)
        stored.add(payment.amount_cents, payment.occurred_at)
        self._remember(credit, charge)
        return Decided(credit, CreditResult.NEW, matched_by, charge, payment)

    def _remember(self, credit: Credit, charge: Charge) -> None:
        self.new[credit.same_id] = ImportedPayment(
            bank_id=credit.bank_id,
            charge_id=charge.charge_id,
            invoice_id=charge.invoice_id,
            amount_cents=credit.amount_cents,
            occurred_on=credit.occurred_on,
        )
        payer = self.known.payers.of_invoices.get(charge.invoice_id)
        if payer is not None:
            amount_cents, day = credit.amount_cents, credit.occurred_on
            added = PayersPayment(payer, amount_cents, day, credit.bank_id, charge.charge_id)
            self.of_payers[payer, amount_cents].append(added)

    def _may_have(self, credit: Credit, charge: Charge, payment: StatementPayment) -> bool:
        """Return whether the payment may be stored already: by hand, or for another charge of the payer.

        Two credits of one statement that both name their charge are certainly two payments.
        """
        if charge.invoice_id in self.known.manual.by_invoice:
            return True
        payer = self.known.payers.of_invoices.get(charge.invoice_id)
        if payer is None:
            return False
        alike = self._alike(payer, credit)
        if payment.is_guess:
            return bool(alike) or self._has_near(payer, credit)
        return any(not each.by_hand and same_id(each.reference or "") not in self.new for each in alike)

    def _has_near(self, payer: str, credit: Credit) -> bool:
        """Return whether a stored payment of the payer may be the credit, although it has another day.

        A payment that is another credit of this statement does not count.
        """
        return any(
            may_be_one(
                credit.bank_id, credit.occurred_on, other_id=each.reference, other_day=each.occurred_on
            )
            for each in self.of_payers.get((payer, credit.amount_cents), ())
            if same_id(each.reference or "") not in self.decided
        )

    def _alike(self, payer: str, credit: Credit) -> Sequence[PayersPayment]:
        found = self.of_payers.get((payer, credit.amount_cents), ())
        return [each for each in found if each.may_be(credit)]

    def _payments_of(self, charge: Charge) -> ChargePayments:
        found = self.paid.get(charge.charge_id)
        if found is None:
            payments = [each for each in charge.entries if each.kind is EntryKind.PAYMENT]
            found = ChargePayments.of(
                charge.amount_cents,
                [(each.amount_cents, each.occurred_at, each.reference) for each in payments],
                is_open=charge.is_payable,
            )
            self.paid[charge.charge_id] = found
        return found
