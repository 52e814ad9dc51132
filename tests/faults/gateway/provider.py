"""A process with a test gateway that also refunds, disputes and forgets charges. Payers pay in parts, twice or late.

Unlike in `tests.faults.external`, each charge is a `SimCharge` of the simulator. The journal's column `charge.record`
has the newest version of each charge, with its payments, refunds and disputes.
"""

import os
import random
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import uvloop
from aiohttp import web

from fatura.domain.offer import PaymentMethod
from fatura.gateways.port import ChargeRequest, ConnectionConfig, Payer, RefundRequest
from tests.faults import clock
from tests.faults.clock import FastClock
from tests.faults.external import GatewayAndMerchant, serve
from tests.faults.gateway import faults
from tests.faults.gateway.faults import GatewayFaults
from tests.faults.simulator.faults import Faults
from tests.faults.simulator.gateway_state import OWN_ACCOUNT, GatewayState, SimCharge
from tests.faults.simulator.payers import Payers

CONNECTION, MERCHANT, PROVIDER_ACCOUNT = "X-Connection", "X-Merchant", "X-Provider-Account"
"""Headers of the adapter's calls: the connection, the engine's account, and the account at the provider."""
REFUSES_FOR = timedelta(days=1)
LONGEST_JUMP = timedelta(days=65)
"""Maximum time by which the run sets its clock forward in one jump.

It is a little longer than the longest pause between two polls of a paid charge, which is 60 days (D-55).
"""
ROUTES = (
    ("GET", "/account", "account"),
    ("POST", "/control/refuse", "refuse"),
    ("POST", "/control/move-money", "move_money"),
    ("POST", "/control/person", "person"),
    ("POST", "/control/calm", "calm"),
)
_NOBODY = Payer(UUID(int=0), "Nobody", "nobody@example.com", None)
_CHARGE = msgspec.json.Decoder(SimCharge)


def read_record(row: Mapping[str, Any]) -> SimCharge:
    """Return the newest version of a charge from its row of the journal."""
    charge = _CHARGE.decode(row["record"])
    # A repeated request creates a delayed charge at once. This changes the times in the columns, but not in `record`.
    charge.created_at = datetime.fromisoformat(row["created_at"])
    charge.visible_at = datetime.fromisoformat(row["visible_at"])
    return charge


