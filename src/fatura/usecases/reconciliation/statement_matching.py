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

from fatura.domain.bank_statement import Credit, is_end_to_end_id
from fatura.domain.calendar import local_date
from fatura.domain.payments import EntryKind, PaymentEntry
from fatura.domain.statement_payments import ChargePayments, ImportedPayment, StatementPayment
from fatura.gateways.port import Charge, ChargeState
from fatura.views.statements import CreditResult, MatchedBy


@dataclass(frozen=True, slots=True)
class ManualPayments:
    """Manual payments by their references, and the sum of each invoice's manual payments."""

    by_reference: Mapping[str, Sequence[PaymentEntry]]
    by_invoice: Mapping[UUID, int]

    @classmethod
    def of(cls, referenced: Iterable[PaymentEntry], of_invoices: Iterable[PaymentEntry]) -> "ManualPayments":
        by_reference, by_invoice = defaultdict[str, list[PaymentEntry]](list), defaultdict[UUID, int](int)
        for entry in referenced:
            assert entry.reference is not None, "the entries were found by their references"
            by_reference[entry.reference].append(entry)
        for entry in of_invoices:
            by_invoice[entry.invoice_id] += entry.amount_cents
        return cls(by_reference, by_invoice)


@dataclass(frozen=True, slots=True)
class PayersCharge:
    """A charge of an open invoice of a payer, of any connection."""

    charge_id: str
    amount_cents: int
    is_open: bool


@dataclass(frozen=True, slots=True)
class PayersPayment:
    """A stored payment of a payer. If it was recorded by hand, its day is the later one of its day and of that day."""

    payer: str
    amount_cents: int
    occurred_on: date
    reference: str | None = None
    charge_id: str | None = None
    by_hand: bool = False

    def may_be(self, credit: Credit) -> bool:
        """Return whether this may be a credit of the same payer and amount. Two end-to-end ids are two payments.

        A merchant may have recorded the credit by hand some days later.
        """
        if self.occurred_on != credit.occurred_on and not (
            self.by_hand and self.occurred_on > credit.occurred_on
        ):
            return False
        both = credit.has_end_to_end_id and self.reference is not None and is_end_to_end_id(self.reference)
        return not both or self.reference == credit.bank_id


@dataclass(frozen=True, slots=True)
class Payers:
    """The customers whose documents or charges the credits name. A payer is identified by the document.

    `charges` has the customers whose documents the credits have.
    """

    charges: Mapping[str, Sequence[PayersCharge]]
    of_invoices: Mapping[UUID, str]
    payments: Sequence[PayersPayment]


