"""Import the payments of a bank statement into a connection whose provider reports no payments (D-257).

The connection's adapter stores the imported payments. A poll of the paid charges then adds these payments to the
ledgers, like the payments of any other provider.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from uuid import UUID

from fatura.domain import bank_statement
from fatura.domain.account import Account
from fatura.domain.bank_statement import (
    Credit,
    Statement,
    StatementError,
    StatementFormat,
    is_end_to_end_id,
    same_id,
)
from fatura.domain.calendar import local_date, start_of_day
from fatura.domain.errors import STATEMENT_UNSUPPORTED, UNAVAILABLE, EngineError, invalid_fields, require
from fatura.domain.payments import EntryKind, EntrySource, PaymentEntry
from fatura.domain.statement_payments import MAX_DAYS_APART, ImportedPayment
from fatura.gateways.statement_port import ImportedMeanwhileError, StatementImports
from fatura.store.billing import payment_entries
from fatura.store.charging import charge_polling, merchant_requests, payable_charges
from fatura.store.connections import connections
from fatura.store.db import Tx
from fatura.store.subscriptions import customers
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.connections import gateway_connections
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import IdempotentRequest, StoredAnswer, abandon, begin, finish
from fatura.usecases.reconciliation import scheduled_looks, statement_matching
from fatura.usecases.reconciliation.statement_matching import (
    Decided,
    Known,
    ManualPayments,
    Payers,
    PayersCharge,
    PayersPayment,
)
from fatura.usecases.transaction import LaneName, Work, in_transaction
from fatura.views.statements import CreditResult, CreditView, StatementView

MAX_DECISIONS = 10
"""Maximum number of times that an import decides, if other imports add payments meanwhile."""
IN_PROGRESS_FOR = timedelta(minutes=1)
"""If the process dies, a repeat of the request imports the statement again after this time."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """The connection's adapter, the credits' tax documents by their hashes, and the payers' charges by document."""

    gateway: StatementImports
    documents: Mapping[bytes, str]
    charges: Mapping[str, Sequence[PayersCharge]]


async def dry_run(
    deps: Deps,
    account: Account,
    connection_id: UUID,
    *,
    text: str,
    format_: StatementFormat,
    confirmed: Collection[str],
) -> StatementView:
    """Return what `import_statement` would answer, and store nothing. Raises the same errors."""
    statement = _read(text, format_, account, deps, confirmed=confirmed)
    opened = await in_transaction(deps, account, _open, connection_id, statement.credits)
    known = await _known(deps, account, opened, statement.credits)
    return _view(_decided(statement, known, confirmed=confirmed), statement, is_dry_run=True)


async def import_statement(
    deps: Deps,
    account: Account,
    request: IdempotentRequest | None,
    connection_id: UUID,
    *,
    text: str,
    format_: StatementFormat,
    confirmed: Collection[str],
    draft: AuditDraft | None,
) -> StoredAnswer:
    """Find the charges that the credits pay, add the credits to these charges as payments, and poll these charges soon.

    A `similar` credit is possibly a payment that is stored already. `confirmed` has the bank's ids of `similar` credits
    that a person has confirmed as new payments. A repeated import adds no payment, but makes the polls due again.
    Raises EngineError: `engine.invalid_request`, `engine.not_found`, `engine.statement_unsupported`; the errors of
    `begin`.
    """
    statement = _read(text, format_, account, deps, confirmed=confirmed)
    start = partial(_open, connection_id=connection_id, read=statement.credits)
    begun = await begin(deps, account, request, start, draft=draft, in_progress_for=IN_PROGRESS_FOR)
    if isinstance(begun, StoredAnswer):
        return begun
    try:
        decided = await _decide_and_import(deps, account, begun, statement, confirmed=confirmed)
    except EngineError:
        await in_transaction(deps, account, abandon, request)
        raise
    end = partial(_poll, connection_id=connection_id, decided=decided, statement=statement)
    return await finish(deps, account, request, end, draft=draft)


