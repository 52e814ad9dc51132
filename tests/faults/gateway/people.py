"""Let the simulator's merchants, payers and persons act in the run `gateway`.

The simulator's code for these people needs the simulator's `World`. `gather` builds a `World` that uses the run's
clock, sends requests to the run's API, and gets the charges from the journal.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

import httpx

from tests.faults.clock import FastClock
from tests.faults.gateway.provider import read_record
from tests.faults.gateway.world import World
from tests.faults.simulator import background_faults, collecting, invoices, refunds, side
from tests.faults.simulator.actions import Merchant
from tests.faults.simulator.asgi import Answer
from tests.faults.simulator.client import NoAnswerError
from tests.faults.simulator.faults import Faults
from tests.faults.simulator.gateway_state import GatewayState
from tests.faults.simulator.machines import Host, Trace
from tests.faults.simulator.payers import Payers
from tests.faults.simulator.process import ConnectionCutError

CHECK_SECONDS = 0.05
_RANDOM = "SELECT invoice_id::text FROM invoice WHERE account_id = $1 AND status = ANY($2) ORDER BY random() LIMIT 1"
_WITH_PAYMENT = "SELECT invoice_id::text FROM payment_entry WHERE account_id = $1 ORDER BY random() LIMIT 1"
_STUCK = """
SELECT invoice_id::text FROM invoice WHERE account_id = $1 AND status = 'ready' AND next_attempt_at IS NULL
"""
_ANY = ("ready", "issued", "overdue", "paid", "canceled")
_UNPAID = ("issued", "overdue")


@dataclass(slots=True)
class RealTime:
    """Replaces the simulator's `Schedule`: steps are executed immediately, and the run's clock measures pauses."""

    clock: FastClock
    trace: Trace = field(default_factory=Trace)

    @property
    def now(self) -> datetime:
        return self.clock()

    async def sleep(self, seconds: float) -> None:
        until = self.now + timedelta(seconds=seconds)
        while self.now < until:  # noqa: ASYNC110 - the clock has no event to wait for
            await asyncio.sleep(CHECK_SECONDS)

    async def io(self, _label: str, work: Callable[[], Awaitable[Any]]) -> Any:
        return await work()


@dataclass(slots=True)
class Api:
    """Replaces the simulator's `Process`."""

    client: httpx.AsyncClient
    host: Host = field(default_factory=lambda: Host("api"))

    async def call(self, method: str, path: str, headers: Mapping[str, str], raw: bytes) -> Answer:
        """Raises ConnectionCutError."""
        try:
            answer = await self.client.request(method, path, headers=headers, content=raw)
        except httpx.TransportError as error:
            raise ConnectionCutError from error
        return Answer(answer.status_code, answer.content)