@dataclass(frozen=True, slots=True)
class Known:
    """What is stored before the import.

    `imported` are the account's imported payments, by the ids of the bank that the statement has. `charges` are the
    connection's charges that the credits may pay, by id. `invoices` are the invoices of the charges, by the charge's
    id, also of the charges of other connections.
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
    """What the import does with a credit. `charge` is set if the credit belongs to it, `payment` if it is new."""

    credit: Credit
    result: CreditResult
    matched_by: MatchedBy | None = None
    charge: Charge | None = None
    payment: StatementPayment | None = None


def decide(read: Sequence[Credit], known: Known, *, confirmed: Collection[str]) -> Sequence[Decided]:
    """Return a decision about each credit. Credits that name a charge are decided first, because they are certain."""
    matching = _Matching(known, frozenset(confirmed))
    for payment in _stored(known):
        matching.of_payers[payment.payer, payment.amount_cents].append(payment)
    certain_first = sorted(read, key=lambda credit: not known.named_by(credit))
    decided = {credit.number: matching.decide(credit) for credit in certain_first}
    return [decided[credit.number] for credit in read]


def _stored(known: Known) -> Iterator[PayersPayment]:
    """Yield the payments of the payers, also those that no poll has recorded yet."""
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
    """Decides about one credit after the other.

    `new` are the payments that it has decided to import, by the bank's id. `of_payers` are these and the stored
    payments, by payer and amount. `decided` has the ids of the credits of this statement that are `new` or `duplicate`.
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
            self.decided.add(credit.bank_id)
        return decided

    def _as_imported(self, credit: Credit, named: Sequence[str]) -> Decided | None:
        """Decide about a credit whose id of the bank an imported payment has."""
        earlier = self.known.imported.get(credit.bank_id) or self.new.get(credit.bank_id)
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
        """Decide about a credit whose id of the bank is the reference of manual payments, unless it is confirmed."""
        recorded = self.known.manual.by_reference.get(credit.bank_id)
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
        return None if credit.bank_id in self.confirmed else Decided(credit, CreditResult.SIMILAR)

    def _may_be_stored(self, credit: Credit) -> bool:
        """Return false for a repeated id in the statement: the bank may give it to several credits.

        Only an end-to-end id is certainly one payment.
        """
        return credit.has_end_to_end_id or credit.bank_id not in self.decided

    def _names_payer(self, credit: Credit, invoice_ids: AbstractSet[UUID]) -> bool | None:
        """Return whether a credit has the document of the payer of one of these invoices.

        Return None if it has no document of a customer.
        """
        named = [document for document in credit.documents if document in self.known.payers.charges]
        if not named:
            return None
        return any(self.known.payers.of_invoices.get(each) in named for each in invoice_ids)

    def _new(self, credit: Credit, named: Sequence[str]) -> Decided:
        """Decide about a credit whose id of the bank is unknown.

        A credit that names a charge of another connection pays nothing here.
        """
        own = [self.known.charges[each] for each in named if each in self.known.charges]
        if own:
            if len(named) > 1:
                return Decided(credit, CreditResult.AMBIGUOUS)
            return self._add(credit, own[0], MatchedBy.TXID)
        return Decided(credit, CreditResult.UNMATCHED) if named else self._by_payer(credit)

    def _by_payer(self, credit: Credit) -> Decided:
        """Find the only open charge of the credit's amount whose payer has a tax document that the credit names.

        The charge must not be newer than the credit. If there is none, a paid charge of this payer with a payment of
        the same amount and day may have this payment already.
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
        """Return the amount of a charge, and what its payments leave open of it."""
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
            is_confirmed=credit.bank_id in self.confirmed,
            is_guess=matched_by is MatchedBy.DOCUMENT,
        )
        stored = self._payments_of(charge)
        if stored.may_have(payment) or (not payment.is_confirmed and self._may_have(credit, charge, payment)):
            return Decided(credit, CreditResult.SIMILAR, matched_by, charge)
        stored.add(payment.amount_cents, payment.occurred_at)
        self._remember(credit, charge)
        return Decided(credit, CreditResult.NEW, matched_by, charge, payment)

    def _remember(self, credit: Credit, charge: Charge) -> None:
        self.new[credit.bank_id] = ImportedPayment(
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

        If two credits of one statement name their charges, they are two payments.
        """
        if charge.invoice_id in self.known.manual.by_invoice:
            return True
        payer = self.known.payers.of_invoices.get(charge.invoice_id)
        if payer is None:
            return False
        alike = self._alike(payer, credit)
        if payment.is_guess:
            return bool(alike)
        return any(not each.by_hand and each.reference not in self.new for each in alike)

    def _alike(self, payer: str, credit: Credit) -> Sequence[PayersPayment]:
        found = self.of_payers.get((payer, credit.amount_cents), ())
        return [each for each in found if each.may_be(credit)]

    def _payments_of(self, charge: Charge) -> ChargePayments:
        found = self.paid.get(charge.charge_id)
        if found is None:
            payments = [each for each in charge.entries if each.kind is EntryKind.PAYMENT]
            found = ChargePayments.of(
                charge.amount_cents,
                [(each.amount_cents, each.occurred_at) for each in payments],
                is_open=charge.is_payable,
            )
            self.paid[charge.charge_id] = found
        return found
