"""The HTTP server of the simulated Asaas."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

import msgspec
from aiohttp import web

from tests.doubles.asaas.book import Account, Json, RefusedError
from tests.doubles.asaas.contract import Contract, Exchange

_ENCODER = msgspec.json.Encoder(decimal_format="number")
MAX_LIMIT = 100


class Loss(StrEnum):
    """How a simulated request fails."""

    REQUEST = "request"
    """The connection breaks before Asaas does anything."""
    ANSWER = "answer"
    """Asaas does the work, but the connection breaks before the answer."""
    SLOW = "slow"
    """Asaas does the work, and answers much too late."""
    RATE = "rate"
    """Asaas limits the rate: 429."""
    ERROR_BEFORE = "error_before"
    """500, and Asaas did nothing."""
    ERROR_AFTER = "error_after"
    """502, although Asaas did the work."""
    JUNK = "junk"
    """200 with a body that is not JSON, although Asaas did the work."""


@dataclass(slots=True)
class Fault:
    """The next request with this method, whose path matches, fails. `skip` such requests succeed before it."""

    method: str
    path: str
    loss: Loss
    skip: int = 0


@dataclass(slots=True)
class AsaasDouble:
    """The state of the server. `fails` decides about each request for which no fault is queued."""

    today: date
    contract: Contract | None = None
    url: str = ""
    accounts: dict[str, Account] = field(default_factory=dict[str, Account])
    faults: list[Fault] = field(default_factory=list[Fault])
    fails: Callable[[str, str], Loss | None] = lambda _method, _path: None
    requests: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    violations: list[str] = field(default_factory=list[str])
    refused_changes: bool = False
    """Whether every change of a customer is refused."""
    edit: Callable[[Any], None] = lambda _answer: None
    """Changes each answer before it is sent, for example to add a field."""

    def open_account(self) -> str:
        """Open an account, and return its API key."""
        token = f"$aact_hmlg_{uuid4().hex}"
        self.accounts[token] = Account(self.today)
        return token

    def fail_next(self, method: str, path: str, loss: Loss) -> None:
        self.faults.append(Fault(method, path, loss))

    def _loss_of(self, method: str, path: str) -> Loss | None:
        for fault in self.faults:
            if fault.method == method and re.fullmatch(fault.path, path):
                if not fault.skip:
                    self.faults.remove(fault)
                    return fault.loss
                fault.skip -= 1
        return self.fails(method, path)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path, sent = request.path.removeprefix("/v3"), await request.read()
        self.requests.append((request.method, path))
        loss = self._loss_of(request.method, path)
        if loss is Loss.REQUEST:
            return _broken(request)
        if loss is Loss.RATE:
            return web.Response(status=429, body=b'{"errors":[]}', content_type="application/json")
        if loss is Loss.ERROR_BEFORE:
            return web.Response(status=500, text="<html>Internal Server Error</html>")
        status, answer = self._answered(request, path, sent)
        if loss is Loss.ANSWER:
            return _broken(request)
        if loss is Loss.ERROR_AFTER:
            return web.Response(status=502, text="<html>Bad Gateway</html>")
        if loss is Loss.JUNK:
            return web.Response(text="<html>OK</html>")
        if loss is Loss.SLOW:
            await asyncio.sleep(3600)
        answer = json.loads(_ENCODER.encode(answer), parse_float=Decimal)
        self.edit(answer)
        encoded = _ENCODER.encode(answer)
        if self.contract is not None:
            exchange = Exchange(request.method, f"/v3{path}", _query(request), sent, status, encoded)
            self.violations += self.contract.violations(exchange)
        return web.Response(status=status, body=encoded, content_type="application/json")

    def _answered(self, request: web.Request, path: str, sent: bytes) -> tuple[int, Any]:
        """Do the work of a request, and return the status and the JSON of the answer."""
        try:
            account = self._account(request, sent)
            body = json.loads(sent, parse_float=Decimal) if sent else {}
            for method, pattern, act in ROUTES:
                if method == request.method and (found := re.fullmatch(pattern, path)):
                    return 200, act(account, _query(request), body, *found.groups())
            return _refusal("not_found", "Recurso não encontrado.", status=404)
        except RefusedError as refused:
            return refused.status, refused.body

    def _account(self, request: web.Request, sent: bytes) -> Account:
        account = self.accounts.get(request.headers.get("access_token", ""))
        if account is None:
            raise RefusedError("invalid_access_token", "A chave de API fornecida é inválida.", status=401)
        if not request.headers.get("User-Agent") or (request.method == "GET" and sent):
            raise RefusedError("forbidden", "Requisição não permitida.", status=403)
        if self.refused_changes and request.method == "PUT":
            raise RefusedError("invalid_action", "O cliente não pode ser alterado.")
        return account


def _refusal(code: str, description: str, *, status: int) -> tuple[int, Any]:
    return status, RefusedError(code, description).body


def _customers(account: Account, query: Json, _body: Json) -> Json:
    wanted = query.get("externalReference")
    newest = reversed(account.customers.values())
    return _page([each for each in newest if wanted in {None, each.get("externalReference")}], query)


def _pix_code(account: Account, _query: Json, _body: Json, payment_id: str) -> Json:
    """Return a Pix code, which can be paid until about a year after the due date."""
    payment = _payable(account, payment_id, "PIX")
    due = date.fromisoformat(payment["dueDate"])
    code = f"00020101021226820014br.gov.bcb.pix2560pix.asaas.example/{payment_id}"
    until = due.replace(year=due.year + 1, day=min(due.day, 28))
    return {"encodedImage": "iVBORw0KGgo=", "payload": code, "expirationDate": f"{until} 23:59:59"}


def _boleto_line(account: Account, _query: Json, _body: Json, payment_id: str) -> Json:
    _payable(account, payment_id, "BOLETO")
    line = "00190000090275928800021932978170187890000005000"
    return {"identificationField": line, "nossoNumero": "12745149", "barCode": line[:44]}


def _payable(account: Account, payment_id: str, billing_type: str) -> Json:
    payment = account.payment(payment_id)
    if payment["billingType"] != billing_type or payment["deleted"]:
        raise RefusedError("invalid_action", "A cobrança não pode ser paga desta forma.")
    return payment


ROUTES: Sequence[tuple[str, str, Callable[..., Any]]] = (
    (
        "GET",
        "/wallets/",
        lambda account, query, _: _page([{"object": "wallet", "id": account.wallet_id}], query),
    ),
    ("GET", "/customers", _customers),
    ("POST", "/customers", lambda account, _, body: account.create_customer(body)),
    ("PUT", "/customers/([^/]+)", lambda account, _, body, found: account.update_customer(found, body)),
    ("GET", "/payments", lambda account, query, _: _page(account.listed(query), query)),
    ("POST", "/payments", lambda account, _, body: account.create_payment(body)),
    ("GET", "/payments/([^/]+)", lambda account, _, __, found: account.payment(found)),
    ("DELETE", "/(?:payments|installments)/([^/]+)", lambda account, _, __, found: account.delete(found)),
    ("POST", "/payments/([^/]+)/refund", lambda account, _, body, found: account.refund(found, body)),
    (
        "GET",
        "/payments/([^/]+)/refunds",
        lambda account, query, _, found: _page(account.payment(found)["refunds"] or [], query),
    ),
    ("GET", "/payments/([^/]+)/pixQrCode", _pix_code),
    ("GET", "/payments/([^/]+)/identificationField", _boleto_line),
)
"""For each operation, the method, the pattern of the path, and the function that does the work."""


def _page(found: Sequence[Json], query: Json) -> Json:
    offset, limit = int(query.get("offset", 0)), int(query.get("limit", 10))
    if not 1 <= limit <= MAX_LIMIT:
        raise RefusedError("invalid_limit", "O limite é de 1 a 100.")
    return {
        "object": "list",
        "hasMore": offset + limit < len(found),
        "totalCount": len(found),
        "limit": limit,
        "offset": offset,
        "data": list(found[offset : offset + limit]),
    }


def _query(request: web.Request) -> Json:
    return dict(parse_qsl(request.query_string))


def _broken(request: web.Request) -> web.Response:
    """Break the connection of a request, so that no answer arrives."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@asynccontextmanager
async def open_double(today: date, contract: Contract | None = None) -> AsyncGenerator[AsaasDouble]:
    """Run the server on a free port of 127.0.0.1."""
    double = AsaasDouble(today, contract)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", double.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        double.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v3"
        yield double
    finally:
        await runner.cleanup()
