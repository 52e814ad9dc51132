"""Decide which charge each credit of a bank statement pays, and whether the payment is new (D-257)."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from uuid import UUID

from fatura.domain.bank_statement import Credit
from fatura.domain.calendar import local_date
from fatura.domain.payments import EntryKind, PaymentEntry
from fatura.domain.statement_payments import ChargePayments, StatementPayment
from fatura.gateways.port import Charge
from fatura.views.statements import CreditResult, MatchedBy

Payers = Mapping[tuple[str, int], tuple[str, int]]
"""By the key of a tax document and an amount: the id of an open charge, and how many such charges there are."""


@dataclass(frozen=True, slots=True)
class ManualPayments:
    """Amounts of manual payments: by their reference, and by their invoice."""

    by_reference: Mapping[str, Sequence[int]]
    by_invoice: Mapping[UUID, AbstractSet[int]]

    @classmethod
    def of(cls, referenced: Iterable[PaymentEntry], of_invoices: Iterable[PaymentEntry]) -> "ManualPayments":
        by_reference, by_invoice = defaultdict[str, list[int]](list), defaultdict[UUID, set[int]](set)
        for entry in referenced:
            assert entry.reference is not None, "the entries were found by their references"
            by_reference[entry.reference].append(entry.amount_cents)
        for entry in of_invoices:
            by_invoice[entry.invoice_id].add(entry.amount_cents)
        return cls(by_reference, by_invoice)


@dataclass(frozen=True, slots=True)
class Known:
    """What is stored before the import.

    `imported` are the account's imported payments, by the ids of the bank that the statement has. `charges` are the
    connection's charges that the credits may pay, by id. `elsewhere` are ids of charges of other connections.
    """

    imported: Mapping[str, StatementPayment]
    charges: Mapping[str, Charge]
    elsewhere: AbstractSet[str]
    payers: Payers
    manual: ManualPayments

    def named_by(self, credit: Credit) -> Sequence[Charge]:
        """Return the charges whose txid occurs as a word in the credit's texts."""
        return [self.charges[word] for word in sorted(credit.words) if word in self.charges]


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
    certain_first = sorted(read, key=lambda credit: not known.named_by(credit))
    decided = {credit.number: matching.decide(credit) for credit in certain_first}
    return [decided[credit.number] for credit in read]


@dataclass(slots=True)
class _Matching:
    """Decides about one credit after the other. `new` are the payments that it has decided to import, by bank id."""

    known: Known
    confirmed: frozenset[str]
    new: dict[str, StatementPayment] = field(default_factory=dict[str, StatementPayment])
    paid: dict[str, ChargePayments] = field(default_factory=dict[str, ChargePayments])

    def decide(self, credit: Credit) -> Decided:
        named = self.known.named_by(credit)
        if (earlier := self._earlier(credit)) is not None:
            is_same = self._is_same(credit, earlier, named)
            result = CreditResult.DUPLICATE if is_same else CreditResult.ID_REUSED
            return Decided(credit, result, charge=self.known.charges.get(earlier.charge_id))
        if (recorded := self.known.manual.by_reference.get(credit.bank_id)) is not None:
            if credit.amount_cents in {*recorded, sum(recorded)}:
                return Decided(credit, CreditResult.DUPLICATE)
            if credit.bank_id not in self.confirmed:
                return Decided(credit, CreditResult.SIMILAR)
        if len(named) > 1:
            return Decided(credit, CreditResult.AMBIGUOUS)
        if named:
            return self._add(credit, named[0], MatchedBy.TXID)
        return self._by_payer(credit)

    def _earlier(self, credit: Credit) -> StatementPayment | None:
        return self.known.imported.get(credit.bank_id) or self.new.get(credit.bank_id)

    def _is_same(self, credit: Credit, earlier: StatementPayment, named: Sequence[Charge]) -> bool:
        """Return whether an earlier payment with the credit's id is this credit.

        The bank may give one id to several credits, also in one file. Only an end-to-end id is certain.
        """
        is_unsure = credit.bank_id in self.new and not credit.has_end_to_end_id
        names_another = bool(named) and earlier.charge_id not in {charge.charge_id for charge in named}
        return (
            not is_unsure
            and not names_another
            and (earlier.amount_cents, local_date(earlier.occurred_at))
            == (credit.amount_cents, credit.occurred_on)
        )

    def _by_payer(self, credit: Credit) -> Decided:
        """Find the only open charge of the credit's amount whose payer has a tax document that the credit names.

        The charge must not be newer than the credit. A credit that names another connection's charge matches none.
        """
        if not self.known.elsewhere.isdisjoint(credit.words):
            return Decided(credit, CreditResult.UNMATCHED)
        keys = [(document, credit.amount_cents) for document in credit.documents]
        candidates = [self.known.payers[key] for key in keys if key in self.known.payers]
        if sum(charges for _, charges in candidates) > 1:
            return Decided(credit, CreditResult.AMBIGUOUS)
        for charge_id, _ in candidates:
            charge = self.known.charges.get(charge_id)
            if charge is None or not charge.is_payable or self._payments_of(charge).count:
                continue
            if charge.created_at is not None and credit.occurred_on >= local_date(charge.created_at):
                return self._add(credit, charge, MatchedBy.DOCUMENT)
        return Decided(credit, CreditResult.UNMATCHED)

    def _add(self, credit: Credit, charge: Charge, matched_by: MatchedBy) -> Decided:
        is_confirmed = credit.bank_id in self.confirmed
        payment = StatementPayment(
            bank_id=credit.bank_id,
            charge_id=charge.charge_id,
            amount_cents=credit.amount_cents,
            occurred_at=credit.occurred_at,
            is_confirmed=is_confirmed,
            is_guess=matched_by is MatchedBy.DOCUMENT,
        )
        by_hand = self.known.manual.by_invoice.get(charge.invoice_id, frozenset[int]())
        stored = self._payments_of(charge)
        if stored.may_have(payment) or (credit.amount_cents in by_hand and not is_confirmed):
            return Decided(credit, CreditResult.SIMILAR, matched_by, charge)
        stored.add(payment.amount_cents, payment.occurred_at)
        self.new[credit.bank_id] = payment
        return Decided(credit, CreditResult.NEW, matched_by, charge, payment)

    def _payments_of(self, charge: Charge) -> ChargePayments:
        found = self.paid.get(charge.charge_id)
        if found is None:
            payments = [each for each in charge.entries if each.kind is EntryKind.PAYMENT]
            found = ChargePayments.of(
                charge.amount_cents, [(each.amount_cents, each.occurred_at) for each in payments]
            )
            self.paid[charge.charge_id] = found
        return found
