"""Replace the link of an invoice's pay page (D-258)."""

from uuid import UUID

from fatura.domain.errors import not_found
from fatura.store.billing import pay_links
from fatura.usecases.billing import invoices
from fatura.usecases.transaction import Work
from fatura.views.invoices import InvoiceView

_URL = "payUrl"


async def rotate(work: Work, invoice_id: UUID) -> InvoiceView:
    """Give the invoice another link, and return the invoice. From the commit on, the earlier link opens nothing.

    Raises EngineError: `engine.not_found`.
    """
    if not await pay_links.replace(work.tx, invoice_id):
        raise not_found("invoice", invoice_id)
    work.audit(invoice_id, before={}, after={}, hidden=(_URL,))
    return await invoices.read(work, invoice_id)
