"""Read invoices (spec 4.5)."""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

from fatura.domain.errors import require
from fatura.domain.filters import InvoiceFilter
from fatura.domain.invoice import Invoice
from fatura.domain.invoice_states import InvoiceStatus
from fatura.store import counters
from fatura.store.billing import invoice_charges, invoice_refunds, invoices, payment_entries
from fatura.store.pricing import pricing_attempts
from fatura.usecases.paging import Page
from fatura.usecases.pay_urls import pay_url
from fatura.usecases.transaction import Work
from fatura.views.invoices import InvoicePageView, InvoiceSummaryView, InvoiceView
from fatura.views.payments import PaymentEntryPageView, PaymentEntryView

SHOWN_ATTEMPTS_PER_ITEM = 20
"""Number of newest price attempts that GET /v1/invoices/{invoiceId} shows for each item.

Older attempts are left out, because each attempt may hold a body of 64 KiB. Attempts that returned a value are always
shown.
"""
WHOLE_BODIES_BYTES = 256 << 10
"""The newest bodies of attempts are shown whole, up to this number of bytes together (D-105)."""
SHOWN_CHARS_OF_OLDER_BODIES = 2_000

SHOWN_CHARGES = 100
"""Number of newest charges that GET /v1/invoices/{invoiceId} shows. Many refusals or reissues lead to more charges."""

SHOWN_REFUNDS = 100
"""Number of newest refunds that GET /v1/invoices/{invoiceId} shows."""

MAX_SORTED = 50_000
"""If at most this many invoices match a filter by due date, all of them are read and sorted, in about 25 ms."""


async def read(work: Work, invoice_id: UUID) -> InvoiceView:
    """Return an invoice with its items, price attempts, charges and refunds. Raises EngineError: `engine.not_found`."""
    details = await invoices.details(work.tx, [invoice_id])
    detail = require(details.get(invoice_id), "invoice", id_=invoice_id)
    attempts = await pricing_attempts.of_invoice(
        work.tx,
        invoice_id,
        limit_per_item=SHOWN_ATTEMPTS_PER_ITEM,
        whole_bodies_bytes=WHOLE_BODIES_BYTES,
        max_cut_chars=SHOWN_CHARS_OF_OLDER_BODIES,
    )
    charges = await invoice_charges.of_invoice(work.tx, invoice_id, limit=SHOWN_CHARGES)
    refunds = await invoice_refunds.of_invoice(work.tx, invoice_id, limit=SHOWN_REFUNDS)
    return InvoiceView.of_detail(
        detail, attempts, charges=charges, refunds=refunds, pay_url=pay_url(work, detail.invoice)
    )


async def read_payments(work: Work, page: Page, invoice_id: UUID) -> PaymentEntryPageView:
    """Return a page of an invoice's ledger, newest entries first. Raises EngineError: `engine.not_found`."""
    details = await invoices.details(work.tx, [invoice_id])
    detail = require(details.get(invoice_id), "invoice", id_=invoice_id)
    records = partial(payment_entries.page, work.tx, invoice_id)
    return await page.read(PaymentEntryPageView, records, of=PaymentEntryView.of, total=detail.payment_count)


async def read_page(work: Work, page: Page, wanted: InvoiceFilter) -> InvoicePageView:
    """Return a page of the invoices that match a filter, newest first (spec 4.5, D-16)."""
    if wanted == InvoiceFilter(status=wanted.status):
        totals = await counters.totals(work.tx)
        states = [wanted.status] if wanted.status else InvoiceStatus
        total = sum(totals[f"invoices_{each}"] for each in states)
    else:
        total = await invoices.count(work.tx, wanted)
    records = partial(_read_records, work, wanted, total=total)
    return await page.read(InvoicePageView, records, of=InvoiceSummaryView.of, total=total)


async def _read_records(
    work: Work, wanted: InvoiceFilter, *, total: int, skip: int, limit: int
) -> Sequence[Invoice]:
    """Read a page of the list. Read from the end of the list if fewer rows must be skipped there.

    If the list is filtered by due date and has at most MAX_SORTED invoices, read and sort all of them instead.
    """
    is_by_date = wanted.due_from is not None or wanted.due_to is not None
    if is_by_date and total <= MAX_SORTED:
        return await invoices.page_of_few(work.tx, wanted, skip=skip, limit=limit)
    skip_from_end = max(total - skip - limit, 0)
    if skip_from_end < skip:
        limit = min(limit, total - skip)
        return await invoices.page_from_end(work.tx, wanted, skip=skip_from_end, limit=limit)
    return await invoices.page(work.tx, wanted, skip=skip, limit=limit)
