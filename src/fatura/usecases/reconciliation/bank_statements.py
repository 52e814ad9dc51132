"""Import the payments of a bank statement into a connection whose provider reports no payments (D-257).

The connection's adapter stores the payments. A poll of their charges then records them like those of any provider.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from fatura.domain import bank_statement
from fatura.domain.account import Account
from fatura.domain.bank_statement import Credit, Statement, StatementError, StatementFormat
from fatura.domain.calendar import local_date
from fatura.domain.errors import STATEMENT_UNSUPPORTED, EngineError, invalid_fields, require
from fatura.domain.payments import EntryKind, EntrySource, PaymentEntry
from fatura.gateways.checked import CheckedGateway
from fatura.gateways.port import Charge
from fatura.gateways.statement_port import StatementImports, StatementPayment
from fatura.store.billing import payment_entries
from fatura.store.charging import charge_polling, payable_charges
from fatura.store.connections import connections
from fatura.store.subscriptions import customers
from fatura.usecases.connections import gateway_connections
from fatura.usecases.deps import Deps
from fatura.usecases.reconciliation import scheduled_looks
from fatura.usecases.transaction import LaneName, Work, in_transaction
from fatura.views.statements import CreditResult, CreditView, MatchedBy, StatementView

Payers = Mapping[tuple[str, int], tuple[str, int]]
"""By the key of a tax document and an amount: the id of an open charge, and how many such charges there are."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is stored before the import. `manual` are the manual payments by the invoice of the charge."""

    payments: Mapping[str, StatementPayment]
    charges: Mapping[str, Charge]
    payers: Payers
    manual: Mapping[UUID, Sequence[PaymentEntry]]


@dataclass(frozen=True, slots=True)
class _Decided:
    """What the import does with a credit. `payment` is set if the credit belongs to `charge`."""

    credit: Credit
    result: CreditResult
    matched_by: MatchedBy | None = None
    charge: Charge | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did with the credits of a statement, or would do in a dry run."""

    decided: Sequence[_Decided]
    debits: int
    is_dry_run: bool

    @property
    def view(self) -> StatementView:
        counts = Counter(each.result for each in self.decided)
        return StatementView(
            dry_run=self.is_dry_run,
            new=counts[CreditResult.NEW],
            duplicates=counts[CreditResult.DUPLICATE],
            needs_you=sum(counts[each] for each in CreditResult if each.needs_you),
            debits=self.debits,
            data=[
                CreditView.of(
                    each.credit,
                    result=each.result,
                    matched_by=each.matched_by,
                    invoice_id=None if each.charge is None else str(each.charge.invoice_id),
                    charge_id=None if each.charge is None else each.charge.charge_id,
                )
                for each in self.decided
            ],
        )


async def import_payments(
    deps: Deps,
    account: Account,
    connection_id: UUID,
    *,
    text: str,
    format_: StatementFormat,
    confirmed: Collection[str],
    is_dry_run: bool,
) -> Imported:
    """Add the credits that pay charges of the connection to these charges. With `is_dry_run`, add nothing.

    `confirmed` are the bank's ids of payments that a person has confirmed although they are `similar`. Call `poll`
    afterwards. A repeated import adds nothing.
    Raises EngineError: `engine.invalid_request`, `engine.not_found`, `engine.statement_unsupported`.
    """
    statement = _read(text, format_, account, deps)
    gateway, payers = await in_transaction(deps, account, _open, connection_id, statement.credits)
    known = await _known(deps, account, gateway, payers, read=statement.credits)
    decided = list(_decide(statement.credits, known, confirmed=confirmed))
    if not is_dry_run:
        decided = await _import(gateway, decided, confirmed=confirmed)
    return Imported(decided, statement.debits, is_dry_run)


async def poll(work: Work, connection_id: UUID, imported: Imported) -> StatementView:
    """Make polls of the paid charges due, also after a repeated import: the earlier one may have ended before this."""
    paid = sorted(
        {
            each.charge.charge_id
            for each in imported.decided
            if each.charge is not None and each.result in {CreditResult.NEW, CreditResult.DUPLICATE}
        }
    )
    due = await charge_polling.make_named_due(
        work.tx,
        [(connection_id, charge_id) for charge_id in paid],
        now=work.now,
        real_now=work.deps.clock(),
        polls_first=True,
    )
    due += await charge_polling.make_earlier_due(work.tx, connection_id, paid, now=work.now)
    await scheduled_looks.look_later(work, connection_id, paid)
    if due:
        work.notify(LaneName.RECONCILIATION)
    view = imported.view
    work.audit(connection_id, before={}, after={"payments": view.new})
    return view


def _read(text: str, format_: StatementFormat, account: Account, deps: Deps) -> Statement:
    try:
        return bank_statement.read(text, format_, now=account.now(deps.clock()))
    except StatementError as error:
        raise invalid_fields(("statement", str(error))) from None


async def _open(work: Work, connection_id: UUID, read: Sequence[Credit]) -> tuple[StatementImports, Payers]:
    """Return the connection's adapter, and the open charges of the payers that the credits name."""
    stored = require(await connections.find(work.tx, connection_id), "gateway connection", id_=connection_id)
    opened = gateway_connections.open_gateway(work, stored)
    adapter = None if opened is None else opened.adapter
    if not isinstance(adapter, CheckedGateway) or not isinstance(adapter.adapter, StatementImports):
        raise EngineError(
            STATEMENT_UNSUPPORTED,
            f"The provider {stored.connection.provider} reports payments itself; only connections with a Pix key take "
            "bank statements.",
        )
    return adapter.adapter, await _payers(work, connection_id, read)


