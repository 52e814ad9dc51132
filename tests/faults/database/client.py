"""API clients that send writes, repeat writes that fail, and record all writes in a journal."""

import asyncio
import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from time import monotonic

import httpx

from tests.support.world import Json

CLIENTS = 20
"""Number of concurrent clients. The API has fewer database connections."""
PACE_SECONDS = 0.2
"""Minimum time between the starts of two writes of a client. All clients together make about 100 writes per second."""
ABANDONED_PERCENT = 10
"""Chance that a client gives up when a create request fails. The client then does not know the request's outcome.

Either all rows of such a request must exist, or none.
"""
PATIENCE_SECONDS = 60


@dataclass(slots=True, eq=False)
class Write:
    """A write request, and what its client knows about the outcome. Each write has its own `reference`."""

    kind: str
    method: str
    path: str
    reference: str
    body: Json
    asked: int = 0
    answer: Json = None
    acknowledged_at: float | None = None
    given_up: bool = False


@dataclass(slots=True, eq=False)
class Client:
    """The concurrent clients of a run, their journal, and every wrong response."""

    url: str
    api_key: str
    plan_id: str
    seed: int
    journal: list[Write] = field(default_factory=list[Write])
    statuses: Counter[int] = field(default_factory=Counter[int])
    wrong: list[str] = field(default_factory=list[str])
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def acknowledged(self) -> list[Write]:
        return [write for write in self.journal if write.acknowledged_at is not None]

    def acknowledged_since(self, instant: float) -> int:
        recent = self.journal[-20 * CLIENTS :]
        return sum(1 for write in recent if (write.acknowledged_at or 0) > instant)

    async def run(self) -> None:
        """Send writes until `stop` is called.

        After `stop`, each client still repeats its unfinished write until the write succeeds or the client gives up.
        """
        limits = httpx.Limits(max_connections=CLIENTS)
        opened = httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_SECONDS, limits=limits)
        async with opened as http, asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(self._one(http, number), name=f"client {number}")

    def stop(self) -> None:
        self._stop.set()

    async def replay(self, write: Write) -> bool:
        """Repeat an acknowledged write. Return whether the API replayed the first response."""
        async with httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_SECONDS) as http:
            response = await self._send(http, write)
        return response.json() == write.answer and "idempotent-replayed" in response.headers

    async def _one(self, http: httpx.AsyncClient, number: int) -> None:
        chance = Random(f"{self.seed} {number}")  # noqa: S311 - not for security
        mine: list[Write] = []
        for serial in itertools.count():
            if self._stop.is_set():
                return
            write = self._next(chance, mine, reference=f"op-{number}-{serial}")
            self.journal.append(write)
            began = monotonic()
            await self._settle(http, write, chance)
            if write.answer is not None and write.kind == "subscription":
                mine.append(write)
            await asyncio.sleep(max(0.0, PACE_SECONDS - (monotonic() - began)))

    def _next(self, chance: Random, mine: list[Write], *, reference: str) -> Write:
        turn = chance.random()
        if turn < 0.6 and mine:
            customer = chance.choice(mine).answer["customer"]["id"]
            return Write("change", "PATCH", f"/v1/customers/{customer}", reference, {"name": reference})
        if turn < 0.88:
            pricing = {"mode": "fixed", "monthlyPriceCents": 100 + chance.randrange(1000)}
            return Write(
                "product", "POST", "/v1/products", reference, {"name": reference, "pricing": pricing}
            )
        customer = {"externalRef": reference, "name": reference, "email": "ana@example.com"}
        body = {"planId": self.plan_id, "externalRef": reference, "customer": customer}
        return Write("subscription", "POST", "/v1/subscriptions", reference, body)

    async def _settle(self, http: httpx.AsyncClient, write: Write, chance: Random) -> None:
        """Repeat a write until it succeeds. After each failed create request, the client may give up at random."""
        while True:
            if await self._send_once(http, write):
                return
            if write.method == "POST" and chance.randrange(100) < ABANDONED_PERCENT:
                write.given_up = True
                return
            await asyncio.sleep(chance.uniform(0.2, 1))

    async def _send_once(self, http: httpx.AsyncClient, write: Write) -> bool:
        """Send the write once. Return whether it succeeded."""
        write.asked += 1
        try:
            response = await self._send(http, write)
        except httpx.TransportError as error:
            self.wrong.append(f"{write.method} {write.path} got no answer: {error!r}")
            return False
        self.statuses[response.status_code] += 1
        if response.is_success:
            write.answer, write.acknowledged_at = response.json(), monotonic()
            return True
        if (response.status_code, "retry-after" in response.headers, _code(response)) in _REPEAT_AFTER:
            return False
        self.wrong.append(f"{write.method} {write.path} was answered {response.status_code}: {response.text}")
        return False

    async def _send(self, http: httpx.AsyncClient, write: Write) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.api_key}", "Content-Type": "application/json"}
        if write.method == "POST":
            headers["Idempotency-Key"] = write.reference
        return await http.request(write.method, write.path, content=json.dumps(write.body), headers=headers)


_REPEAT_AFTER = {(503, True, "engine.unavailable"), (409, True, "engine.idempotency_in_progress")}


def _code(response: httpx.Response) -> str | None:
    if response.headers.get("content-type") != "application/problem+json":
        return None
    return response.json()["type"]
