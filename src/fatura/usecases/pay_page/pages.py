"""Find what a pay page shows, and pay a charge with the button of a sandbox account (D-258)."""

from dataclasses import dataclass
from functools import partial

from fatura.domain.account import Account
from fatura.domain.charge import PAYABLE, ShownCharge
from fatura.domain.credentials import Mode
from fatura.domain.errors import NOT_FOUND, SANDBOX_CHARGE_CONFLICT, EngineError
from fatura.domain.invoice import InvoiceDetail
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.pay_links import PayLink
from fatura.domain.pay_page import PayPageLook
from fatura.domain.payments import open_cents
from fatura.domain.sandbox import SandboxMove
from fatura.store.accounts import pay_pages
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
    """What a pay page shows. `charge` is the charge that the payer can pay. `open_cents` is 0 if nothing is to pay."""

    account: Account
    look: PayPageLook
    detail: InvoiceDetail
    charge: ShownCharge | None
    open_cents: int

    @property
    def is_test(self) -> bool:
        return self.account.mode is Mode.SANDBOX


def read_token(deps: Deps, token: str) -> PayLink:
    """Return what a token names, without a query. Raises EngineError: `engine.not_found`."""
    link = deps.tagger.pay_links.read(token)
    if link is None:
        raise no_page()
    return link


async def find(deps: Deps, link: PayLink) -> PayPage:
    """Return what the pay page of a link shows.

    The pages of one account use one database connection, however many are read at the same time.
    Raises EngineError: `engine.not_found`, for every link that opens nothing. Raises DATABASE_FAILURES.
    """
    page = await deps.pay_page_lookups.get(partial(_find, deps, link), group=link.account_id, key=link)
    if page is None:
        raise no_page()
    return page


def no_page() -> EngineError:
    """Return the same error for every link that opens nothing, so that it tells nothing about other links."""
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
        is_unpaid = detail.invoice.status in _UNPAID
        charges = (
            await invoice_charges.of_invoice(tx, link.invoice_id, limit=SHOWN_CHARGES) if is_unpaid else ()
        )
        return PayPage(
            account=owner.account,
            look=owner.look,
            detail=detail,
            charge=next((each for each in charges if each.stage in PAYABLE), None),
            open_cents=await _open_cents(tx, detail) if is_unpaid else 0,
        )


async def _open_cents(tx: Tx, detail: InvoiceDetail) -> int:
    total_cents = detail.invoice.total_cents
    assert total_cents is not None, "an invoice in these states has its total"
    if not detail.payment_count:
        return total_cents
    invoice_id = detail.invoice.invoice_id
    ledger = (await payment_entries.of_invoices(tx, [invoice_id])).get(invoice_id, ())
    return open_cents(ledger, total_cents=total_cents)


async def pay_test(deps: Deps, page: PayPage) -> None:
    """Pay the charge of a sandbox account's page, as `POST /v1/sandbox/charges/{chargeId}/pay` does.

    If the charge was paid or canceled since the page was shown, do nothing.
    Raises EngineError: `engine.not_found` for the page of a live account.
    """
    if not page.is_test:
        raise no_page()
    if page.charge is None or page.charge.gateway_invoice_id is None:
        return
    charge_id = page.charge.gateway_invoice_id
    try:
        await sandbox_gateway.move_charge(deps, page.account, charge_id, SandboxMove.PAY, draft=None)
    except EngineError as error:
        if error.problem not in {NOT_FOUND, SANDBOX_CHARGE_CONFLICT}:
            raise