async def _payers(work: Work, connection_id: UUID, read: Sequence[Credit]) -> Payers:
    documents = {document for credit in read for document in credit.documents}
    by_hash = {
        hash_: document
        for document in documents
        for hash_ in customers.document_hashes(work.deps.vault, document, account_id=work.account.account_id)
    }
    if not by_hash:
        return {}
    amounts_cents = sorted({credit.amount_cents for credit in read if credit.documents})
    found: dict[tuple[str, int], tuple[str, int]] = {}
    for each in await payable_charges.of_payers(
        work.tx, connection_id, hashes=list(by_hash), amounts_cents=amounts_cents
    ):
        key = by_hash[each.document_hash], each.amount_cents
        others = found[key][1] if key in found else 0
        found[key] = each.gateway_charge_id, others + each.charges
    return found


async def _known(
    deps: Deps, account: Account, gateway: StatementImports, payers: Payers, *, read: Sequence[Credit]
) -> _Known:
    payments = await gateway.imported([credit.bank_id for credit in read])
    ids = {word for credit in read for word in credit.words}
    ids |= {charge_id for charge_id, _ in payers.values()} | {each.charge_id for each in payments.values()}
    charges = {charge.charge_id: charge for charge in await gateway.find_all(sorted(ids))}
    invoice_ids = sorted({charge.invoice_id for charge in charges.values()})
    manual = await in_transaction(deps, account, _manual_payments, invoice_ids)
    return _Known(payments, charges, payers, manual)


async def _manual_payments(work: Work, invoice_ids: Sequence[UUID]) -> Mapping[UUID, Sequence[PaymentEntry]]:
    ledgers = await payment_entries.of_invoices(work.tx, invoice_ids)
    return {
        invoice_id: [
            entry
            for entry in entries
            if entry.kind is EntryKind.PAYMENT and entry.source is EntrySource.MANUAL
        ]
        for invoice_id, entries in ledgers.items()
    }


def _decide(read: Sequence[Credit], known: _Known, *, confirmed: Collection[str]) -> Iterator[_Decided]:
    """Yield a decision about each credit, as if the credits before it were imported already."""
    payments, new = dict(known.payments), list[_Decided]()
    for credit in read:
        if (earlier := payments.get(credit.bank_id)) is not None:
            is_same = (earlier.amount_cents, local_date(earlier.occurred_at)) == (
                credit.amount_cents,
                credit.occurred_on,
            )
            result = CreditResult.DUPLICATE if is_same else CreditResult.ID_REUSED
            yield _Decided(credit, result, charge=known.charges.get(earlier.charge_id))
            continue
        decided = _match(credit, known, new)
        if decided.charge is not None and decided.result is CreditResult.NEW:
            if _is_recorded_by_hand(credit, decided.charge, known):
                decided = replace(decided, result=CreditResult.DUPLICATE)
            elif credit.bank_id not in confirmed and _is_similar(credit, decided.charge, known, new):
                decided = replace(decided, result=CreditResult.SIMILAR)
            else:
                new.append(decided)
                payments[credit.bank_id] = _payment(decided, confirmed)
        yield decided


