"""One account that goes through many backups and restores."""

import asyncio
import json
import random
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg

from fatura.domain.credentials import Mode
from fatura.store.vault import new_key
from fatura.usecases.accounts import accounts
from fatura.usecases.connections import gateway_connections
from fatura.usecases.deps import Deps
from fatura.usecases.restore import comparison
from fatura.usecases.transaction import Work, in_transaction, load_account
from fatura.workers.lanes import LANES
from tests.conftest import database_url_of
from tests.faults.engine import open_engine
from tests.faults.journal import Journal
from tests.faults.restore.compare_process import counting
from tests.faults.restore.gateway import PROVIDER, journal_providers, pay_part
from tests.support.databases import as_superuser
from tests.support.operator import OPERATOR
from tests.support.world import Json, Merchant, api_client, item, run_until_idle

BEGIN = datetime(2033, 1, 10, 15, tzinfo=UTC)
OTHER_PRICE_EVERY = 6
"""After a restore, on average every sixth manual value differs from the value before the restore."""


@dataclass(slots=True)
class Story:
    """The account that all trials of one story use, with its database and its gateway's journal.

    `now` is the clock of all engines on this account. `rng` makes all random choices.
    """

    server_url: str
    folder: Path
    rng: random.Random
    seed: str
    ring: str = field(default_factory=new_key)
    name: str = field(default_factory=lambda: f"restore_{uuid4().hex}")
    now: datetime = BEGIN
    restores: int = 0
    opened: accounts.OpenedAccount | None = None
    subscriptions: list[str] = field(default_factory=list[str])
    statements_left: int = 0
    running: "asyncio.Task[Any] | None" = None
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.journal = Journal(self.folder / f"{self.name}.sqlite")

    @property
    def url(self) -> str:
        return database_url_of(self.server_url, self.name)

    @asynccontextmanager
    async def engine(self) -> AsyncGenerator[Merchant]:
        engine = open_engine(
            self.url,
            ring=self.ring,
            clock=lambda: self.now,
            providers=journal_providers(self.journal),
            connection_class=counting(self._count),
        )
        async with engine as deps:
            if self.opened is None:
                self.opened = await accounts.open_account(
                    deps, name="Restored", mode=Mode.LIVE, opened_by=OPERATOR
                )
                account = await load_account(deps, self.opened.account_id)
                await in_transaction(deps, account, _connect)
            async with api_client(deps) as client:
                yield Merchant(deps, client, self.opened)

    def _count(self) -> None:
        """Count an SQL statement. Cancel the running task when `statements_left` reaches zero."""
        self.statements_left -= 1
        if not self.statements_left and self.running is not None:
            self.running.cancel()

    async def work(self, deps: Deps, *, die_at: int = 0) -> bool:
        """Run the lanes until no work is due. Return False if the lanes were canceled.

        The lanes are canceled at the SQL statement number `die_at` (0: never).
        """
        self.running = asyncio.create_task(run_until_idle(deps, LANES))
        self.statements_left = die_at
        try:
            await self.running
        except asyncio.CancelledError:
            return False
        finally:
            self.running, self.statements_left = None, 0
        return True

    async def enroll(self, merchant: Merchant, count: int) -> None:
        """Subscribe customers to a fixed and a variable plan, with different due dates."""
        fixed = await merchant.plan(await merchant.product(cents=self.rng.randrange(100, 100_000)))
        variable = await merchant.plan(
            item(await merchant.product(cents=500)), item(await merchant.variable_product())
        )
        for number in range(count):
            day, connection_id = self.rng.randrange(1, 29), self.rng.choice(await _connection_ids(merchant))
            plan = variable if number % 6 == 5 else fixed
            made = await merchant.enroll(plan, chargeDay=day, gatewayConnectionId=connection_id)
            self.subscriptions.append(made["id"])

    async def continue_billing(self, merchant: Merchant, *, steps: int) -> None:
        """Let days pass with billing, manual values, and a few moves, part payments, cancellations and reissues."""
        if self.rng.random() < 0.8:
            from_id, to_id = self.rng.sample(await _connection_ids(merchant), 2)
            await merchant.post(f"/v1/integration/gateways/{from_id}/move", {"toConnectionId": to_id})
        for _ in range(steps):
            self.now += timedelta(days=self.rng.randrange(1, 13))
            await self.work(merchant.deps)
            await self.enter_values(merchant)
        if self.rng.random() < 0.3:
            await merchant.post(f"/v1/subscriptions/{self.rng.choice(self.subscriptions)}/cancel")
        for status in ("issued", "ready"):
            invoices = (await merchant.get(f"/v1/invoices?status={status}&pageSize=5")).json["data"]
            if invoices and self.rng.random() < 0.5:
                await merchant.post(f"/v1/invoices/{invoices[0]['id']}/cancel")
        for status in ("issued", "overdue"):
            invoices = (await merchant.get(f"/v1/invoices?status={status}&pageSize=5")).json["data"]
            for invoice in invoices[-2:]:
                if self.rng.random() < 0.5:
                    pay_part(self.journal, invoice["gatewayInvoiceId"], now=self.now)
                if self.rng.random() < 0.5:
                    await merchant.post(f"/v1/invoices/{invoice['id']}/reissue", {})
        await self.work(merchant.deps)

    async def enter_values(self, merchant: Merchant) -> None:
        """Enter manual values for held invoices. After a restore, some values differ from those before the restore."""
        for status in ("draft", "awaiting_value"):
            for held in (await merchant.get(f"/v1/invoices?status={status}&pageSize=100")).json["data"]:
                detail = (await merchant.get(f"/v1/invoices/{held['id']}")).json
                for each in detail["items"]:
                    if each["pricingStatus"] == "pending":
                        other = self.rng.randrange(OTHER_PRICE_EVERY) == 0
                        value = {"amount": 1000 + detail["cycle"] + (self.restores if other else 0)}
                        await merchant.post(f"/v1/invoices/{held['id']}/items/{each['id']}/value", value)
        await self.work(merchant.deps)

    async def create(self) -> None:
        await self._copy("template_fatura", self.name)

    async def back_up(self) -> None:
        """Copy the database in its current state, in which some work may be unfinished."""
        await self._copy(self.name, f"{self.name}_backup")

    async def restore(self) -> None:
        """Replace the database with the backup. The gateway's charges do not change."""
        await self._copy(f"{self.name}_backup", self.name)
        self.restores += 1

    async def drop(self) -> None:
        await self._admin(
            f"DROP DATABASE IF EXISTS {self.name}", f"DROP DATABASE IF EXISTS {self.name}_backup"
        )
        self.journal.close()

    async def _copy(self, source: str, target: str) -> None:
        await self._admin(
            f"DROP DATABASE IF EXISTS {target}",
            f"CREATE DATABASE {target} OWNER fatura_owner TEMPLATE {source} STRATEGY file_copy",
        )

    async def _admin(self, *statements: str) -> None:
        connection = await asyncpg.connect(as_superuser(self.server_url))
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    async def compare(
        self, deps: Deps, *, since: datetime, die_at: int = 0
    ) -> comparison.RestoreReport | None:
        """Run `fatura restored` in this process. Return None if it was canceled at the statement `die_at`."""
        assert self.opened is not None

        async def command() -> comparison.RestoreReport:
            assert self.opened is not None
            await comparison.freeze(deps, self.opened.account_id)
            return await comparison.compare(deps, self.opened.account_id, since=since)

        self.running = asyncio.create_task(command())
        self.statements_left = die_at
        try:
            return await self.running
        except asyncio.CancelledError:
            return None
        finally:
            self.running, self.statements_left = None, 0

    async def compare_in_process(self, *, since: datetime, kill_at: int) -> Json | None:
        """Run `tests.faults.restore.compare_process`. Return None if it was killed."""
        words = [self.url, self.ring, str(self.folder / f"{self.name}.sqlite")]
        words += [self.now.isoformat(), since.isoformat(), str(kill_at)]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.faults.restore.compare_process",
            *words,
            stdout=asyncio.subprocess.PIPE,
        )
        reported, _ = await process.communicate()
        if process.returncode == -signal.SIGKILL:
            return None
        assert process.returncode == 0, process.returncode
        return json.loads(reported.splitlines()[-1])

    def charges(self, since: datetime) -> Sequence[Any]:
        return list(self.journal.read("SELECT * FROM charge WHERE created_at >= ?", since.isoformat()))


async def _connect(work: Work) -> None:
    """Add two connections, so that subscriptions can be moved from one to the other."""
    for label in ("first", "second"):
        await gateway_connections.connect(
            work, provider=PROVIDER, label=label, credentials={}, settings={}, provider_account=None
        )


async def _connection_ids(merchant: Merchant) -> list[str]:
    return [each["connectionId"] for each in (await merchant.get("/v1/integration")).json["gateways"]]
