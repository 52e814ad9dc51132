"""Queries for invoices. Only `store.billing.invoice_status` writes their status."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from fatura.domain.filters import InvoiceFilter
from fatura.domain.invoice import Invoice, InvoiceDetail, InvoiceItem, IssueFailure
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.payments import SHOWN_ENTRIES
from fatura.domain.subscription import Customer
from fatura.store.billing import payment_entries
from fatura.store.db import Row, Tx, record


async def lock(tx: Tx, invoice_ids: Sequence[UUID]) -> dict[UUID, InvoiceStatus]:
    """Lock invoices in id order and return their statuses.

    To avoid deadlocks, callers lock invoices before their items, charges and price calls.
    """
    rows = await tx.fetch(
        """
        SELECT v.invoice_id, v.status FROM invoice v
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) ORDER BY v.invoice_id FOR NO KEY UPDATE
        """,
        invoice_ids,
    )
    return {row["invoice_id"]: InvoiceStatus(row["status"]) for row in rows}


async def details(tx: Tx, invoice_ids: Sequence[UUID]) -> Mapping[UUID, InvoiceDetail]:
    """Return invoices by id, with items, the ledger's newest entries and the merchant's own ids (`externalRef`)."""
    rows = await _read(tx, invoice_ids)
    items = await items_of(tx, invoice_ids)
    with_entries = [row["invoice_id"] for row in rows if row["payment_count"]]
    payments = await payment_entries.newest_of_invoices(tx, with_entries, limit=SHOWN_ENTRIES)
    return {
        row["invoice_id"]: InvoiceDetail(
            invoice=_invoice(row),
            items=items[row["invoice_id"]],
            subscription_external_ref=row["subscription_external_ref"],
            payments=payments.get(row["invoice_id"], ()),
            payment_count=row["payment_count"],
        )
        for row in rows
    }


async def items_of(tx: Tx, invoice_ids: Sequence[UUID]) -> Mapping[UUID, Sequence[InvoiceItem]]:
    """Return the items of each invoice, by the invoice's id. The items are ordered by position."""
    rows = await tx.fetch(
        """
        SELECT i.invoice_id, i.item_id, i.product_id, i.product_name, i.pricing_source, i.pricing_status, i.months,
            i.monthly_price_cents, i.discount_percent, i.amount_cents, i.currency, i.description,
            p.external_ref AS product_external_ref
        FROM invoice_item i JOIN product p ON p.product_id = i.product_id
        WHERE i.account_id = $1 AND p.account_id = $1 AND i.invoice_id = ANY($2::uuid[])
        ORDER BY i.invoice_id, i.position
        """,
        invoice_ids,
    )
    found: dict[UUID, list[InvoiceItem]] = {}
    for row in rows:
        found.setdefault(row["invoice_id"], []).append(record(InvoiceItem, row))
    return found


async def count(tx: Tx, wanted: InvoiceFilter) -> int:
    rows = await tx.fetch_by_values(
        """
        SELECT count(*) AS total FROM invoice x
        WHERE x.account_id = $1 AND ($2::text IS NULL OR x.status = $2)
            AND ($3::uuid IS NULL OR x.subscription_id = $3)
            AND ($4::uuid IS NULL OR x.subscription_id = ANY(ARRAY(
                SELECT s.subscription_id FROM subscription s WHERE s.account_id = $1 AND s.customer_id = $4
            )))
            AND ($5::text IS NULL OR x.subscription_id = ANY(ARRAY(
                SELECT s.subscription_id FROM subscription s JOIN customer k ON k.customer_id = s.customer_id
                WHERE s.account_id = $1 AND k.account_id = $1 AND k.external_ref = $5
            )))
            AND ($6::date IS NULL OR x.due_date >= $6) AND ($7::date IS NULL OR x.due_date <= $7)
        """,
        *_values(wanted),
    )
    return rows[0]["total"]


async def page(tx: Tx, wanted: InvoiceFilter, *, skip: int, limit: int) -> Sequence[Invoice]:
    """Return a page of the invoices that match a filter, newest first."""
    rows = await tx.fetch_by_values(
        """
        SELECT x.invoice_id FROM invoice x
        WHERE x.account_id = $1 AND ($2::text IS NULL OR x.status = $2)
            AND ($3::uuid IS NULL OR x.subscription_id = $3)
            AND ($4::uuid IS NULL OR x.subscription_id = ANY(ARRAY(
                SELECT s.subscription_id FROM subscription s WHERE s.account_id = $1 AND s.customer_id = $4
            )))
            AND ($5::text IS NULL OR x.subscription_id = ANY(ARRAY(
                SELECT s.subscription_id FROM subscription s JOIN customer k ON k.customer_id = s.customer_id
                WHERE s.account_id = $1 AND k.account_id = $1 AND k.external_ref = $5
            )))
            AND ($6::date IS NULL OR x.due_date >= $6) AND ($7::date IS NULL OR x.due_date <= $7)
        ORDER BY x.invoice_id DESC OFFSET $8 LIMIT $9
        """,
        *_values(wanted),
        skip,
        limit,
    )
    return await _read_page(tx, rows)


