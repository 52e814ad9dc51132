"""The provider `pix_key`: Pix codes for the merchant's own Pix key, without a payment provider.

No provider reports the payments of these codes, so the merchant imports bank statements (D-257) or records payments by
hand (D-52). A code stays payable as long as the Pix key exists, even after the charge was canceled. Each call runs in a
transaction of its own.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import date, datetime
from typing import ClassVar
from uuid import UUID

from fatura.domain.calendar import local_date
from fatura.domain.charge import PayData
from fatura.domain.offer import PaymentMethod
from fatura.domain.payments import EntryKind
from fatura.domain.statement_payments import ChargePayments, ImportedPayment, StatementPayment
from fatura.gateways import port
from fatura.gateways.adapters.pix_key import tables
from fatura.gateways.adapters.pix_key.settings import PixKeySettings, parse
from fatura.gateways.adapters.pix_key.tables import PixKeyCharge, PixKeyEntry
from fatura.gateways.br_code import br_code
from fatura.gateways.statement_port import ImportedMeanwhileError, IsCurrent

MAX_CENTS = 10**12 - 1
"""The highest amount that fits into a Pix code."""
_TXID_LENGTH = 25
_TXID = re.compile(f"[0-9A-Z]{{{_TXID_LENGTH}}}")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class PixKeyGateway:
    """One connection with a Pix key; implements `port.Gateway` and `statement_port.StatementImports`.

    Database errors are raised unchanged. The engine then treats the outcome as unknown, and repeats the request.
    """

    provider: ClassVar[str] = "pix_key"
    __slots__ = ("_config", "_database")

    def __init__(self, database: tables.Database, config: port.ConnectionConfig) -> None:
        self._database = database
        self._config = config

    def capabilities(self) -> port.Capabilities:
        self._settings()
        return port.Capabilities(
            issues_charges=True,
            methods=(PaymentMethod.PIX,),
            max_installments=1,
            product_catalog=False,
            idempotency="natural_id",
            lists_charges=True,
            refunds="key",
            polls_per_minute=None,
        )

    async def check_credentials(self) -> None:
        """Return None, because a Pix key belongs to no provider's account."""
        self._settings()

    async def create_charge(self, request: port.ChargeRequest) -> port.Charge:
        """Create a charge. A repeated request returns the existing charge. Raises PermanentError."""
        _check(request, today=local_date(self._config.now))
        txid = txid_of(request.invoice_id, request.attempt)
        new = PixKeyCharge(
            txid=txid,
            invoice_id=request.invoice_id,
            attempt=request.attempt,
            amount_cents=request.amount_cents,
            due_date=request.due_date,
            pix_code=pix_code(self._settings(), amount_cents=request.amount_cents, txid=txid),
            is_canceled=False,
            created_at=self._config.now,
        )
        async with self._transaction() as tx:
            await tables.insert(tx, self._config.connection_id, new)
            return await self._find(tx, txid)

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[port.Charge]:
        async with self._transaction() as tx:
            return await self._read(tx, [txid_of(invoice_id, attempt)])

    async def get_charge(self, charge_id: str) -> port.Charge:
        async with self._transaction() as tx:
            return await self._find(tx, charge_id)

    async def charges_since(self, since: datetime) -> AsyncIterator[port.Charge]:
        after = ""
        while True:
            async with self._transaction() as tx:
                page = await tables.charges_since(tx, self._config.connection_id, since, after=after)
                charges = await self._with_entries(tx, page)
            for charge in charges:
                yield charge
            if not page:
                return
            since, after = page[-1].created_at, page[-1].txid

    async def cancel_charge(self, charge_id: str) -> port.Charge:
        """Cancel a charge. A paid charge is returned unchanged."""
        async with self._transaction() as tx:
            charge = await self._lock(tx, charge_id)
            if charge.state is not port.ChargeState.OPEN:
                return charge
            await tables.cancel(tx, self._config.connection_id, charge_id)
            return await self._find(tx, charge_id)

    async def refund_charge(self, request: port.RefundRequest) -> port.Charge:
        """Record a refund, which the merchant makes in the bank's app. A repeated request records nothing more.

        Raises NotFoundError, and PermanentError `charge_status` if the refund is above the payments that are left.
        """
        connection_id, reference = self._config.connection_id, str(request.refund_id)
        async with self._transaction() as tx:
            charge = await self._lock(tx, request.charge_id)
            if any(each.refund_id == request.refund_id for each in charge.refunds):
                return charge
            left_cents = sum(
                each.amount_cents if each.kind is EntryKind.PAYMENT else -each.amount_cents
                for each in charge.entries
            )
            if not 0 < request.amount_cents <= left_cents:
                raise port.PermanentError("charge_status", f"The charge has {left_cents} cents to refund.")
            now = self._config.now
            refund = PixKeyEntry(charge.charge_id, EntryKind.REFUND, reference, request.amount_cents, now)
            await tables.insert_refund(tx, connection_id, refund, now=now)
            return await self._find(tx, charge.charge_id)

    async def imported(self, bank_ids: Sequence[str]) -> Sequence[ImportedPayment]:
        async with self._transaction() as tx:
            return await tables.payments(tx, bank_ids)

    async def find_all(self, charge_ids: Sequence[str]) -> Sequence[port.Charge]:
        async with self._transaction() as tx:
            return await self._read(tx, [each for each in charge_ids if _TXID.fullmatch(each)])

    async def invoices(self, charge_ids: Sequence[str]) -> Mapping[str, UUID]:
        async with self._transaction() as tx:
            return await tables.invoices(tx, [each for each in charge_ids if _TXID.fullmatch(each)])

    async def count_imported(self) -> int:
        async with self._transaction() as tx:
            return await tables.count_payments(tx)

    async def import_payments(
        self,
        payments: Sequence[StatementPayment],
        *,
        imported_before: int | None = None,
        is_current: IsCurrent | None = None,
    ) -> Sequence[str]:
        connection_id, now = self._config.connection_id, self._config.now
        txids = [each.charge_id for each in payments]
        async with self._transaction() as tx:
            await tables.lock_imports(tx)
            if imported_before not in {None, await tables.count_payments(tx)}:
                raise ImportedMeanwhileError
            await tables.lock(tx, connection_id, txids)
            if is_current is not None and not await is_current(tx):
                raise ImportedMeanwhileError
            paid = {each.charge_id: payments_of(each) for each in await self._read(tx, txids)}
            new: list[StatementPayment] = []
            for payment in payments:
                stored = paid.get(payment.charge_id)
                if stored is not None and not stored.may_have(payment):
                    stored.add(payment.amount_cents, payment.occurred_at)
                    new.append(payment)
            return await tables.insert_payments(tx, connection_id, new, now=now)

    def read_webhook(self, webhook: port.Webhook) -> port.WebhookHint:  # noqa: ARG002 - part of the interface
        """Raises AuthFailedError, because there is no provider that could send a webhook."""
        raise port.AuthFailedError("a Pix key has no webhooks")

    async def mirror_product(self, product: port.ProductMirror) -> str:  # noqa: ARG002 - part of the interface
        """Raises PermanentError `no_catalog`."""
        raise port.PermanentError("no_catalog", "A Pix key has no product catalog.")

    def _settings(self) -> PixKeySettings:
        return parse(self._config.settings, self._config.credentials)

    def _transaction(self) -> AbstractAsyncContextManager[tables.Tx]:
        return self._database.transaction(self._config.account_id)

    async def _find(self, tx: tables.Tx, charge_id: str) -> port.Charge:
        """Return a charge. Raises NotFoundError, also for a malformed id."""
        found = await self._read(tx, [charge_id] if _TXID.fullmatch(charge_id) else [])
        if not found:
            raise port.NotFoundError(charge_id)
        return found[0]

    async def _lock(self, tx: tables.Tx, charge_id: str) -> port.Charge:
        """Return a locked charge. Raises NotFoundError."""
        if _TXID.fullmatch(charge_id):
            await tables.lock(tx, self._config.connection_id, [charge_id])
        return await self._find(tx, charge_id)

    async def _read(self, tx: tables.Tx, txids: Sequence[str]) -> Sequence[port.Charge]:
        return await self._with_entries(tx, await tables.find(tx, self._config.connection_id, txids))

    async def _with_entries(self, tx: tables.Tx, charges: Sequence[PixKeyCharge]) -> Sequence[port.Charge]:
        of_charge: defaultdict[str, list[PixKeyEntry]] = defaultdict(list)
        if charges:
            txids = [charge.txid for charge in charges]
            for entry in await tables.entries(tx, self._config.connection_id, txids):
                of_charge[entry.txid].append(entry)
        return [_as_charge(charge, of_charge[charge.txid]) for charge in charges]


