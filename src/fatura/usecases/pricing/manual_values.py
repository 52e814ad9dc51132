"""Set the value that a merchant enters for a pending item (spec 4.5, D-32)."""

from uuid import UUID

from fatura.domain.errors import ITEM_NOT_PENDING, EngineError, require
from fatura.domain.invoice import PricingSource, PricingStatus
from fatura.domain.subscription import ERASED
from fatura.store.billing import invoices as stored_invoices
from fatura.store.pricing import item_values, price_pulls
from fatura.store.pricing.item_values import ItemValue
from fatura.store.subscriptions import erasures
from fatura.usecases.billing import invoices
from fatura.usecases.pricing import price_answers
from fatura.usecases.transaction import Work
from fatura.views.invoices import InvoiceView


async def close(
    work: Work, invoice_id: UUID, item_id: UUID, *, amount_cents: int, description: str | None
) -> InvoiceView:
    """Set the value of a pending item and return the invoice.

    If no other item is pending, the invoice becomes `ready`, or `paid` if its total is zero. If the customer is erased,
    the description is not stored (D-229).

    Raises EngineError: `engine.not_found`, `engine.item_not_pending`.
    """
    states = await stored_invoices.lock(work.tx, [invoice_id])
    state = require(states.get(invoice_id), "invoice", id_=invoice_id)
    await work.refresh()
    found = await item_values.find_position(work.tx, invoice_id, item_id)
    position = require(found, "invoice item", id_=item_id)
    if state not in price_answers.TAKES_VALUES:
        raise EngineError(ITEM_NOT_PENDING, f"The invoice is {state}: its items await no value.")
    if description is not None and await erasures.is_erased(work.tx, invoice_id):
        description = ERASED
    value = ItemValue(
        invoice_id, position, PricingSource.MANUAL, PricingStatus.PRICED, amount_cents, description
    )
    if not await item_values.close(work.tx, [value]):
        raise EngineError(ITEM_NOT_PENDING, "The item has its value already, and it cannot change.")
    pulls = await price_pulls.lock(work.tx, [(invoice_id, position)])
    await price_pulls.save(work.tx, [pull.ended() for pull in pulls])
    await price_answers.report_values(work, [invoice_id])
    view = await invoices.read(work, invoice_id)
    entered = {"status": view.status, "itemId": str(item_id), "amountCents": amount_cents}
    work.audit(
        invoice_id,
        before={"status": state},
        after=entered if description is None else entered | {"description": description},
    )
    return view
