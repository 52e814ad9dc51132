"""The price and webhook endpoints of simulated merchants.

The engine calls these endpoints without a socket. The endpoints record each call in a journal.
"""

import contextlib
import json
import random
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fatura.domain.account import Account
from fatura.outbound.http import DEADLINE_SECONDS, Exchange, ExchangeOutcome
from fatura.signature import HEADER, SignatureError, verify
from fatura.transaction_mark import holds_open_transaction
from tests.faults.journal import Journal
from tests.faults.simulator.faults import PRICE as PRICE_CHANCES
from tests.faults.simulator.faults import PUSH as PUSH_CHANCES
from tests.faults.simulator.faults import Chances, Faults
from tests.faults.simulator.schedule import Schedule

PRICE, WEBHOOK = "price", "webhook"
LATENCIES_MS = (40, 40, 40, 40, 700)
"""Latencies of complete responses. Many are equal, so that several responses are recorded together."""


@dataclass(slots=True)
class SimMerchants:
    """Replaces `outbound.http.MerchantClient` for all merchants of a world.

    `down_until` has the end of each endpoint's outage. Accounts in `rotating` have requested a new secret that they may
    not have received yet, so they accept any signature.
    """

    schedule: Schedule
    faults: Faults
    journal: Journal
    rng: random.Random
    secrets: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict[str, list[str]](list))
    rotating: set[str] = field(default_factory=set[str])
    down_until: dict[tuple[str, str], datetime] = field(default_factory=dict[tuple[str, str], datetime])

    @asynccontextmanager
    async def session(self, _account: Account) -> AsyncGenerator["SimMerchants"]:
        yield self

    async def close(self) -> None:
        """Do nothing, because there is no connection."""

    async def post(self, url: str, *, body: bytes, headers: Mapping[str, str]) -> Exchange:
        """Call an endpoint `https://<kind>.<account>.example.com/...`."""
        assert not holds_open_transaction(), "a merchant must not be called inside a transaction"
        kind, account_id = url.removeprefix("https://").split(".")[:2]
        give_up_at = self.schedule.now + timedelta(seconds=DEADLINE_SECONDS)

        async def work() -> Exchange:
            if self.schedule.now > give_up_at:
                return self._failed("timed out")  # the process was frozen until after the call's deadline
            answer = self._price if kind == PRICE else self._push
            return answer(account_id, url, body, headers)

        exchange = await self.schedule.io(f"merchant.{kind}", work)
        await self.schedule.sleep(exchange.latency_ms / 1000)
        return exchange

    def _fault(self, kind: str, account_id: str, chances: Chances) -> str | None:
        down = self.down_until.get((kind, account_id))
        if down is not None and self.schedule.now < down and self.faults.on:
            fault: str | None = f"{kind}: down for hours"
            self.faults.count(fault)
        else:
            fault = self.faults.draw(chances)
        if fault is not None:
            self.schedule.trace.add(fault)
        return fault

    def _price(self, account_id: str, url: str, body: bytes, headers: Mapping[str, str]) -> Exchange:
        asked = json.loads(body)
        fault = self._fault(PRICE, account_id, PRICE_CHANCES)
        cents = int(url.rsplit("/", 1)[-1])
        drawn = self.rng.randrange(20)
        answer = (
            {"skip": True} if drawn == 0 else {"amount": 0 if drawn == 1 else cents + int(asked["cycle"])}
        )
        text = json.dumps(answer)
        match fault:
            case None:
                exchange = self._answered(200, text)
            case "price: garbage":
                exchange = self._answered(200, text := self.rng.choice(("{", '{"amount": 1.5}', "[]")))
            case "price: over the cap":
                exchange = self._answered(200, text := json.dumps({"amount": 10**9}))
            case "price: redirect":
                exchange = self._answered(302, text := "{}")
            case "price: broken off":
                exchange = Exchange(ExchangeOutcome.BROKEN_ANSWER, 200, text.encode()[:3], 40, "broken off")
            case _:
                exchange = self._failed(fault)
        whole = exchange.outcome is ExchangeOutcome.ANSWERED
        self.journal.write(
            "price_answer",
            at=self.schedule.now.isoformat(),
            request_id=asked["pricingRequestId"],
            subscription_ref=str(asked["subscription"]["externalRef"]),
            cycle=asked["cycle"],
            status=exchange.status if whole else None,
            body=text if whole else None,
            verified=self._is_signed(account_id, body, headers),
        )
        return exchange

    def _push(self, account_id: str, _url: str, body: bytes, headers: Mapping[str, str]) -> Exchange:
        event = json.loads(body)
        fault = self._fault(WEBHOOK, account_id, PUSH_CHANCES)
        taken = fault in {None, "push: taken, answer lost"}
        exchange = self._answered(200, "") if fault is None else self._failed(fault)
        self.journal.write(
            "arrival",
            at=self.schedule.now.isoformat(),
            account_id=account_id,
            event_id=event["id"],
            sequence=event["sequence"],
            invoice_id=(event["data"].get("invoice") or {}).get("id"),
            body=body.decode(),
            status=200 if taken else exchange.status,
            verified=self._is_signed(account_id, body, headers),
        )
        return exchange

    def _answered(self, status: int, text: str) -> Exchange:
        return Exchange(ExchangeOutcome.ANSWERED, status, text.encode(), self.rng.choice(LATENCIES_MS), None)

    def _failed(self, fault: str) -> Exchange:
        if "500" in fault:
            return self._answered(500, "broken")
        if "410" in fault:
            return self._answered(410, "gone")
        if "429" in fault:
            wait = str(self.rng.randrange(5, 900))
            return Exchange(ExchangeOutcome.ANSWERED, 429, b"slower", 30, None, retry_after=wait)
        if "timed out" in fault or "answer lost" in fault:
            return Exchange(ExchangeOutcome.TIMED_OUT, None, b"", DEADLINE_SECONDS * 1000, "no whole answer")
        return Exchange(ExchangeOutcome.UNREACHABLE, None, b"", 15, "refused")

    def _is_signed(self, account_id: str, body: bytes, headers: Mapping[str, str]) -> bool:
        for secret in self.secrets[account_id]:
            with contextlib.suppress(SignatureError):
                verify(body, headers.get(HEADER), secret=secret, now=self.schedule.now.timestamp())
                return True
        return account_id in self.rotating