def _read(
    text: str, format_: StatementFormat, account: Account, deps: Deps, *, confirmed: Collection[str]
) -> Statement:
    """Read the statement. Raises EngineError, also if a confirmed id belongs to no credit or to several credits."""
    try:
        statement = bank_statement.read(text, format_, now=account.now(deps.clock()))
    except StatementError as error:
        raise invalid_fields(("statement", str(error))) from None
    count = Counter(each.same_id for each in statement.credits)
    for each in confirmed:
        found = count[same_id(each)]
        if found == 0:
            raise invalid_fields(("confirmed", f"{each} is the id of no credit of the file"))
        if found > 1 and not is_end_to_end_id(each):
            message = f"{each} is the id of {found} credits of the file; record the payment by hand"
            raise invalid_fields(("confirmed", message))
    return statement


async def _decide_and_import(
    deps: Deps, account: Account, opened: _Opened, statement: Statement, *, confirmed: Collection[str]
) -> Sequence[Decided]:
    """Decide about the credits, and import the new payments.

    Decide again if another import, or a person who records a payment by hand, was faster.
    """
    for _ in range(MAX_DECISIONS):
        before = await opened.gateway.count_imported()
        known = await _known(deps, account, opened, statement.credits)
        decided = _decided(statement, known, confirmed=confirmed)
        try:
            return await _import(opened.gateway, decided, imported_before=before, manual=known.manual)
        except ImportedMeanwhileError:
            continue
    raise EngineError(UNAVAILABLE, "Other payments of the account are being stored; repeat the request.")


def _decided(statement: Statement, known: Known, *, confirmed: Collection[str]) -> Sequence[Decided]:
    """Decide about the credits. Raises EngineError if a confirmed credit cannot be imported by a confirmation."""
    decided = statement_matching.decide(statement.credits, known, confirmed=confirmed)
    may_be_confirmed = {CreditResult.SIMILAR, CreditResult.NEW, CreditResult.DUPLICATE}
    possible = {each.credit.same_id for each in decided if each.result in may_be_confirmed}
    for each in confirmed:
        if same_id(each) not in possible:
            message = (
                f"the credit {each} is ambiguous, id_reused or unmatched; only a similar one can be confirmed"
            )
            raise invalid_fields(("confirmed", message))
    return decided


async def _open(work: Work, connection_id: UUID, read: Sequence[Credit]) -> _Opened:
    stored = require(await connections.find(work.tx, connection_id), "gateway connection", id_=connection_id)
    opened = gateway_connections.open_gateway(work, stored)
    if opened is None:
        detail = "The connection's credentials cannot be decrypted; send them again with a PATCH of the connection."
        raise EngineError(STATEMENT_UNSUPPORTED, detail)
    adapter = opened.adapter.adapter
    if not isinstance(adapter, StatementImports):
        raise EngineError(
            STATEMENT_UNSUPPORTED,
            f"The provider {stored.connection.provider} reports payments itself; only connections with a Pix key take "
            "bank statements.",
        )
    documents = {
        hash_: document
        for document in sorted({document for credit in read for document in credit.documents})
        for hash_ in customers.document_hashes(work.deps.vault, document, account_id=work.account.account_id)
    }
    return _Opened(adapter, documents, await _charges_of_payers(work, documents))


async def _charges_of_payers(
    work: Work, documents: Mapping[bytes, str]
) -> Mapping[str, Sequence[PayersCharge]]:
    """Return the charges of the open invoices of each customer who has one of these documents, by the document."""
    if not documents:
        return {}
    known = await payable_charges.known_hashes(work.tx, list(documents))
    found: dict[str, list[PayersCharge]] = {documents[each]: [] for each in known}
    for each in await payable_charges.of_payers(work.tx, known):
        charge = PayersCharge(each.gateway_charge_id, each.amount_cents, each.is_open)
        found[documents[each.document_hash]].append(charge)
    return found


