"""Test `ledgers`: it finds nothing after correct billing, and reports every error that is injected into a ledger."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fatura.domain.calendar import local_date
from fatura.domain.credentials import Mode
from fatura.store.vault import new_key
from fatura.usecases.accounts import accounts
from fatura.usecases.deps import Deps
from fatura.workers.lanes import LANES
from tests.faults import ledgers
from tests.faults.clock import FastClock, started
from tests.faults.engine import open_engine
from tests.faults.external_gateway import external_providers
from tests.faults.external_process import external, share_secrets
from tests.faults.gateway.faults import GatewayFaults
from tests.faults.journal import JOURNAL_FILE, Journal
from tests.support.operator import OPERATOR
from tests.support.world import Json, Merchant, api_client, run_until_idle, subscription_body

pytestmark = pytest.mark.faults

JOURNAL_ERRORS = (
    (
        (
            "INSERT INTO charge (charge_id, account_id, connection_id, invoice_id, attempt, amount_cents, due_date, "
            "state, created_at, visible_at, paid_at) SELECT 'out_other', account_id, connection_id, invoice_id, "
            "attempt, amount_cents, due_date, state, created_at, visible_at, paid_at FROM charge WHERE state = 'paid'"
        ),
        ["charged twice", "not recorded, but at the gateway"],
    ),
    (
        "INSERT INTO charge (charge_id, invoice_id, state) VALUES ('out_other', 'nobody', 'open')",
        ["charged for an invoice that does not exist"],
    ),
    (
        "UPDATE charge SET amount_cents = amount_cents + 1 WHERE state = 'paid'",
        [
            "charged another amount than the total",
            "recorded, but not at the gateway",
            "not recorded, but at the gateway",
        ],
    ),
    ("UPDATE charge SET account_id = 'other' WHERE state = 'paid'", ["charged by another account's gateway"]),
    (
        "DELETE FROM charge WHERE state = 'paid'",
        ["paid without a charge", "recorded, but not at the gateway"],
    ),
    ("DELETE FROM charge WHERE state = 'open'", ["issued without a charge"]),
    (
        "UPDATE charge SET charge_id = 'out_other' WHERE state = 'paid'",
        [
            "paid by another charge than the gateway's",
            "recorded, but not at the gateway",
            "not recorded, but at the gateway",
        ],
    ),
    (
        "UPDATE charge SET charge_id = 'out_other' WHERE state = 'open'",
        ["issued by another charge than the gateway's"],
    ),
    ("UPDATE charge SET state = 'open' WHERE state = 'paid'", ["paid, but not at the gateway"]),
    (
        "UPDATE charge SET state = 'paid' WHERE state = 'open'",
        ["paid at the gateway, but not in the engine"],
    ),
    (
        "UPDATE charge SET state = 'open' WHERE state = 'canceled'",
        ["canceled, with a payable charge"],
    ),
    (
        "UPDATE charge SET state = 'paid' WHERE state = 'canceled'",
        ["paid after cancellation without an event"],
    ),
    (
        (
            "INSERT INTO entry SELECT charge_id, 'refund', 'a refund', 1, created_at, 'one' FROM charge "
            "WHERE state = 'paid'"
        ),
        ["not recorded, but at the gateway"],
    ),
    (
        (
            "INSERT INTO entry SELECT charge_id, 'refund', column1, 1, created_at, 'one' FROM charge, "
            "(VALUES ('a refund'), ('another')) WHERE state = 'paid'"
        ),
        ["not recorded, but at the gateway", "refunded twice"],
    ),
    (
        "UPDATE price_answer SET body = '{\"amount\": 1}' WHERE cycle = 1",
        ["priced with an amount that the endpoint never answered"],
    ),
    ("UPDATE price_answer SET status = 500", ["priced with an amount that the endpoint never answered"]),
    ("UPDATE price_answer SET verified = 0", ["price calls not signed"]),
    ("UPDATE arrival SET verified = 0 WHERE rowid = 1", ["events not signed"]),
    ("DELETE FROM arrival WHERE rowid = 1", ["events that never arrived"]),
    ("UPDATE arrival SET status = 500 WHERE rowid = 1", ["events that never arrived"]),
    (
        "UPDATE arrival SET body = replace(body, '\"paid\"', '\"issued\"') WHERE body LIKE '%invoice.paid%'",
        ["events that differ from the stream"],
    ),
    (
        "UPDATE arrival SET rowid = rowid + 1000 WHERE body LIKE '%invoice.issued%'",
        ["events of an invoice that arrived out of order"],
    ),
)
"""Changes of the journal, each with the exact findings that it must cause."""
TABLE_ERRORS = (
    (
        (
            "UPDATE invoice SET status = 'ready', gateway_invoice_id = NULL, issued_at = NULL, charge_due_date = NULL "
            "WHERE status = 'issued'"
        ),
        ["never charged"],
    ),
    (
        (
            "UPDATE invoice SET status = 'draft', total_cents = NULL, gateway_invoice_id = NULL, issued_at = NULL, "
            "charge_due_date = NULL WHERE status = 'issued'"
        ),
        ["charged another amount than the total", "charged before it was priced"],
    ),
    (
        (
            "UPDATE invoice SET total_cents = 0, gateway_invoice_id = NULL, issued_at = NULL, charge_due_date = NULL "
            "WHERE status = 'paid'"
        ),
        ["charged another amount than the total", "charged although the total is zero"],
    ),
)
"""Changes of the engine's tables while constraints are disabled, each with the exact findings that it must cause."""