def _match(credit: Credit, known: _Known, new: Sequence[_Decided]) -> _Decided:
    """Find the charge that a credit pays: by its txid, or else by its amount and the payer's tax document."""
    named = [known.charges[word] for word in sorted(credit.words) if word in known.charges]
    if len(named) > 1:
        return _Decided(credit, CreditResult.AMBIGUOUS)
    if named:
        return _Decided(credit, CreditResult.NEW, MatchedBy.TXID, named[0])
    candidates = [
        known.payers[document, credit.amount_cents]
        for document in credit.documents
        if (document, credit.amount_cents) in known.payers
    ]
    if sum(charges for _, charges in candidates) > 1:
        return _Decided(credit, CreditResult.AMBIGUOUS)
    taken = {each.charge.charge_id for each in new if each.charge is not None}
    for charge_id, _ in candidates:
        charge = known.charges.get(charge_id)
        if charge is not None and charge.is_payable and not charge.entries and charge_id not in taken:
            return _Decided(credit, CreditResult.NEW, MatchedBy.DOCUMENT, charge)
    return _Decided(credit, CreditResult.UNMATCHED)


def _is_recorded_by_hand(credit: Credit, charge: Charge, known: _Known) -> bool:
    return any(entry.reference == credit.bank_id for entry in known.manual.get(charge.invoice_id, ()))


def _is_similar(credit: Credit, charge: Charge, known: _Known, new: Sequence[_Decided]) -> bool:
    """Return whether this may be a payment that is recorded already, under another id or by hand."""
    by_hand = known.manual.get(charge.invoice_id, ())
    imported = [
        (entry.amount_cents, local_date(entry.occurred_at))
        for entry in charge.entries
        if entry.kind is EntryKind.PAYMENT
    ]
    imported += [
        (each.credit.amount_cents, each.credit.occurred_on)
        for each in new
        if each.charge is not None and each.charge.charge_id == charge.charge_id
    ]
    return (credit.amount_cents, credit.occurred_on) in imported or any(
        entry.amount_cents == credit.amount_cents for entry in by_hand
    )


def _payment(decided: _Decided, confirmed: Collection[str]) -> StatementPayment:
    credit, charge = decided.credit, decided.charge
    assert charge is not None, "a new payment belongs to a charge"
    return StatementPayment(
        bank_id=credit.bank_id,
        charge_id=charge.charge_id,
        amount_cents=credit.amount_cents,
        occurred_at=credit.occurred_at,
        is_confirmed=credit.bank_id in confirmed,
    )


async def _import(
    gateway: StatementImports, decided: Sequence[_Decided], *, confirmed: Collection[str]
) -> list[_Decided]:
    """Add the new payments. Return the decisions again, changed if another import added a payment meanwhile."""
    new = [_payment(each, confirmed) for each in decided if each.result is CreditResult.NEW]
    added = set(await gateway.import_payments(new)) if new else set[str]()
    left_out = [each.bank_id for each in new if each.bank_id not in added]
    meanwhile = await gateway.imported(left_out) if left_out else dict[str, StatementPayment]()
    return [_after_import(each, added, meanwhile) for each in decided]


def _after_import(
    decided: _Decided, added: Collection[str], meanwhile: Mapping[str, StatementPayment]
) -> _Decided:
    bank_id = decided.credit.bank_id
    if decided.result is not CreditResult.NEW or bank_id in added:
        return decided
    is_known = bank_id in meanwhile
    return replace(decided, result=CreditResult.DUPLICATE if is_known else CreditResult.SIMILAR)
