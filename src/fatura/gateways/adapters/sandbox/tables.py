"""SQL of the sandbox's own tables: its charges, products and queued faults (D-46).

These statements use no table of the engine, and the engine's `store` does not use these tables.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any, LiteralString, Protocol
from uuid import UUID

import msgspec

from fatura.domain.sandbox import (
    SandboxCharge,
    SandboxEntry,
    SandboxFault,
    SandboxOperation,
    SandboxProduct,
)

CHARGES_A_PAGE = 500
"""Number of charges in a page of `charges_since`."""


class Tx(Protocol):
    """A transaction of one account. `$1` of each statement is the account's id. `store.db` implements this protocol."""

    async def fetch(self, sql: LiteralString, *values: object) -> Sequence[Any]: ...

    async def fetchrow(self, sql: LiteralString, *values: object) -> Any: ...

    async def fetchval(self, sql: LiteralString, *values: object) -> Any: ...

    async def execute(self, sql: LiteralString, *values: object) -> int:
        """Execute a statement and return the number of affected rows."""
        ...

    async def clock_time(self) -> datetime:
        """Return the time of the database."""
        ...


class Database(Protocol):
    """The methods of `store.db.Database` that the sandbox uses."""

    def transaction(self, account_id: UUID) -> AbstractAsyncContextManager[Tx]: ...


async def insert_charge(tx: Tx, charge: SandboxCharge) -> None:
    """Insert a charge; several charges may have the same reference."""
    await tx.execute(
        """
        INSERT INTO sandbox_charge (account_id, charge_id, connection_id, invoice_id, attempt, amount_cents,
            currency, payment_method, installments, due_date, status, entries, is_double, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
        """,
        charge.charge_id,
        charge.connection_id,
        charge.invoice_id,
        charge.attempt,
        charge.amount_cents,
        charge.currency,
        charge.method,
        charge.installments,
        charge.due_date,
        charge.status,
        _encoded(charge),
        charge.is_double,
        charge.created_at,
    )


async def find_charge(tx: Tx, connection_id: UUID, charge_id: str) -> SandboxCharge | None:
    row = await tx.fetchrow(
        """
        SELECT c.charge_id, c.connection_id, c.invoice_id, c.attempt, c.amount_cents, c.currency,
            c.payment_method AS method, c.installments, c.due_date, c.status, c.entries, c.is_double, c.created_at
        FROM sandbox_charge c WHERE c.account_id = $1 AND c.connection_id = $2 AND c.charge_id = $3
        """,
        connection_id,
        charge_id,
    )
    return None if row is None else _charge(row)


async def charges(tx: Tx, connection_id: UUID, invoice_id: UUID | None, *, limit: int) -> list[SandboxCharge]:
    """Return the newest charges, newest first: of an invoice if `invoice_id` is given, else of the connection."""
    rows = await tx.fetch(
        """
        SELECT c.charge_id, c.connection_id, c.invoice_id, c.attempt, c.amount_cents, c.currency,
            c.payment_method AS method, c.installments, c.due_date, c.status, c.entries, c.is_double, c.created_at
        FROM sandbox_charge c
        WHERE c.account_id = $1 AND c.connection_id = $2 AND ($3::uuid IS NULL OR c.invoice_id = $3)
        ORDER BY c.charge_id DESC LIMIT $4
        """,
        connection_id,
        invoice_id,
        limit,
    )
    return [_charge(row) for row in rows]


async def count_doubles(tx: Tx, connection_id: UUID, invoice_id: UUID) -> int:
    """Return the number of second charges that `SandboxGateway.double_charge` has made for an invoice."""
    return await tx.fetchval(
        """
        SELECT count(*) FROM sandbox_charge c
        WHERE c.account_id = $1 AND c.connection_id = $2 AND c.invoice_id = $3 AND c.is_double
        """,
        connection_id,
        invoice_id,
    )


async def charges_since(tx: Tx, connection_id: UUID, since: datetime, *, after: str) -> list[SandboxCharge]:
    """Return a page of the charges created at or after `since`, oldest first.

    Charges created at `since` are in the page only if their id is greater than `after`.
    """
    rows = await tx.fetch(
        """
        SELECT c.charge_id, c.connection_id, c.invoice_id, c.attempt, c.amount_cents, c.currency,
            c.payment_method AS method, c.installments, c.due_date, c.status, c.entries, c.is_double, c.created_at
        FROM sandbox_charge c
        WHERE c.account_id = $1 AND c.connection_id = $2 AND (c.created_at, c.charge_id) > ($3, $4)
        ORDER BY c.created_at, c.charge_id LIMIT $5
        """,
        connection_id,
        since,
        after,
        CHARGES_A_PAGE,
    )
    return [_charge(row) for row in rows]


