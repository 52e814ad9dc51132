"""An account with a row in every table, for tests with hand-written SQL."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from fatura.domain.audit import Origin
from fatura.domain.payments import EntryKind, EntrySource, ManualMethod, PaymentEntry
from fatura.domain.refunds import RefundRequest, RefundStage
from fatura.domain.statement_payments import StatementPayment
from fatura.gateways.adapters.pix_key import tables as pix_key
from fatura.gateways.adapters.pix_key.tables import PixKeyCharge
from fatura.store.billing import payment_entries
from fatura.store.charging import (
    charge_calls,
    charges,
    late_charge_checks,
    merchant_requests,
    poll_rounds,
    refund_requests,
    unmatched_charges,
)
from fatura.store.charging.charge_calls import StoredCall
from fatura.store.charging.merchant_requests import ManualPayment, MerchantRequest
from fatura.store.connections import gateway_webhooks
from fatura.store.db import Tx
from fatura.store.migrations.distribute import use_plain_policies
from fatura.store.restore import lost_invoices
from fatura.store.restore.lost_invoices import LostInvoice
from tests.support.databases import as_owner
from tests.support.operator import OPERATOR
from tests.support.world import Json, Merchant, item, plan_body

Connection = Any
HEALTH = """
    INSERT INTO connection_health (account_id, connection_id) SELECT g.account_id, g.connection_id
    FROM gateway_connection g WHERE g.account_id = $1 AND g.connection_id = $2 ON CONFLICT DO NOTHING