async def _known(deps: Deps, account: Account, opened: _Opened, read: Sequence[Credit]) -> Known:
    imported = await opened.gateway.imported([credit.bank_id for credit in read])
    ids = {word for credit in read for word in credit.words}
    ids |= {charge.charge_id for charges in opened.charges.values() for charge in charges}
    ids |= {payment.charge_id for payment in imported}
    named = await opened.gateway.invoices(sorted(ids))
    # imported payments of these charges may not be in the ledgers yet
    ids |= set(await in_transaction(deps, account, _charges_of_same_payers, sorted(set(named.values()))))
    invoices = await opened.gateway.invoices(sorted(ids))
    ledgers = partial(_ledgers, opened=opened, invoice_ids=sorted(set(invoices.values())))
    manual, payers = await in_transaction(deps, account, ledgers, read)
    ids |= {payment.charge_id for payment in payers.payments if payment.charge_id is not None}
    charges = {charge.charge_id: charge for charge in await opened.gateway.find_all(sorted(ids))}
    return Known({same_id(each.bank_id): each for each in imported}, charges, invoices, payers, manual)


async def _charges_of_same_payers(work: Work, invoice_ids: Sequence[UUID]) -> Sequence[str]:
    payers = await payable_charges.of_invoices(work.tx, invoice_ids)
    hashes = sorted({each.document_hash for each in payers})
    return [each.gateway_charge_id for each in await payable_charges.of_payers(work.tx, hashes)]


async def _ledgers(
    work: Work, read: Sequence[Credit], *, opened: _Opened, invoice_ids: Sequence[UUID]
) -> tuple[ManualPayments, Payers]:
    """Return the manual payments that may be the same payments as the credits, and the possible payers."""
    manual = ManualPayments.of(
        await payment_entries.manual_by_reference(work.tx, [credit.bank_id for credit in read]),
        await _by_hand(work.tx, invoice_ids),
    )
    recorded = {entry.invoice_id for entries in manual.by_reference.values() for entry in entries}
    of_invoices = await payable_charges.of_invoices(work.tx, sorted(recorded.union(invoice_ids)))
    hashes = {each for each, document in opened.documents.items() if document in opened.charges}
    hashes |= {each.document_hash for each in of_invoices}
    oldest = min((credit.occurred_on for credit in read), default=local_date(work.now))
    payments = [
        _payment(each, opened.documents)
        for each in await payable_charges.payments(
            work.tx,
            sorted(hashes),
            sorted({credit.amount_cents for credit in read}),
            since=start_of_day(oldest - timedelta(days=MAX_DAYS_APART)),
        )
    ]
    payers = {each.invoice_id: _payer(each.document_hash, opened.documents) for each in of_invoices}
    return manual, Payers(opened.charges, payers, payments)


def _payment(stored: payable_charges.PayersPayment, documents: Mapping[bytes, str]) -> PayersPayment:
    at = max(stored.occurred_at, stored.recorded_at) if stored.is_manual else stored.occurred_at
    return PayersPayment(
        payer=_payer(stored.document_hash, documents),
        amount_cents=stored.amount_cents,
        occurred_on=local_date(at),
        reference=stored.reference,
        charge_id=stored.gateway_charge_id,
        by_hand=stored.is_manual,
    )


def _payer(document_hash: bytes, documents: Mapping[bytes, str]) -> str:
    """Return the document that identifies a payer, or its hash if no credit has the document."""
    return documents.get(document_hash) or document_hash.hex()


async def _by_hand(tx: Tx, invoice_ids: Sequence[UUID]) -> Mapping[UUID, int]:
    """Return the sum of each invoice's manual payments, including those that are stored as requests (D-171)."""
    ledgers = await payment_entries.of_invoices(tx, invoice_ids)
    requests = await merchant_requests.of_invoices(tx, invoice_ids)
    sums = Counter[UUID]()
    for entry in (each for ledger in ledgers.values() for each in ledger if _is_manual(each)):
        sums[entry.invoice_id] += entry.amount_cents
    for request in (each for stored in requests.values() for each in stored):
        if request.payment is not None:
            sums[request.invoice_id] += request.payment.amount_cents
    return sums


def _is_manual(entry: PaymentEntry) -> bool:
    return entry.kind is EntryKind.PAYMENT and entry.source is EntrySource.MANUAL