@dataclass(slots=True)
class People:
    """The merchants of all accounts. `acted` counts what merchants and gateways did, by kind."""

    run: World
    rng: random.Random
    world: side.World
    merchants: Sequence[Merchant]
    acted: Counter[str] = field(default_factory=Counter[str])
    tasks: "set[asyncio.Task[None]]" = field(default_factory=set)

    async def act(self, *, count: int, pause_seconds: float) -> None:
        """Let random merchants do `count` random actions, one every `pause_seconds` real seconds."""
        deeds = (
            (3, self._cancel),
            (2, self._retry),
            (4, self._reissue),
            (4, self._receive),
            (6, self._refund),
            (1, self._send_credentials),
            (1, self._send_wrong_credentials),
            (3, self._send_webhook),
        )
        weights = [weight for weight, _ in deeds]
        for _ in range(count):
            [(_, deed)] = self.rng.choices(deeds, weights)
            self.acted[deed.__name__.strip("_")] += 1
            task = asyncio.create_task(self._try(deed, self.rng.choice(self.merchants)))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
            await asyncio.sleep(pause_seconds)

    async def _try(self, deed: Callable[[Merchant], Awaitable[None]], merchant: Merchant) -> None:
        try:
            await deed(merchant)
        except NoAnswerError:
            self.acted["given up without an answer"] += 1
        except Exception as error:  # noqa: BLE001 - reported as a finding
            self.world.report_error(deed.__name__, error)

    async def _one(self, merchant: Merchant, statuses: Sequence[str]) -> str | None:
        return await self.run.tables.fetchval(_RANDOM, merchant.world_account, statuses)

    async def _cancel(self, merchant: Merchant) -> None:
        if found := await self._one(merchant, _ANY):
            await merchant.post(f"/v1/invoices/{found}/cancel", allowed=(409,), keyed=False)

    async def _retry(self, merchant: Merchant) -> None:
        if found := await self._one(merchant, ("ready", "issued")):
            await merchant.post(f"/v1/invoices/{found}/retry-issuance", allowed=(409,), keyed=False)

    async def _reissue(self, merchant: Merchant) -> None:
        if found := await self._one(merchant, _UNPAID):
            await collecting.reissue(merchant, found)

    async def _receive(self, merchant: Merchant) -> None:
        if found := await self._one(merchant, _UNPAID):
            await collecting.receive(merchant, found)

    async def _refund(self, merchant: Merchant) -> None:
        if found := await self.run.tables.fetchval(_WITH_PAYMENT, merchant.world_account):
            await refunds.refund(merchant, await merchant.get(f"/v1/invoices/{found}"))

    async def _send_credentials(self, merchant: Merchant) -> None:
        await merchant.send_credentials()

    async def _send_wrong_credentials(self, merchant: Merchant) -> None:
        await merchant.send_wrong_credentials()

    async def _send_webhook(self, _merchant: Merchant) -> None:
        """Send the gateway's webhook for a random charge, even if nothing happened to the charge."""
        row = next(self.run.journal.read("SELECT * FROM charge ORDER BY random() LIMIT 1"), None)
        if row is not None:
            await background_faults.send_webhook(self.world, read_record(row))

    async def move_money(self, *, permille: int) -> None:
        """Let the gateways refund and dispute some charges. Send webhooks for half of these charges."""
        for moved in await self.run.control("move-money", permille=permille):
            for charge_id in moved:
                self.acted["refunds and disputes by the gateway"] += 1
                if self.rng.randrange(2):
                    [row] = self.run.journal.read("SELECT * FROM charge WHERE charge_id = ?", charge_id)
                    await background_faults.send_webhook(self.world, read_record(row))

    async def resolve_all(self) -> None:
        """Send valid credentials, collect overdue invoices, and resolve `ready` invoices that wait for a person.

        To resolve an invoice, cancel its charges at the gateway and retry issuance. Skip invoices for which
        `invoices.is_left` is true.
        """
        for merchant in self.merchants:
            await merchant.send_credentials()
            await collecting.collect_all(merchant)
            for row in await self.run.tables.fetch(_STUCK, merchant.world_account):
                if not invoices.is_left(row[0]):
                    await self.run.control("person", invoiceId=row[0])
                    path = f"/v1/invoices/{row[0]}/retry-issuance"
                    await merchant.post(path, allowed=(409,), keyed=False)

    def read_charges(self) -> None:
        """Read the gateways' charges from the journal, and apply their due `acts` (see `SimCharge`)."""
        gateway = self.world.side.gateway
        rows = self.run.journal.read("SELECT * FROM charge")
        gateway.charges = {row["charge_id"]: read_record(row) for row in rows}
        gateway.all_as_of(self.world.schedule.now)

    async def send_missing_webhooks(self, *, only_unpolled: bool) -> None:
        self.read_charges()
        await background_faults.send_missing_webhooks(self.world, only_unpolled=only_unpolled)


def gather(run: World, *, seed: int) -> People:
    """Return the `People` of a run, with one simulated merchant for each account."""
    rng = random.Random(seed)  # noqa: S311 - not for security
    faults, schedule = Faults(rng), cast("Any", RealTime(run.clock))
    world = side.World(
        seed=seed,
        rng=rng,
        schedule=schedule,
        faults=faults,
        connections=cast("Any", None),
        observer=run.tables,
        side=side.Side(schedule, faults, GatewayState(Payers(rng), faults)),
        merchants=cast("Any", None),
        processes=[cast("Any", Api(run.client))],
    )
    merchants: list[Merchant] = []
    for each in run.merchants:
        merchant = Merchant(world, str(each.account_id), each.api_key, rng)
        merchant.connections.append(run.connections[each.account_id])
        merchants.append(merchant)
    return People(run, rng, world, merchants)