"""


async def populate(merchant: Merchant) -> dict[str, Json]:
    """Create at least one row in every table. Return ids of created rows by column name, such as `plan_id`."""
    await merchant.set_up_gateway(productCatalog=True)
    nobody_listens = {"url": "http://127.0.0.1:1/"}
    registered = await merchant.put("/v1/integration/webhook", nobody_listens)
    assert registered.status == 200, registered.body
    product = await merchant.product()
    plan = await merchant.plan(item(product, (20, 1, 3)), defaultPaymentMethod="card", maxInstallments=3)
    subscription = await merchant.enroll(plan)
    await _erase_one(merchant, plan)
    connection_id = subscription["gatewayConnectionId"]
    fault = {"connectionId": connection_id, "operation": "list_charges", "fault": "server_error", "times": 1}
    await merchant.made("/v1/sandbox/faults", fault)
    await merchant.run()
    await merchant.enroll(await merchant.plan(item(await merchant.variable_product())))
    await merchant.run()
    # Add an invoice with a total of zero. It is `paid` without a charge.
    await merchant.enroll(await merchant.plan(item(await merchant.product(0))))
    await merchant.run()
    await _propagate(merchant, connection_id)
    await _move(merchant)
    [invoice] = await merchant.invoices(subscription)
    assert invoice["status"] == "issued"
    async with merchant.deps.db.transaction(merchant.account_id) as tx:
        far_ahead = datetime(2090, 1, 1, tzinfo=UTC)
        newest = (await charges.newest(tx, [UUID(invoice["id"])])).values()
        await late_charge_checks.plan(tx, [next(iter(newest)).charge_id], next_check_at=far_ahead)
        lost = LostInvoice(
            subscription_id=UUID(subscription["id"]),
            cycle=99,
            invoice_id=uuid4(),
            connection_id=UUID(connection_id),
            attempt=1,
            amount_cents=1,
            charge_due_date=None,
            charge_ids=["sbx_lost"],
        )
        await lost_invoices.keep(tx, lost)
        await payment_entries.add(tx, [_received(UUID(invoice["id"]))])
        await _request(tx, UUID(invoice["id"]), in_progress_until=far_ahead)
        await tx.execute(HEALTH, UUID(connection_id))
        await unmatched_charges.add(
            tx, UUID(connection_id), ["sbx_unmatched"], found_at=far_ahead, next_look_at=far_ahead
        )
        await _call(tx, merchant, next(iter(newest)).charge_id, at=far_ahead)
        await gateway_webhooks.add(tx, [(UUID(connection_id), b"1" * 32)], received_at=far_ahead)
        polled = await poll_rounds.lock(tx, UUID(connection_id))
        await poll_rounds.save(tx, replace(polled, next_step_at=far_ahead))
        await pix_key.insert(tx, UUID(connection_id), _pix_charge(UUID(invoice["id"]), created_at=far_ahead))
        paid = StatementPayment("bank-1", "X", 1, far_ahead)
        await pix_key.insert_payments(tx, UUID(connection_id), [paid], now=far_ahead)
    await _refund(merchant, plan, invoice, next_attempt_at=far_ahead)
    return {
        "product_id": product["id"],
        "plan_id": plan["id"],
        "subscription_id": subscription["id"],
        "customer_id": subscription["customer"]["id"],
        "connection_id": connection_id,
        "invoice_id": invoice["id"],
    }


async def _call(tx: Tx, merchant: Merchant, charge_id: UUID, *, at: datetime) -> None:
    call_id = uuid4()
    sealed = merchant.deps.vault.seal(
        b"{}", place=charge_calls.SEALED_PLACE, account_id=merchant.account_id, row_id=str(call_id)
    )
    await charge_calls.add(tx, [StoredCall(call_id, charge_id, "create", at, 1, 200, sealed)], stored_at=at)


def _pix_charge(invoice_id: UUID, *, created_at: datetime) -> PixKeyCharge:
    """Return a charge of a Pix key, to test its table. Normally, only live accounts have such charges."""
    return PixKeyCharge(
        txid="X",
        invoice_id=invoice_id,
        attempt=1,
        amount_cents=1,
        due_date=created_at.date(),
        pix_code="x",
        is_canceled=False,
        created_at=created_at,
    )


async def _erase_one(merchant: Merchant, plan: Json) -> None:
    former = await merchant.enroll(plan, firstChargeDate="2035-01-10")
    await merchant.made(f"/v1/subscriptions/{former['id']}/cancel")
    await merchant.made(f"/v1/customers/{former['customer']['id']}/erase")


async def _propagate(merchant: Merchant, connection_id: str) -> None:
    """Propagate a plan with three subscribers: one is moved, one is skipped, and one has customized terms."""
    product = await merchant.product()
    plan = await merchant.plan(product)
    pix_only = (await merchant.connect(methods=["pix"]))["connectionId"]
    _, _, own = [
        await merchant.enroll(plan, gatewayConnectionId=each, firstChargeDate="2035-01-10")
        for each in (connection_id, pix_only, connection_id)
    ]
    terms = plan_body(product, defaultPaymentMethod="boleto")
    changed = await merchant.put(f"/v1/plans/{plan['id']}", terms)
    assert changed.status == 200, changed.body
    del terms["name"]
    await merchant.made(f"/v1/subscriptions/{own['id']}/customize", terms)
    answer = await merchant.made(f"/v1/plans/{plan['id']}/propagate", {})
    assert (answer["moved"], len(answer["skipped"])) == (1, 1)
    inactive = await merchant.patch(f"/v1/integration/gateways/{pix_only}", {"active": False})
    assert inactive.status == 200


async def _move(merchant: Merchant) -> None:
    """Move a pix and a boleto subscription to a connection for pix only. The boleto one is skipped."""
    plan = await merchant.plan()
    old, new = [
        (await merchant.connect(methods=each))["connectionId"] for each in (["pix", "boleto"], ["pix"])
    ]
    for method in ("pix", "boleto"):
        await merchant.enroll(
            plan, gatewayConnectionId=old, paymentMethod=method, firstChargeDate="2035-01-10"
        )
    answer = await merchant.made(f"/v1/integration/gateways/{old}/move", {"toConnectionId": new})
    assert (answer["moved"], len(answer["skipped"])) == (1, 1)
    for each in (old, new):
        inactive = await merchant.patch(f"/v1/integration/gateways/{each}", {"active": False})
        assert inactive.status == 200


async def _request(tx: Tx, invoice_id: UUID, *, in_progress_until: datetime) -> None:
    """Store a reissue and a manual payment that wait for the cancellation of the invoice's charge."""
    charge = (await charges.newest(tx, [invoice_id]))[invoice_id]
    payment = ManualPayment(
        amount_cents=charge.amount_cents,
        at_most_open=False,
        occurred_at=datetime(2033, 11, 20, tzinfo=UTC),
        method=ManualMethod.CASH,
        reference=None,
        note=None,
    )
    reissue = MerchantRequest(
        invoice_id=invoice_id,
        charge_id=charge.charge_id,
        request_id=uuid4(),
        number=1,
        requested_at=in_progress_until,
        in_progress_until=in_progress_until,
        asked_by=Origin(OPERATOR),
        terms=charge.terms,
    )
    await merchant_requests.save(tx, reissue)
    await merchant_requests.save(
        tx, replace(reissue, request_id=uuid4(), number=2, terms=None, payment=payment)
    )