@dataclass(frozen=True, slots=True)
class OpenLedgers:
    deps: Deps
    url: str
    journal: Journal
    root: Any

    async def reported(self) -> Sequence[str]:
        problems = await ledgers.check(self.deps, self.url, self.journal)
        return [each.split(":")[0] for each in problems if not each.startswith("invariant ")]


@asynccontextmanager
async def _open_ledgers(url: str, folder: Path) -> AsyncGenerator[OpenLedgers]:
    """Yield the ledgers of an account with three invoices: one paid, one canceled, one issued."""
    clock = started(speed=1, jumps=folder / "clock")
    share_secrets(folder, {})
    with external(folder, clock=clock, faults=GatewayFaults()) as gateway_url:
        providers = external_providers(gateway_url, clock=clock)
        async with open_engine(url, ring=new_key(), clock=clock, providers=providers) as deps:
            async with api_client(deps) as client:
                opened = await accounts.open_account(
                    deps, name="OpenLedgers", mode=Mode.SANDBOX, opened_by=OPERATOR
                )
                share_secrets(folder, {str(opened.account_id): [opened.secret]})
                await _bill(Merchant(deps, client, opened), clock, gateway_url)
            root = await asyncpg.connect(url.replace("://fatura@", "://postgres@"))
            journal = Journal(folder / JOURNAL_FILE)
            try:
                yield OpenLedgers(deps, url, journal, root)
            finally:
                journal.close()
                await root.close()


async def _bill(merchant: Merchant, clock: FastClock, gateway_url: str) -> None:
    connection = {"provider": "outside", "credentials": {}, "settings": {}}
    connection_id = (await merchant.made("/v1/integration/gateways", connection))["connectionId"]
    webhook = {"url": f"{gateway_url}/webhook/{merchant.account_id}"}
    assert (await merchant.put("/v1/integration/webhook", webhook)).status == 200
    pricing = {
        "mode": "endpoint",
        "url": f"{gateway_url}/price/{merchant.account_id}/500",
        "capCents": 100_000,
    }
    usage = await merchant.made("/v1/products", {"name": "Usage", "pricing": pricing})
    plan = await merchant.plan(await merchant.product(), usage)

    async def enroll() -> Json:
        due_date = (local_date(clock()) + timedelta(days=2)).isoformat()
        terms = {"gatewayConnectionId": connection_id, "firstChargeDate": due_date}
        subscription = await merchant.made("/v1/subscriptions", subscription_body(plan, **terms))
        await run_until_idle(merchant.deps, LANES)
        return (await merchant.invoices(subscription))[0]

    await enroll()
    clock.jump(timedelta(days=4).total_seconds())
    await run_until_idle(merchant.deps, LANES)
    canceled = await enroll()
    assert (await merchant.post(f"/v1/invoices/{canceled['id']}/cancel")).status == 200
    await enroll()
    assert [each["status"] for each in await merchant.invoices()] == ["paid", "canceled", "issued"]


async def test_each_injected_error_is_reported(database_url: str, tmp_path: Path) -> None:
    """[D-33]"""
    async with _open_ledgers(database_url, tmp_path) as ledgers_:
        assert await ledgers_.reported() == []
        for change, sentences in JOURNAL_ERRORS:
            saved = {name: list(ledgers_.journal.read(read)) for name, read in JOURNAL_TABLES.items()}
            assert ledgers_.journal.change(change) > 0, change
            assert await ledgers_.reported() == sentences, change
            for name, rows in saved.items():
                ledgers_.journal.change("DELETE FROM " + name)  # noqa: S608 - our own tables
                for row in rows:
                    ledgers_.journal.write(name, **row)
        await ledgers_.root.execute(
            "SET session_replication_role = replica; CREATE TABLE kept AS TABLE invoice"
        )
        await ledgers_.root.execute("ALTER TABLE invoice DROP CONSTRAINT invoice_charge")
        for change, sentences in TABLE_ERRORS:
            assert await ledgers_.root.execute(change) == "UPDATE 1", change
            assert await ledgers_.reported() == sentences, change
            await ledgers_.root.execute("DELETE FROM invoice; INSERT INTO invoice TABLE kept")
        assert await ledgers_.reported() == []


JOURNAL_TABLES = {
    "charge": "SELECT rowid, * FROM charge",
    "entry": "SELECT rowid, * FROM entry",
    "price_answer": "SELECT rowid, * FROM price_answer",
    "arrival": "SELECT rowid, * FROM arrival",
}