async def lock_charges(tx: Tx, connection_id: UUID, charge_ids: Sequence[str]) -> list[SandboxCharge]:
    """Lock charges and return them, in the order of their ids."""
    rows = await tx.fetch(
        """
        SELECT c.charge_id, c.connection_id, c.invoice_id, c.attempt, c.amount_cents, c.currency,
            c.payment_method AS method, c.installments, c.due_date, c.status, c.entries, c.is_double, c.created_at
        FROM sandbox_charge c
        WHERE c.account_id = $1 AND c.connection_id = $2 AND c.charge_id = ANY($3::text[])
        ORDER BY c.charge_id FOR NO KEY UPDATE
        """,
        connection_id,
        charge_ids,
    )
    return [_charge(row) for row in rows]


async def update_charges(tx: Tx, charges: Sequence[SandboxCharge]) -> None:
    """Write the statuses and entries of locked charges."""
    await tx.execute(
        """
        UPDATE sandbox_charge c SET status = u.status, entries = u.entries::jsonb
        FROM unnest($2::text[], $3::text[], $4::text[]) AS u (charge_id, status, entries)
        WHERE c.account_id = $1 AND c.charge_id = u.charge_id
        """,
        [charge.charge_id for charge in charges],
        [charge.status for charge in charges],
        [_encoded(charge) for charge in charges],
    )


async def delete_charge(tx: Tx, charge_id: str) -> None:
    await tx.execute("DELETE FROM sandbox_charge c WHERE c.account_id = $1 AND c.charge_id = $2", charge_id)


async def upsert_product(tx: Tx, product: SandboxProduct) -> None:
    await tx.execute(
        """
        INSERT INTO sandbox_product (account_id, connection_id, product_id, name, description, created_at)
        VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (account_id, connection_id, product_id)
        DO UPDATE SET name = EXCLUDED.name, description = EXCLUDED.description
        """,
        product.connection_id,
        product.product_id,
        product.name,
        product.description,
        product.created_at,
    )


async def products(tx: Tx, connection_id: UUID, *, limit: int) -> list[SandboxProduct]:
    """Return the newest products of the connection's catalog, newest first."""
    rows = await tx.fetch(
        """
        SELECT p.connection_id, p.product_id, p.name, p.description, p.created_at
        FROM sandbox_product p WHERE p.account_id = $1 AND p.connection_id = $2
        ORDER BY p.product_id DESC LIMIT $3
        """,
        connection_id,
        limit,
    )
    return [SandboxProduct(**row) for row in rows]


async def insert_fault(
    tx: Tx,
    connection_id: UUID,
    fault_id: UUID,
    *,
    operation: SandboxOperation,
    fault: SandboxFault,
    times: int | None,
    seconds: int | None,
) -> None:
    """Queue a fault behind the existing faults, and delete the faults that have ended.

    `seconds` count from now, by the database's clock.
    """
    await tx.execute(
        """
        DELETE FROM sandbox_fault f
        WHERE f.account_id = $1 AND f.connection_id = $2 AND (f.times_left = 0 OR f.active_until <= now())
        """,
        connection_id,
    )
    active_until = None if seconds is None else await tx.clock_time() + timedelta(seconds=seconds)
    await tx.execute(
        """
        INSERT INTO sandbox_fault (account_id, sandbox_fault_id, connection_id, operation, fault, times_left,
            active_until)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        """,
        fault_id,
        connection_id,
        operation,
        fault,
        times,
        active_until,
    )


async def take_fault(tx: Tx, connection_id: UUID, operation: SandboxOperation) -> SandboxFault | None:
    """Return the oldest queued fault of the operation or of `all`, or None. Decrement the fault's `times_left`.

    A fault with `active_until` has no `times_left`. If callers take a fault concurrently, each waits for the previous
    caller's transaction to end.
    """
    fault = await tx.fetchval(
        """
        WITH oldest AS MATERIALIZED (
            SELECT w.sandbox_fault_id FROM sandbox_fault w
            WHERE w.account_id = $1 AND w.connection_id = $2 AND w.operation IN ($3, 'all')
                AND (w.times_left > 0 OR w.active_until > now())
            ORDER BY w.sandbox_fault_id LIMIT 1 FOR UPDATE
        )
        UPDATE sandbox_fault f SET times_left = f.times_left - 1 FROM oldest
        WHERE f.account_id = $1 AND f.sandbox_fault_id = oldest.sandbox_fault_id
        RETURNING f.fault
        """,
        connection_id,
        operation,
    )
    return None if fault is None else SandboxFault(fault)


async def delete_faults(tx: Tx, connection_id: UUID) -> None:
    await tx.execute(
        "DELETE FROM sandbox_fault f WHERE f.account_id = $1 AND f.connection_id = $2", connection_id
    )


def _encoded(charge: SandboxCharge) -> str:
    return msgspec.json.encode(charge.entries).decode()


def _charge(row: Any) -> SandboxCharge:
    columns = {**row}
    entries = msgspec.json.decode(columns.pop("entries"), type=tuple[SandboxEntry, ...])
    charge = msgspec.convert(columns, SandboxCharge, builtin_types=(UUID, date, datetime))
    return replace(charge, entries=entries)
