"""The world outside in a process of its own: a payment gateway without mercy, and a merchant's two endpoints.

`python -m tests.faults.outside FOLDER CLOCK LIES` prints its address and serves until its input closes.
"""

import asyncio
import contextlib
import json
import sys
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import uvloop
from aiohttp import web

from fatura.domain.calendar import start_of_day
from fatura.signature import HEADER, SignatureError, verify
from tests.faults import clock
from tests.faults.clock import FastClock
from tests.faults.gateway import lies
from tests.faults.gateway.lies import Lies
from tests.faults.journal import Journal
from tests.faults.outside_gateway import SENT_AT

SECRETS_FILE = "secrets.json"
"""In the folder: the integration secrets of all accounts, by account."""


SLOW_SECONDS = 15
"""What reaches the gateway later than this is the machine's doing, not the engine's or the gateway's."""


class Outside:
    """Both of the others' ledgers, and the tongues that lie about them."""

    def __init__(self, folder: Path, now: FastClock, told: Lies) -> None:
        self.folder = folder
        self.now = now
        self.lies = told
        self.journal = Journal(folder / "journal.sqlite")
        self.calls: Counter[str] = Counter()

    def fate(self, kind: str, **chances: int) -> str | None:
        """Return what befalls this call."""
        self.calls[kind] += 1
        return self.lies.fate(kind, self.calls[kind], **chances)

    def application(self) -> web.Application:
        """Return all routes."""
        app = web.Application()
        app.router.add_post("/charges", self.create)
        app.router.add_get("/charges", self.find)
        app.router.add_get("/charges/{charge_id}", self.get)
        app.router.add_post("/charges/{charge_id}/cancel", self.cancel)
        app.router.add_put("/products/{product_id}", self.mirror)
        app.router.add_post("/price/{account_id}/{cents}", self.price)
        app.router.add_post("/webhook/{account_id}", self.webhook)
        return app

    async def create(self, request: web.Request) -> web.Response:
        """Make a charge, perhaps; a repeat makes another one unless `knows_keys`."""
        body = await request.json()
        wrong = self.lies
        if self._is_too_slow(request):
            self._noted("create", body["invoiceId"], "too_slow")
            return self._cut(request)
        fate = self.fate(
            "create",
            lost=wrong.lost,
            late=wrong.late,
            refused_before=wrong.refused_before,
            unavailable=wrong.unavailable,
            error=wrong.error,
        )
        self._noted("create", body["invoiceId"], fate)
        if fate in {"unavailable", "error"}:
            return web.json_response({"error": fate}, status=503 if fate == "unavailable" else 500)
        if fate == "refused_before":
            return self._cut(request)
        if self.lies.knows_keys:
            known = self._replayed(body)
            if known and self.lies.refuses_repeats and fate is None:
                return web.json_response({"error": "the reference is taken"}, status=409)
            if known:
                return self._cut(request) if fate else web.json_response(known, status=201)
        now = self.now()
        charge_id = self._make(body, at=now + timedelta(seconds=wrong.late_seconds if fate == "late" else 0))
        if fate is not None:
            return self._cut(request)
        return web.json_response(self._known("charge_id = ?", charge_id)[0], status=201)

    def _is_too_slow(self, request: web.Request) -> bool:
        """Say whether a busy machine has kept a request for so long that nothing may be made of it."""
        sent_at = datetime.fromisoformat(request.headers[SENT_AT]) if SENT_AT in request.headers else None
        return sent_at is not None and self.now() - sent_at > timedelta(seconds=SLOW_SECONDS)

    def _replayed(self, body: Any) -> dict[str, Any] | None:
        """Return the charge of a reference that is known; one that was to be made later is made now."""
        reference = body["invoiceId"], body["attempt"]
        now = self.now()
        self.journal.change(
            "UPDATE charge SET created_at = ?, visible_at = ? WHERE invoice_id = ? AND attempt = ? AND created_at > ?",
            now.isoformat(),
            (now + timedelta(seconds=self.lies.lag_seconds)).isoformat(),
            *reference,
            now.isoformat(),
        )
        known = self._known("invoice_id = ? AND attempt = ?", *reference)
        return known[0] if known else None

    def _make(self, body: Any, *, at: datetime) -> str:
        """Write the charge down; one that is made later is not to be seen before."""
        self.journal.write(
            "charge",
            charge_id=(charge_id := f"out_{uuid4().hex}"),
            account_id=body["accountId"],
            connection_id=body["connectionId"],
            invoice_id=body["invoiceId"],
            attempt=body["attempt"],
            amount_cents=body["amountCents"],
            due_date=body["dueDate"],
            state="open",
            created_at=at.isoformat(),
            visible_at=(at + timedelta(seconds=self.lies.lag_seconds)).isoformat(),
        )
        return charge_id

    async def find(self, request: web.Request) -> web.Response:
        """List the charges of a reference that look-ups show by now, or all since an instant, oldest first."""
        self._noted("find", request.query.get("invoiceId", ""), None)
        if self.fate("find", fails=self.lies.looks_fail):
            return web.json_response({"error": "busy"}, status=503)
        visible = self.now().isoformat()
        if "since" in request.query:
            found = self._known(
                "connection_id = ? AND created_at >= ? AND visible_at <= ?",
                request.query["connectionId"],
                request.query["since"],
                visible,
            )
        else:
            found = self._known(
                "connection_id = ? AND invoice_id = ? AND attempt = ? AND visible_at <= ?",
                request.query["connectionId"],
                request.query["invoiceId"],
                int(request.query["attempt"]),
                visible,
            )
        return web.json_response({"data": found})

    async def get(self, request: web.Request) -> web.Response:
        """Show a charge by its id, which no lag hides."""
        if self.fate("get", fails=self.lies.looks_fail):
            return web.json_response({"error": "busy"}, status=503)
        found = self._known("charge_id = ?", request.match_info["charge_id"])
        return web.json_response(found[0] if found else {}, status=200 if found else 404)

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel an open charge; another one is left as it is."""
        charge_id = request.match_info["charge_id"]
        fate = self.fate("cancel", lost=self.lies.lost, error=self.lies.error)
        if fate != "error":
            self._known("charge_id = ?", charge_id)  # what time has made of it comes first
            self.journal.change(
                "UPDATE charge SET state = 'canceled' WHERE charge_id = ? AND state = 'open'", charge_id
            )
        if fate is not None:
            return self._cut(request)
        found = self._known("charge_id = ?", charge_id)
        return web.json_response(found[0] if found else {}, status=200 if found else 404)

    async def mirror(self, request: web.Request) -> web.Response:
        """Take a product into the catalog."""
        await request.read()
        if self.fate("mirror", error=self.lies.error):
            return web.json_response({"error": "error"}, status=500)
        return web.json_response({"id": f"outp_{request.match_info['product_id']}"})

    def _known(self, condition: str, *values: Any) -> list[dict[str, Any]]:
        """Return charges as they are now: time has let the payers pay at the due date."""
        found: list[dict[str, Any]] = []
        query = f"SELECT * FROM charge WHERE {condition} AND created_at <= ? ORDER BY created_at, rowid"  # noqa: S608 - written here
        for row in list(self.journal.read(query, *values, self.now().isoformat())):
            charge = dict(row)
            pays_at = start_of_day(datetime.fromisoformat(charge["due_date"]).date())
            if charge["state"] == "open" and pays_at <= self.now() and self._pays(charge["charge_id"]):
                charge |= {"state": "paid", "paid_at": max(pays_at.isoformat(), charge["created_at"])}
                self.journal.change(
                    "UPDATE charge SET state = 'paid', paid_at = ? WHERE charge_id = ?",
                    charge["paid_at"],
                    charge["charge_id"],
                )
            found.append(charge)
        return found

    def _pays(self, charge_id: str) -> bool:
        return int(charge_id[-6:], 16) % 1000 >= self.lies.never_paid

    async def price(self, request: web.Request) -> web.Response:
        """Answer a price call with the cents in the address and the cycle, unless it fails."""
        raw = await request.read()
        asked = json.loads(raw)
        status = 500 if self.fate("price", fails=self.lies.price_fails) else 200
        amount = int(request.match_info["cents"]) + int(asked["cycle"])
        answer = json.dumps({"amount": amount} if status == 200 else {"error": "closed"})
        self.journal.write(
            "price_answer",
            at=self.now().isoformat(),
            request_id=asked["pricingRequestId"],
            subscription_ref=str(asked["subscription"]["externalRef"]),
            cycle=asked["cycle"],
            status=status,
            body=answer,
            verified=self._verified(request, raw),
        )
        return web.Response(body=answer, status=status, content_type="application/json")

    async def webhook(self, request: web.Request) -> web.Response:
        """Take an event, unless it fails."""
        raw = await request.read()
        event = json.loads(raw)
        status = 500 if self.fate("push", fails=self.lies.push_fails) else 200
        self.journal.write(
            "arrival",
            at=self.now().isoformat(),
            account_id=request.match_info["account_id"],
            event_id=event["id"],
            sequence=event["sequence"],
            invoice_id=(event["data"].get("invoice") or {}).get("id"),
            body=raw.decode(),
            status=status,
            verified=self._verified(request, raw),
        )
        return web.Response(status=status)

    def _verified(self, request: web.Request, raw: bytes) -> bool:
        """Say whether one of the account's secrets signed it, within 300 s of the run's clock."""
        secrets = json.loads((self.folder / SECRETS_FILE).read_text()).get(
            request.match_info["account_id"], []
        )
        for secret in secrets:
            with contextlib.suppress(SignatureError):
                verify(raw, request.headers.get(HEADER), secret=secret, now=self.now().timestamp())
                return True
        return False

    def _noted(self, operation: str, invoice_id: str, fate: str | None) -> None:
        self.journal.write(
            "gateway_call",
            at=self.now().isoformat(),
            operation=operation,
            invoice_id=invoice_id,
            outcome=fate or "ok",
        )

    def _cut(self, request: web.Request) -> web.Response:
        """Cut the line without an answer."""
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


async def serve(folder: Path, now: FastClock, told: Lies) -> None:
    """Serve on a free port of 127.0.0.1 until the input closes."""
    outside = Outside(folder, now, told)
    runner = web.AppRunner(outside.application(), access_log=None, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)  # noqa: T201 - what the starter waits for
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()
    outside.journal.close()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), clock.read(sys.argv[2]), lies.read(sys.argv[3])))