async def _is_current(
    tx: Tx, *, manual: ManualPayments, invoice_ids: Sequence[UUID], bank_ids: Sequence[str]
) -> bool:
    """Lock the invoices, and return whether `manual` has all their manual payments, and all those with these bank ids.

    A payment that covers an invoice is stored as a request before its charge is canceled. The import has locked the
    charge. So either this function sees the request, or the cancellation finds the charge paid and is refused (D-52).
    """
    await payment_entries.lock_invoices(tx, invoice_ids)
    stored = await _by_hand(tx, invoice_ids)
    referenced = await payment_entries.manual_by_reference(tx, bank_ids)
    known = sum(len(manual.by_reference.get(each, ())) for each in set(map(same_id, bank_ids)))
    return len(referenced) == known and all(
        stored.get(each) == manual.by_invoice.get(each) for each in invoice_ids
    )


async def _import(
    gateway: StatementImports, decided: Sequence[Decided], *, imported_before: int, manual: ManualPayments
) -> Sequence[Decided]:
    """Add the new payments, and return the decisions. If a payment could not be added, change its decision's result.

    For example, a charge that was found by amount and payer only (`is_guess`) may have been canceled meanwhile. Raises
    ImportedMeanwhileError.
    """
    new = [each.payment for each in decided if each.payment is not None]
    if not new:
        return decided
    paid = sorted({each.charge.invoice_id for each in decided if each.payment and each.charge})
    bank_ids = [each.bank_id for each in new]
    is_current = partial(_is_current, manual=manual, invoice_ids=paid, bank_ids=bank_ids)
    added = set(await gateway.import_payments(new, imported_before=imported_before, is_current=is_current))
    left_out = [each.bank_id for each in new if each.bank_id not in added]
    meanwhile = await gateway.imported(left_out) if left_out else ()
    stored = {same_id(each.bank_id): each for each in meanwhile}
    return [_after_import(each, added, stored) for each in decided]


def _after_import(decided: Decided, added: Collection[str], stored: Mapping[str, ImportedPayment]) -> Decided:
    if decided.payment is None or decided.payment.bank_id in added:
        return decided
    same = stored.get(decided.credit.same_id)
    if same is None:
        return replace(decided, result=CreditResult.SIMILAR, payment=None)
    is_same = statement_matching.is_equal(decided.payment, same)
    return replace(
        decided, result=CreditResult.DUPLICATE if is_same else CreditResult.ID_REUSED, payment=None
    )


async def _poll(
    work: Work, *, connection_id: UUID, decided: Sequence[Decided], statement: Statement
) -> StatementView:
    """Make polls of the paid charges due, even if the payments are duplicates.

    An earlier import may have added the payments, and its process may have died before it made the polls due.
    """
    is_paid = {CreditResult.NEW, CreditResult.DUPLICATE}
    paid = sorted(
        {each.charge.charge_id for each in decided if each.charge is not None and each.result in is_paid}
    )
    charges = [(connection_id, charge_id) for charge_id in paid]
    due = await charge_polling.make_named_due(
        work.tx, charges, now=work.now, real_now=work.deps.clock(), polls_first=True
    )
    due += await charge_polling.make_earlier_due(work.tx, charges, now=work.now)
    await scheduled_looks.look_later(work, connection_id, paid)
    if due:
        work.notify(LaneName.RECONCILIATION)
    view = _view(decided, statement, is_dry_run=False)
    work.audit(connection_id, before={}, after={"payments": view.new, "duplicates": view.duplicates})
    return view


def _view(decided: Sequence[Decided], statement: Statement, *, is_dry_run: bool) -> StatementView:
    counts = Counter(each.result for each in decided)
    return StatementView(
        dry_run=is_dry_run,
        new=counts[CreditResult.NEW],
        duplicates=counts[CreditResult.DUPLICATE],
        needs_you=sum(counts[each] for each in CreditResult if each.needs_you),
        debits=statement.debits,
        data=[
            CreditView.of(
                each.credit,
                result=each.result,
                matched_by=each.matched_by,
                invoice_id=None if each.charge is None else str(each.charge.invoice_id),
                charge_id=None if each.charge is None else each.charge.charge_id,
            )
            for each in sorted(decided, key=lambda each: each.credit.number)
        ],
    )