async def _refund(merchant: Merchant, plan: Json, invoice: Json, *, next_attempt_at: datetime) -> None:
    """Refund a manual payment of another invoice. Then store an unsent refund of the given invoice's charge."""
    subscription = await merchant.enroll(plan)
    await merchant.run("generation")
    [other] = await merchant.invoices(subscription)
    await merchant.made(f"/v1/invoices/{other['id']}/payments", {"method": "cash"})
    await merchant.made(f"/v1/invoices/{other['id']}/refunds", {"amountCents": 1})
    invoice_id = UUID(invoice["id"])
    async with merchant.deps.db.transaction(merchant.account_id) as tx:
        charge = (await charges.newest(tx, [invoice_id]))[invoice_id]
        planned = RefundRequest(
            refund_id=uuid4(),
            invoice_id=invoice_id,
            charge_id=charge.charge_id,
            connection_id=charge.connection_id,
            gateway_charge_id=charge.gateway_invoice_id,
            stage=RefundStage.PLANNED,
            amount_cents=1,
            left_cents=1,
            currency="BRL",
            reason=None,
            created_at=datetime(2033, 11, 20, tzinfo=UTC),
            next_attempt_at=next_attempt_at,
        )
        await refund_requests.insert(tx, planned)


def _received(invoice_id: UUID) -> PaymentEntry:
    """Return a payment of one cent that was received without the gateway."""
    at = datetime(2033, 11, 20, tzinfo=UTC)
    return PaymentEntry(
        payment_entry_id=uuid4(),
        invoice_id=invoice_id,
        kind=EntryKind.PAYMENT,
        amount_cents=1,
        fee_cents=0,
        currency="BRL",
        occurred_at=at,
        source=EntrySource.MANUAL,
        recorded_at=at,
        method=ManualMethod.CASH,
    )


@asynccontextmanager
async def connected(url: str, account_id: object = "") -> AsyncGenerator[Connection]:
    """Open a connection as the engine's role. Set `app.account` to the account, or to an empty text."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"SET app.account = '{account_id}'")
        yield connection
    finally:
        await connection.close()


async def tables(connection: Connection) -> list[str]:
    """Return the names of the tables that have an account_id."""
    return list(await columns_of_tables(connection))


async def columns_of_tables(connection: Connection) -> dict[str, str]:
    """Return the columns of each table with an account_id, such as "account_id, plan_id".

    Generated columns are left out, because PostgreSQL accepts no values for them.
    """
    found = await connection.fetch(
        """
        SELECT c.relname, string_agg(a.attname, ', ' ORDER BY a.attnum) AS columns
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
            AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
        GROUP BY 1 HAVING bool_or(a.attname = 'account_id') ORDER BY 1
        """
    )
    return {row["relname"]: row["columns"] for row in found}


def insert_of(table: str, columns: str) -> str:
    """Return a statement that inserts the row $1, which is JSON."""
    return f"INSERT INTO {table} ({columns}) SELECT {columns} FROM jsonb_populate_record(NULL::{table}, $1::jsonb)"  # noqa: S608 - from the catalog


async def refused_by(connection: Connection, statement: str, *values: object) -> str:
    """Run a statement and roll it back. Return "yes" if it succeeds, else the violated constraint or the SQLSTATE."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(statement, *values)
    except asyncpg.PostgresError as error:
        return error.constraint_name or error.sqlstate or type(error).__name__
    else:
        return "yes"
    finally:
        await transaction.rollback()


async def with_plain_policies(url: str) -> None:
    """Replace the row policies of all tables by the policies that are used with Citus."""
    async with connected(as_owner(url)) as connection:
        for table in await tables(connection):
            await use_plain_policies(connection, table)