class Provider(GatewayAndMerchant):
    signed_within_seconds = LONGEST_JUMP // timedelta(seconds=1)

    def __init__(self, folder: Path, now: FastClock, faults: GatewayFaults) -> None:
        super().__init__(folder, now, faults)
        self.rng = random.Random(faults.seed)  # noqa: S311 - not for security
        self.state = GatewayState(Payers(self.rng), Faults(self.rng), prefix=f"out{os.getpid()}")
        self._written: dict[str, bytes] = {}
        self._refuses_from: datetime | None = None
        self._refused: set[tuple[str, int]] = set()

    def application(self) -> web.Application:
        app = super().application()
        app.middlewares.append(self._refuse)
        for method, path, name in ROUTES:
            app.router.add_route(method, path, getattr(self, name))
        return app

    @web.middleware
    async def _refuse(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse all calls of the connections that were chosen at random for the current day (see `refuse`).

        Show no charge to credentials of another account (D-59).
        """
        connection = request.headers.get(CONNECTION)
        status = None if connection is None else self._refusal(connection)
        if status is not None:
            return web.json_response({"error": "closed"}, status=status)
        if request.headers.get(PROVIDER_ACCOUNT, OWN_ACCOUNT) != OWN_ACCOUNT and request.path != "/account":
            return web.json_response({}, status=404)
        return await handler(request)

    def _refusal(self, connection: str) -> int | None:
        if self._refuses_from is None:
            return None
        period = (self.now() - self._refuses_from) // REFUSES_FOR
        drawn = random.Random(f"{self.faults.seed}/{connection}/{period}").randrange(1000)  # noqa: S311 - not for security
        if drawn >= self.faults.refuses_days:
            return None
        if (connection, period) not in self._refused:
            self._refused.add((connection, period))
            self._noted("refuse", connection, f"period {period}")
        return 401 if drawn % 2 else 503

    async def account(self, request: web.Request) -> web.Response:
        """Return the id of the account at the provider that the credentials belong to."""
        return web.json_response({"id": f"{request.headers[MERCHANT]}-{request.headers[PROVIDER_ACCOUNT]}"})

    def _make(self, body: Any, *, at: datetime) -> str:
        shown = at + timedelta(seconds=self.faults.lag_seconds)
        account_id, connection_id = UUID(body["accountId"]), UUID(body["connectionId"])
        made = self.state.make(
            ConnectionConfig(account_id, connection_id, {}, {}, at), _request(body), now=at, shown=shown
        )
        alike = [
            each for each in self.state.made_for(made.invoice_id, made.attempt) if not each.was_forgotten
        ]
        for each in alike:
            # if an answer was lost, the engine may know only some of the charges with this reference
            each.is_double = len(alike) > 1
        self.journal.write(
            "charge",
            charge_id=made.charge_id,
            account_id=body["accountId"],
            connection_id=body["connectionId"],
            invoice_id=body["invoiceId"],
            attempt=made.attempt,
            amount_cents=made.amount_cents,
            due_date=body["dueDate"],
            created_at=at.isoformat(),
            visible_at=shown.isoformat(),
            state=made.state,
            record=msgspec.json.encode(made).decode(),
        )
        for each in alike:
            self._write(each)
        return made.charge_id

    def _write(self, charge: SimCharge) -> None:
        record = msgspec.json.encode(charge)
        if self._written.get(charge.charge_id) != record:
            self._written[charge.charge_id] = record
            self.journal.change(
                "UPDATE charge SET state = ?, record = ? WHERE charge_id = ?",
                charge.state,
                record.decode(),
                charge.charge_id,
            )

    def _known(self, condition: str, *values: Any) -> list[Mapping[str, Any]]:
        """Find charges by an SQL condition, and apply their due `acts`. Omit charges that the gateway has forgotten."""
        query = f"SELECT * FROM charge WHERE {condition} AND created_at <= ? ORDER BY created_at, rowid"  # noqa: S608 - written here
        now = self.now()
        found: list[Mapping[str, Any]] = []
        for row in list(self.journal.read(query, *values, now.isoformat())):
            charge = self.state.charges[row["charge_id"]]
            charge.created_at = datetime.fromisoformat(row["created_at"])
            charge.visible_at = datetime.fromisoformat(row["visible_at"])
            if not self.state.as_of(charge, now).is_forgotten:
                found.append(msgspec.to_builtins(charge.shown(now)))
            self._write(charge)
        return found

    async def cancel(self, request: web.Request) -> web.Response:
        fault = self.fault("cancel", lost=self.faults.lost, error=self.faults.error)
        charge = self.state.find(request.match_info["charge_id"], now=self.now())
        if charge is not None and fault != "error":
            if charge.state in {"open", "refused", "expired"}:
                self.state.move(charge, "canceled", at=self.now())
            self._write(charge)
        return self._cut(request) if fault is not None else self._answer(charge)

    async def refund(self, request: web.Request) -> web.Response:
        """Make a refund immediately, later or never. A fault may prevent or delay the refund, or lose the answer."""
        body, wrong, now = await request.json(), self.faults, self.now()
        fault = self.fault(
            "refund",
            lost=wrong.lost,
            late=wrong.late,
            refused_before=wrong.refused_before,
            unavailable=wrong.unavailable,
            error=wrong.error,
            slow=wrong.lost,
        )
        charge = self.state.find(request.match_info["charge_id"], now=now)
        self._noted("refund", "" if charge is None else str(charge.invoice_id), fault)
        if charge is None:
            return web.json_response({}, status=404)
        if fault in {"unavailable", "error"}:
            return web.json_response({"error": fault}, status=503 if fault == "unavailable" else 500)
        if fault == "refused_before":
            return self._cut(request)
        refusal = self.state.accept_refund(
            charge,
            RefundRequest(
                UUID(body["refundId"]), charge.charge_id, body["amountCents"], "BRL", body["reason"]
            ),
            kind="key" if body["deduplicates"] else "lookup",
            now=now,
            is_late=fault == "late",
            is_slow=fault == "slow",
        )
        self._write(charge)
        if fault in {"lost", "late"}:
            return self._cut(request)
        if refusal is not None:
            return web.json_response({"error": str(refusal)}, status=409)
        return self._answer(charge)

    def _answer(self, charge: SimCharge | None) -> web.Response:
        if charge is None:
            return web.json_response({}, status=404)
        return web.json_response(msgspec.to_builtins(charge.shown(self.now())))

    async def refuse(self, _request: web.Request) -> web.Response:
        """From now on, refuse all calls of some connections. Each day, other connections are chosen at random."""
        self._refuses_from = self.now()
        return web.json_response({})

    async def move_money(self, request: web.Request) -> web.Response:
        """Refund and dispute some charges without a request of the engine. Return the ids of these charges."""
        permille = int(request.query["permille"])
        moved = [
            each
            for each in self.state.charges.values()
            if self.rng.randrange(1000) < permille
            and self.state.move_money(each, now=self.now(), rng=self.rng)
        ]
        for each in moved:
            self._write(each)
        return web.json_response([each.charge_id for each in moved])

    async def person(self, request: web.Request) -> web.Response:
        """Cancel all charges of an invoice, and refund their payments, as a person does at the provider."""
        now = self.now()
        for each in self.state.of_invoice(request.query["invoiceId"]):
            if self.state.as_of(each, now).state != "canceled":
                self.state.cancel_by_person(each, now=now)
                self._write(each)
        return web.json_response({})

    async def calm(self, _request: web.Request) -> web.Response:
        """Stop all faults, and let most payers pay."""
        old = self.faults
        self.faults = GatewayFaults(
            knows_keys=old.knows_keys, refuses_repeats=old.refuses_repeats, seed=old.seed
        )
        self.state.let_all_pay(self.now())
        for each in self.state.charges.values():
            self._write(each)
        return web.json_response({})


def _request(body: Any) -> ChargeRequest:
    return ChargeRequest(
        invoice_id=UUID(body["invoiceId"]),
        attempt=body["attempt"],
        amount_cents=body["amountCents"],
        currency="BRL",
        method=PaymentMethod(body["method"]),
        installments=None,
        due_date=date.fromisoformat(body["dueDate"]),
        lines=(),
        payer=_NOBODY,
    )


if __name__ == "__main__":
    provider = Provider(Path(sys.argv[1]), clock.read(sys.argv[2]), faults.read(sys.argv[3]))
    uvloop.run(serve(provider.application()))
    provider.journal.close()