def payments_of(charge: port.Charge) -> ChargePayments:
    payments = [each for each in charge.entries if each.kind is EntryKind.PAYMENT]
    return ChargePayments.of(
        charge.amount_cents,
        [(each.amount_cents, each.occurred_at, each.reference) for each in payments],
        is_open=charge.is_payable,
    )


def txid_of(invoice_id: UUID, attempt: int) -> str:
    """Return the id of a charge: 25 letters and digits, derived from its reference, so repeats find the charge."""
    rest = int.from_bytes(hashlib.sha256(f"{invoice_id}:{attempt}".encode()).digest())
    digits: list[str] = []
    for _ in range(_TXID_LENGTH):
        rest, digit = divmod(rest, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)


def pix_code(settings: PixKeySettings, *, amount_cents: int, txid: str) -> str:
    return br_code(
        "key",
        settings.pix_key,
        amount_cents=amount_cents,
        merchant_name=settings.merchant_name,
        merchant_city=settings.merchant_city,
        txid=txid,
    )


def _check(request: port.ChargeRequest, *, today: date) -> None:
    """Check that a request can become a Pix code. Raises PermanentError."""
    if request.method is not PaymentMethod.PIX:
        raise port.PermanentError("method_unsupported", "A Pix key issues only pix.")
    if request.installments is not None:
        raise port.PermanentError("installments_unsupported", "Pix takes no installments.")
    if request.currency != "BRL":
        raise port.PermanentError("currency_unsupported", "Pix is paid in BRL.")
    if not 1 <= request.amount_cents <= MAX_CENTS:
        raise port.PermanentError("amount_unsupported", f"A Pix code is for 1 to {MAX_CENTS} cents.")
    if request.due_date < today:
        raise port.PermanentError("due_date_past", f"The due date {request.due_date} has passed.")


def _as_charge(stored: PixKeyCharge, entries: Sequence[PixKeyEntry]) -> port.Charge:
    paid_cents = sum(each.amount_cents for each in entries if each.kind is EntryKind.PAYMENT)
    state = port.ChargeState.PAID if paid_cents >= stored.amount_cents else port.ChargeState.OPEN
    return port.Charge(
        charge_id=stored.txid,
        invoice_id=stored.invoice_id,
        attempt=stored.attempt,
        state=port.ChargeState.CANCELED if stored.is_canceled else state,
        amount_cents=stored.amount_cents,
        due_date=stored.due_date,
        pay=PayData(pix_code=stored.pix_code),
        entries=tuple(
            port.ChargeEntry(each.kind, each.reference, each.amount_cents, "BRL", each.occurred_at)
            for each in entries
        ),
        refunds=tuple(
            port.Refund(UUID(each.reference), port.RefundState.DONE, each.reference)
            for each in entries
            if each.kind is EntryKind.REFUND
        ),
        created_at=stored.created_at,
    )
