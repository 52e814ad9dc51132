"""Functions that the test gateways of several runs share."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from fatura.domain.calendar import start_of_day
from fatura.domain.offer import PaymentMethod
from fatura.domain.payments import EntryKind
from fatura.gateways.port import (
    Capabilities,
    Charge,
    ChargeEntry,
    ChargeState,
    ConnectionConfig,
    Refund,
    RefundState,
)
from tests.faults.journal import Journal


def capabilities_of(config: ConnectionConfig) -> Capabilities:
    """Return the gateway's capabilities.

    The connection's setting `idempotency` says how the gateway protects against duplicate charges (default: only by
    look-ups). The setting `refunds` says how the gateway makes refunds (default: none).
    """
    return Capabilities(
        issues_charges=True,
        methods=tuple(PaymentMethod),
        max_installments=12,
        product_catalog=config.settings.get("productCatalog", False),
        idempotency=config.settings.get("idempotency", "lookup"),
        idempotency_ttl=timedelta(days=1),
        lists_charges=True,
        refunds=config.settings.get("refunds", "none"),
        polls_per_minute=None,
    )


def pay_if_due(journal: Journal, row: Mapping[str, Any], *, now: datetime) -> Mapping[str, Any]:
    """Mark an open charge as paid if its due date has begun. Return the charge's current row."""
    pays_at = start_of_day(date.fromisoformat(row["due_date"]))
    if row["state"] != "open" or pays_at > now:
        return row
    paid_at = max(pays_at.isoformat(), row["created_at"])
    journal.change(
        "UPDATE charge SET state = 'paid', paid_at = ? WHERE charge_id = ?", paid_at, row["charge_id"]
    )
    return {**row, "state": "paid", "paid_at": paid_at}


def charge_of(row: Mapping[str, Any], *, due_date: date | None = None) -> Charge:
    """Return the charge that a row of a journal describes.

    If `paid_at` is set, the charge was paid in full at this instant. `entries` are its other payments and refunds.
    """
    entries: Sequence[Mapping[str, Any]] = row.get("entries", ())
    return Charge(
        charge_id=row["charge_id"],
        invoice_id=UUID(row["invoice_id"]),
        attempt=row["attempt"],
        state=ChargeState(row["state"]),
        amount_cents=row["amount_cents"],
        due_date=due_date,
        entries=(*((payment_of(row),) if row["paid_at"] else ()), *map(_entry_of, entries)),
        refunds=tuple(
            Refund(UUID(each["refund_id"]), RefundState.DONE, each["reference"])
            for each in entries
            if each["refund_id"] is not None
        ),
        created_at=datetime.fromisoformat(row["created_at"]),
    )


def _entry_of(row: Mapping[str, Any]) -> ChargeEntry:
    occurred_at = datetime.fromisoformat(row["occurred_at"])
    return ChargeEntry(EntryKind(row["kind"]), row["reference"], row["amount_cents"], "BRL", occurred_at)


def payment_of(row: Mapping[str, Any]) -> ChargeEntry:
    """Return the payment of a charge that was paid in full at `paid_at`."""
    paid_at = datetime.fromisoformat(row["paid_at"])
    return ChargeEntry(EntryKind.PAYMENT, f"pay_{row['charge_id']}", row["amount_cents"], "BRL", paid_at)
