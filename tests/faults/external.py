"""A process with a test gateway, and with the price and webhook endpoints of the test merchants.

`python -m tests.faults.external FOLDER CLOCK FAULTS` prints its URL, and serves until its stdin closes. FOLDER contains
the journal. CLOCK is a `FastClock` as text, and FAULTS are `GatewayFaults` as text.
"""

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import uvloop
from aiohttp import web

from fatura.signature import HEADER, TOLERANCE_SECONDS, SignatureError, verify
from tests.faults import clock
from tests.faults.charges import pay_if_due
from tests.faults.clock import FastClock
from tests.faults.external_gateway import SENT_AT
from tests.faults.gateway import faults
from tests.faults.gateway.faults import GatewayFaults
from tests.faults.journal import JOURNAL_FILE, Journal

SECRETS_FILE = "secrets.json"
"""Name of the file that contains the signing secrets of each account."""

SLOW_SECONDS = 15
"""Maximum age of a request that creates a charge. The gateway drops older requests, which a busy machine delayed."""
ROUTES = (
    ("POST", "/charges", "create"),
    ("GET", "/charges", "find"),
    ("GET", "/charges/{charge_id}", "get"),
    ("POST", "/charges/{charge_id}/cancel", "cancel"),
    ("POST", "/charges/{charge_id}/refunds", "refund"),
    ("PUT", "/products/{product_id}", "mirror"),
    ("POST", "/price/{account_id}/{cents}", "price"),
    ("POST", "/webhook/{account_id}", "webhook"),
    ("POST", "/elsewhere/{account_id}", "webhook"),
)
"""Methods, paths, and the names of the handlers in `GatewayAndMerchant`.

A merchant may move its webhook from `/webhook` to `/elsewhere`.
"""