async def page_from_end(tx: Tx, wanted: InvoiceFilter, *, skip: int, limit: int) -> Sequence[Invoice]:
    """Return a page, newest first. `skip` and `limit` count from the oldest invoice.

    For pages in the second half of the list, this is faster than `page`.
    """
    rows = await tx.fetch_by_values(
        """
        SELECT x.invoice_id FROM invoice x
        WHERE x.account_id = $1 AND ($2::text IS NULL OR x.status = $2)
            AND ($3::uuid IS NULL OR x.subscription_id = $3)
            AND ($4::uuid IS NULL OR x.subscription_id = ANY(ARRAY(
                SELECT s.subscription_id FROM subscription s WHERE s.account_id = $1 AND s.customer_id = $4
            )))
            AND ($5::text IS NULL OR x.subscription_id = ANY(ARRAY(
                SELECT s.subscription_id FROM subscription s JOIN customer k ON k.customer_id = s.customer_id
                WHERE s.account_id = $1 AND k.account_id = $1 AND k.external_ref = $5
            )))
            AND ($6::date IS NULL OR x.due_date >= $6) AND ($7::date IS NULL OR x.due_date <= $7)
        ORDER BY x.invoice_id OFFSET $8 LIMIT $9
        """,
        *_values(wanted),
        skip,
        limit,
    )
    return await _read_page(tx, rows)


async def page_of_few(tx: Tx, wanted: InvoiceFilter, *, skip: int, limit: int) -> Sequence[Invoice]:
    """Return the same page as `page`, for a filter that few invoices match.

    This function reads all invoices that match, and sorts them. For a filter by one due date, `page` could instead read
    all invoices of the account from the newest to the oldest.
    """
    rows = await tx.fetch_by_values(
        """
        SELECT f.invoice_id FROM (
            SELECT x.invoice_id FROM invoice x
            WHERE x.account_id = $1 AND ($2::text IS NULL OR x.status = $2)
                AND ($3::uuid IS NULL OR x.subscription_id = $3)
                AND ($4::uuid IS NULL OR x.subscription_id = ANY(ARRAY(
                    SELECT s.subscription_id FROM subscription s WHERE s.account_id = $1 AND s.customer_id = $4
                )))
                AND ($5::text IS NULL OR x.subscription_id = ANY(ARRAY(
                    SELECT s.subscription_id FROM subscription s JOIN customer k ON k.customer_id = s.customer_id
                    WHERE s.account_id = $1 AND k.account_id = $1 AND k.external_ref = $5
                )))
                AND ($6::date IS NULL OR x.due_date >= $6) AND ($7::date IS NULL OR x.due_date <= $7)
            OFFSET 0
        ) f
        ORDER BY f.invoice_id DESC OFFSET $8 LIMIT $9
        """,
        *_values(wanted),
        skip,
        limit,
    )
    return await _read_page(tx, rows)


def _values(wanted: InvoiceFilter) -> Sequence[object]:
    """Return the filter's values as the parameters `$2` to `$7` of `count` and the `page` functions."""
    return (
        wanted.status,
        wanted.subscription_id,
        wanted.customer_id,
        wanted.customer_external_ref,
        wanted.due_from,
        wanted.due_to,
    )


async def _read_page(tx: Tx, rows: Sequence[Row]) -> Sequence[Invoice]:
    return [_invoice(row) for row in await _read(tx, [row["invoice_id"] for row in rows])]


async def _read(tx: Tx, invoice_ids: Sequence[UUID]) -> Sequence[Row]:
    """Return the invoices with these ids and their customers, newest first."""
    return await tx.fetch(
        """
        SELECT v.invoice_id, v.subscription_id, v.cycle, v.status, v.due_date, v.payment_method, v.installments,
            v.total_cents, v.currency, v.gateway_invoice_id, v.issued_at, v.paid_at, v.refunded_at, v.disputed_at,
            v.canceled_at, v.issue_error_code, v.issue_error_detail, v.issue_error_at, v.created_at, v.pay_link_version,
            s.external_ref AS subscription_external_ref, c.customer_id, c.external_ref AS customer_external_ref,
            c.name AS customer_name, c.email AS customer_email, coalesce(m.payment_count, 0)::int4 AS payment_count,
            coalesce(m.paid_cents, 0)::int8 AS paid_cents, coalesce(m.refunded_cents, 0)::int8 AS refunded_cents
        FROM invoice v
        JOIN subscription s ON s.subscription_id = v.subscription_id
        JOIN customer c ON c.customer_id = s.customer_id
        LEFT JOIN (
            SELECT e.invoice_id, sum(e.amount_cents) FILTER (WHERE e.kind = 'payment') AS paid_cents,
                sum(e.amount_cents) FILTER (WHERE e.kind = 'refund') AS refunded_cents, count(*) AS payment_count
            FROM payment_entry e WHERE e.account_id = $1 AND e.invoice_id = ANY($2::uuid[]) GROUP BY e.invoice_id
        ) m ON m.invoice_id = v.invoice_id
        WHERE v.account_id = $1 AND s.account_id = $1 AND c.account_id = $1 AND v.invoice_id = ANY($2::uuid[])
        ORDER BY v.invoice_id DESC
        """,
        invoice_ids,
    )


def _invoice(row: Row) -> Invoice:
    code = row["issue_error_code"]
    error = None if code is None else IssueFailure(code, row["issue_error_detail"], row["issue_error_at"])
    return record(Invoice, row, customer=customer_of(row), issue_error=error)


def customer_of(row: Row) -> Customer:
    return Customer(
        row["customer_id"], row["customer_external_ref"], row["customer_name"], row["customer_email"]
    )
