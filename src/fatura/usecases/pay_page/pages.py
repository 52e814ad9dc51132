"""Find what a pay page shows, and pay a charge with the button of a sandbox account (D-258)."""

from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.charge import PAYABLE, ShownCharge
from fatura.domain.credentials import Mode
from fatura.domain.errors import NOT_FOUND, SANDBOX_CHARGE_CONFLICT, EngineError
from fatura.domain.invoice import InvoiceDetail
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.pay_links import PayLink
from fatura.domain.pay_page import PayPageLook
from fatura.domain.payments import EntryKind, open_cents
from fatura.domain.sandbox import MoveDetails, SandboxMove
from fatura.store.accounts import pay_pages
from fatura.store.accounts.pay_pages import PayPageOwner
from fatura.store.billing import invoice_charges, invoices, payment_entries
from fatura.store.db import Tx
from fatura.usecases.billing.invoices import SHOWN_CHARGES
from fatura.usecases.deps import Deps
from fatura.usecases.sandbox import sandbox_gateway

SHOWN = frozenset(
    {
        InvoiceStatus.READY,
        InvoiceStatus.ISSUED,
        InvoiceStatus.OVERDUE,
        InvoiceStatus.PAID,
        InvoiceStatus.CANCELED,
    }
)
"""States in which an invoice has a pay page. In the others, the amount is not known yet."""
_UNPAID = frozenset({InvoiceStatus.READY, InvoiceStatus.ISSUED, InvoiceStatus.OVERDUE})


@dataclass(frozen=True, slots=True)
class PayPage:
    """The contents of a pay page. `charge` is the charge that the payer can pay, if any.

    `open_cents` is 0 if the invoice is paid or canceled. `detail` has the whole ledger of the invoice.
    """

    account: Account
    look: PayPageLook
    detail: InvoiceDetail
    charge: ShownCharge | None
    open_cents: int

    @property
    def is_test(self) -> bool:
        return self.account.mode is Mode.SANDBOX

    @property
    def to_pay_cents(self) -> int:
        """Return the amount that the payer still has to pay of the charge; part payments reduce this amount."""
        if self.charge is None:
            return 0
        return max(min(self.open_cents, self.charge.amount_cents - self.charge_paid_cents), 0)

    @property
    def charge_paid_cents(self) -> int:
        """Return the sum of the recorded payments of the charge."""
        return sum(
            each.amount_cents
            for each in self.detail.payments
            if each.kind is EntryKind.PAYMENT
            and self.charge is not None
            and each.charge_id == self.charge.charge_id
        )


def read_token(deps: Deps, token: str) -> PayLink:
    """Return the link that a token contains, without a database query. Raises EngineError: `engine.not_found`."""
    link = deps.tagger.pay_links.read(token)
    if link is None:
        raise no_page()
    return link


async def find(deps: Deps, link: PayLink) -> PayPage | None:
    """Return the contents of a link's pay page, or None for every link that opens no page.

    The pages of one account use one database connection, however many are read at the same time.
    Raises DATABASE_FAILURES.
    """
    return await deps.pay_page_lookups.get(partial(_find, deps, link), group=link.account_id, key=link)


def no_page() -> EngineError:
    """Return the same error for every link that opens no page, so that the error tells nothing about other links."""
    return EngineError(NOT_FOUND, "This link opens no pay page.")


async def _find(deps: Deps, link: PayLink) -> PayPage | None:
    async with deps.db.transaction(link.account_id, snapshot=True) as tx:
        owner = await pay_pages.find_owner(tx)
        if owner is None or owner.is_suspended:
            return None
        detail = (await invoices.details(tx, [link.invoice_id])).get(link.invoice_id)
        if detail is None or detail.invoice.pay_link_version != link.version:
            return None
        if detail.invoice.status not in SHOWN:
            return None
        detail = await _with_all_payments(tx, detail)
        is_unpaid = detail.invoice.status in _UNPAID
        return PayPage(
            account=owner.account,
            look=owner.look,
            detail=detail,
            charge=await _payable(tx, owner, link.invoice_id, now=deps.clock()) if is_unpaid else None,
            open_cents=_open_cents(detail) if is_unpaid else 0,
        )


async def _with_all_payments(tx: Tx, detail: InvoiceDetail) -> InvoiceDetail:
    if len(detail.payments) == detail.payment_count:
        return detail
    invoice_id = detail.invoice.invoice_id
    return replace(detail, payments=(await payment_entries.of_invoices(tx, [invoice_id]))[invoice_id])


async def _payable(tx: Tx, owner: PayPageOwner, invoice_id: UUID, *, now: datetime) -> ShownCharge | None:
    """Return the charge that the payer can pay, or None.

    After a restore, return None until the comparison with the gateways has ended, because the charge may already be
    paid.
    """
    if owner.is_recovering:
        return None
    for each in await invoice_charges.of_invoice(tx, invoice_id, limit=SHOWN_CHARGES):
        until = each.pay.expires_at
        if each.stage in PAYABLE and (until is None or until > owner.account.now(now)):
            return each
    return None


def _open_cents(detail: InvoiceDetail) -> int:
    total_cents = detail.invoice.total_cents
    assert total_cents is not None, "an invoice in these states has its total"
    return open_cents(detail.payments, total_cents=total_cents)


async def pay_test(deps: Deps, page: PayPage) -> bool:
    """Pay the open amount of the charge on a sandbox account's page. Return whether the charge is paid now.

    The buttons of one account use one database connection, however many are pressed at the same time.
    Raises EngineError: `engine.not_found` for the page of a live account. Raises DATABASE_FAILURES.
    """
    if not page.is_test:
        raise no_page()
    if page.charge is None or page.charge.gateway_invoice_id is None or not page.to_pay_cents:
        return False
    details = MoveDetails(up_to_cents=page.charge_paid_cents + page.to_pay_cents)
    pay = partial(_pay, deps, page.account, page.charge.gateway_invoice_id, details)
    group = (page.account.account_id, "button")
    return await deps.pay_page_lookups.get(pay, group=group, key=page.charge.charge_id)


async def _pay(deps: Deps, account: Account, charge_id: str, details: MoveDetails) -> bool:
    """Pay a charge as `POST /v1/sandbox/charges/{chargeId}/pay` does, unless it was paid or canceled meanwhile."""
    try:
        await sandbox_gateway.move_charge(
            deps, account, charge_id, SandboxMove.PAY, details=details, draft=None
        )
    except EngineError as error:
        if error.problem not in {NOT_FOUND, SANDBOX_CHARGE_CONFLICT}:
            raise
        return False
    return True