class GatewayAndMerchant:
    signed_within_seconds = TOLERANCE_SECONDS
    """Maximum difference between a signature's timestamp and the run's clock.

    A run that sets its clock forward during calls needs a larger value.
    """

    def __init__(self, folder: Path, now: FastClock, faults: GatewayFaults) -> None:
        self.folder = folder
        self.now = now
        self.faults = faults
        self.journal = Journal(folder / JOURNAL_FILE)
        self.calls: Counter[str] = Counter()

    def fault(self, kind: str, **chances: int) -> str | None:
        self.calls[kind] += 1
        return self.faults.draw(kind, self.calls[kind], **chances)

    def application(self) -> web.Application:
        app = web.Application()
        for method, path, name in ROUTES:
            app.router.add_route(method, path, getattr(self, name))
        return app

    async def create(self, request: web.Request) -> web.Response:
        """Create a charge. A fault may prevent or delay the creation.

        If the faults have `knows_keys`, a repeated request gets the first charge or, with `refuses_repeats`, the status
        409. Without `knows_keys`, a repeated request creates a second charge.
        """
        body = await request.json()
        wrong = self.faults
        if self._is_too_slow(request):
            self._noted("create", body["invoiceId"], "too_slow")
            return self._cut(request)
        fault = self.fault(
            "create",
            lost=wrong.lost,
            late=wrong.late,
            refused_before=wrong.refused_before,
            unavailable=wrong.unavailable,
            error=wrong.error,
        )
        self._noted("create", body["invoiceId"], fault)
        if fault in {"unavailable", "error"}:
            return web.json_response({"error": fault}, status=503 if fault == "unavailable" else 500)
        if fault == "refused_before":
            return self._cut(request)
        if self.faults.knows_keys:
            known = self._replayed(body)
            if known and self.faults.refuses_repeats and fault is None:
                return web.json_response({"error": "the reference is taken"}, status=409)
            if known:
                return self._cut(request) if fault else web.json_response(known, status=201)
        now = self.now()
        charge_id = self._make(body, at=now + timedelta(seconds=wrong.late_seconds if fault == "late" else 0))
        if fault is not None:
            return self._cut(request)
        return web.json_response(self._known("charge_id = ?", charge_id)[0], status=201)

    def _is_too_slow(self, request: web.Request) -> bool:
        """Return whether a request was sent more than SLOW_SECONDS ago. The gateway drops such a request."""
        sent_at = datetime.fromisoformat(request.headers[SENT_AT]) if SENT_AT in request.headers else None
        return sent_at is not None and self.now() - sent_at > timedelta(seconds=SLOW_SECONDS)

    def _replayed(self, body: Any) -> Mapping[str, Any] | None:
        """Return the charge that an earlier request with the same reference created, or None.

        If a fault delayed the creation of this charge, the repeated request creates the charge immediately.
        """
        reference = body["invoiceId"], body["attempt"]
        now = self.now()
        self.journal.change(
            "UPDATE charge SET created_at = ?, visible_at = ? WHERE invoice_id = ? AND attempt = ? AND created_at > ?",
            now.isoformat(),
            (now + timedelta(seconds=self.faults.lag_seconds)).isoformat(),
            *reference,
            now.isoformat(),
        )
        known = self._known("invoice_id = ? AND attempt = ?", *reference)
        return known[0] if known else None

    def _make(self, body: Any, *, at: datetime) -> str:
        """Record a charge that exists from the time `at` on. Look-ups show it `lag_seconds` later."""
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
            visible_at=(at + timedelta(seconds=self.faults.lag_seconds)).isoformat(),
        )
        return charge_id

    async def find(self, request: web.Request) -> web.Response:
        """Return the charges with a reference, or all charges of a connection since an instant, oldest first.

        Omit charges that look-ups do not show yet.
        """
        self._noted("find", request.query.get("invoiceId", ""), None)
        if self.fault("find", fails=self.faults.lookup_fails):
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
        """Return a charge by its id, even if look-ups by reference do not show it yet."""
        if self.fault("get", fails=self.faults.lookup_fails):
            return web.json_response({"error": "busy"}, status=503)
        found = self._known("charge_id = ?", request.match_info["charge_id"])
        return web.json_response(found[0] if found else {}, status=200 if found else 404)

    async def cancel(self, request: web.Request) -> web.Response:
        charge_id = request.match_info["charge_id"]
        fault = self.fault("cancel", lost=self.faults.lost, error=self.faults.error)
        if fault != "error":
            # `_known` records due payments first, so that a paid charge is not canceled.
            self._known("charge_id = ?", charge_id)
            self.journal.change(
                "UPDATE charge SET state = 'canceled' WHERE charge_id = ? AND state = 'open'", charge_id
            )
        if fault is not None:
            return self._cut(request)
        found = self._known("charge_id = ?", charge_id)
        return web.json_response(found[0] if found else {}, status=200 if found else 404)

    async def refund(self, request: web.Request) -> web.Response:
        """Refund a part of a charge's payments. If the gateway deduplicates, a repeat gets the first refund."""
        charge_id, body = request.match_info["charge_id"], await request.json()
        fault = self.fault("refund", lost=self.faults.lost, error=self.faults.error)
        if fault == "error":
            return web.json_response({"error": fault}, status=500)
        found = self._known("charge_id = ?", charge_id)
        if not found:
            return web.json_response({}, status=404)
        is_made = any(each["refund_id"] == body["refundId"] for each in found[0]["entries"])
        if not (is_made and body["deduplicates"]):
            if body["amountCents"] > _left_cents(found[0]):
                return web.json_response({"error": "less is left of the payments"}, status=409)
            self.journal.write(
                "entry",
                charge_id=charge_id,
                kind="refund",
                reference=f"re_{uuid4()}",
                amount_cents=body["amountCents"],
                occurred_at=self.now().isoformat(),
                refund_id=body["refundId"],
            )
        if fault is not None:
            return self._cut(request)
        return web.json_response(self._known("charge_id = ?", charge_id)[0])

    async def mirror(self, request: web.Request) -> web.Response:
        await request.read()
        if self.fault("mirror", error=self.faults.error):
            return web.json_response({"error": "error"}, status=500)
        return web.json_response({"id": f"outp_{request.match_info['product_id']}"})

    def _known(self, condition: str, *values: Any) -> list[Mapping[str, Any]]:
        """Find the charges that meet an SQL condition. Record their due payments, and add their entries."""
        query = f"SELECT * FROM charge WHERE {condition} AND created_at <= ? ORDER BY created_at, rowid"  # noqa: S608 - written here
        now = self.now()
        found = [
            pay_if_due(self.journal, row, now=now) if self._pays(row["charge_id"]) else row
            for row in list(self.journal.read(query, *values, now.isoformat()))
        ]
        entries = "SELECT * FROM entry WHERE charge_id = ? ORDER BY occurred_at, rowid"
        return [{**row, "entries": list(self.journal.read(entries, row["charge_id"]))} for row in found]

    def _pays(self, charge_id: str) -> bool:
        return int(charge_id[-6:], 16) % 1000 >= self.faults.never_paid

    async def price(self, request: web.Request) -> web.Response:
        """Answer with the cents in the URL plus the cycle number, or with the status 500 if a fault occurs."""
        raw = await request.read()
        asked = json.loads(raw)
        status = 500 if self.fault("price", fails=self.faults.price_fails) else 200
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
        raw = await request.read()
        event = json.loads(raw)
        status = 500 if self.fault("push", fails=self.faults.push_fails) else 200
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
        """Return whether the request's signature is valid.

        The signature must use a secret of the account. The signature's timestamp may differ from the run's clock by at
        most `signed_within_seconds`.
        """
        secrets = json.loads((self.folder / SECRETS_FILE).read_text()).get(
            request.match_info["account_id"], []
        )
        for secret in secrets:
            with contextlib.suppress(SignatureError):
                verify(
                    raw,
                    request.headers.get(HEADER),
                    secret=secret,
                    tolerance_seconds=self.signed_within_seconds,
                    now=self.now().timestamp(),
                )
                return True
        return False

    def _noted(self, operation: str, invoice_id: str, fault: str | None) -> None:
        self.journal.write(
            "gateway_call",
            at=self.now().isoformat(),
            operation=operation,
            invoice_id=invoice_id,
            outcome=fault or "ok",
        )

    def _cut(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


def _left_cents(charge: Mapping[str, Any]) -> int:
    """Return the cents that were paid for a charge and not refunded."""
    sums = Counter[str]()
    for entry in charge["entries"]:
        sums[entry["kind"]] += entry["amount_cents"]
    paid_in_full = charge["amount_cents"] if charge["paid_at"] else 0
    return paid_in_full + sums["payment"] - sums["refund"]


async def serve(application: web.Application) -> None:
    """Serve on a free port, print the address, and stop when stdin closes."""
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)  # noqa: T201 - the parent waits for this line
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    external = GatewayAndMerchant(Path(sys.argv[1]), clock.read(sys.argv[2]), faults.read(sys.argv[3]))
    uvloop.run(serve(external.application()))
    external.journal.close()
