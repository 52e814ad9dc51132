"""The HTTPS server of the simulated bank, which requires client certificates."""

import asyncio
import base64
import json
import re
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

import trustme
from aiohttp import web

from tests.doubles.pix.book import Account, Json, RefusedError
from tests.doubles.pix.contract import Contract, Exchange

TOKEN_SECONDS = 3600
API = "/v2"


class Loss(StrEnum):
    """How a simulated request fails."""

    REQUEST = "request"
    """The connection breaks before the bank does anything."""
    ANSWER = "answer"
    """The bank does the work, but the connection breaks before the answer."""
    RATE = "rate"
    """The bank limits the rate: 429."""
    ERROR_BEFORE = "error_before"
    """503, and the bank did nothing."""
    ERROR_AFTER = "error_after"
    """502, although the bank did the work."""
    JUNK = "junk"
    """201 with a body that is not JSON, although the bank did the work."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The next request with this method, whose path matches, fails."""

    method: str
    path: str
    loss: Loss


@dataclass(slots=True)
class PixDouble:
    """The state of the server. `fails` decides about each request for which no fault is queued."""

    now: Callable[[], datetime]
    contract: Contract | None = None
    url: str = ""
    issuer: trustme.CA = field(default_factory=trustme.CA)
    """Issues the clients' certificates. `authority` issued the server's certificate."""
    authority: trustme.CA = field(default_factory=trustme.CA)
    accounts: dict[str, Account] = field(default_factory=dict[str, Account])
    tokens: dict[str, str] = field(default_factory=dict[str, str])
    faults: list[Fault] = field(default_factory=list[Fault])
    fails: Callable[[str, str], Loss | None] = lambda _method, _path: None
    requests: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    last: web.Request | None = None
    violations: list[str] = field(default_factory=list[str])
    token_seconds: int = TOKEN_SECONDS
    edit: Callable[[Any], None] = lambda _answer: None
    """Changes each answer before it is sent, for example to add a field."""

    def open_account(self, pix_key: str = "5f84a4c5-c5cb-4599-9f13-7eb4d419dacc") -> Account:
        account = Account(self.now, pix_key)
        self.accounts[account.client_id] = account
        return account

    def client_context(self) -> ssl.SSLContext:
        """Return a TLS context that trusts this server only."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context

    def fail_next(self, method: str, path: str, loss: Loss) -> None:
        self.faults.append(Fault(method, path, loss))

    def _loss_of(self, method: str, path: str) -> Loss | None:
        for fault in self.faults:
            if fault.method == method and re.fullmatch(fault.path, path):
                self.faults.remove(fault)
                return fault.loss
        return self.fails(method, path)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path, sent = request.path.removeprefix(API), await request.read()
        self.requests.append((request.method, path))
        self.last = request
        loss = self._loss_of(request.method, path)
        if loss is Loss.REQUEST:
            return _broken(request)
        if loss is Loss.RATE:
            return web.Response(status=429, text="{}")
        if loss is Loss.ERROR_BEFORE:
            return web.Response(status=503, text="<html>Service Unavailable</html>")
        status, answer = self._answered(request, path, sent)
        if loss is Loss.ANSWER:
            return _broken(request)
        if loss is Loss.ERROR_AFTER:
            return web.Response(status=502, text="<html>Bad Gateway</html>")
        if loss is Loss.JUNK:
            return web.Response(status=201, text="<html>OK</html>")
        answer = json.loads(json.dumps(answer))
        self.edit(answer)
        encoded = json.dumps(answer).encode()
        is_api = request.path.startswith(API)
        if self.contract is not None and is_api and status not in {401, 403}:
            exchange = Exchange(request.method, path, _query(request), sent, status, encoded)
            self.violations += self.contract.violations(exchange)
        kind = "application/problem+json" if status >= 400 else "application/json"
        return web.Response(status=status, body=encoded, content_type=kind)

    def _answered(self, request: web.Request, path: str, sent: bytes) -> tuple[int, Any]:
        """Do the work of a request, and return the status and the JSON of the answer."""
        if (request.method, path) == ("POST", "/oauth/token"):
            return self._token(request, sent)
        try:
            account = self._account(request)
            body = json.loads(sent) if sent else {}
            return _done(account, request.method, path, _query(request), body)
        except RefusedError as refused:
            return refused.status, refused.body

    def _token(self, request: web.Request, sent: bytes) -> tuple[int, Json]:
        """Return a token if the client's secret is right, and the certificate belongs to the client."""
        is_json = request.content_type == "application/json"
        fields = json.loads(sent) if is_json else dict(parse_qsl(sent.decode()))
        client_id, secret = fields.get("client_id", ""), fields.get("client_secret", "")
        scheme, _, pair = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Basic":
            client_id, _, secret = base64.b64decode(pair).decode().partition(":")
        account = self.accounts.get(client_id)
        is_right = account is not None and secret == account.client_secret
        if not is_right or fields.get("grant_type") != "client_credentials" or _owner(request) != client_id:
            return 401, {"error": "invalid_client", "error_description": f"client {client_id} {secret}"}
        token = f"token-{uuid4().hex}"
        self.tokens[token] = client_id
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.token_seconds}

    def _account(self, request: web.Request) -> Account:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        client_id = self.tokens.get(token, "")
        if scheme != "Bearer" or not client_id or _owner(request) != client_id:
            raise RefusedError("AcessoNegado", f"O token {token} não é válido.", status=401)
        return self.accounts[client_id]


def _done(account: Account, method: str, path: str, query: Json, body: Json) -> tuple[int, Json]:
    match method, path.strip("/").split("/"):
        case "GET", ["cobv"]:
            return account.listed(query)
        case "PUT", ["cobv", txid]:
            return account.create(txid, body)
        case "GET", ["cobv", txid]:
            return 200, account.charge(txid)
        case "PATCH", ["cobv", txid]:
            return account.revise(txid, body)
        case "PUT", ["pix", end_to_end_id, "devolucao", refund_id]:
            return account.refund(end_to_end_id, refund_id, body)
        case _:
            raise RefusedError("NaoEncontrado", "Recurso não encontrado.", status=404)


def _owner(request: web.Request) -> str:
    """Return the client to whom the certificate of a connection was issued."""
    assert request.transport is not None
    subject = request.transport.get_extra_info("peercert")["subject"]
    return next(value for part in subject for name, value in part if name == "commonName")


def _query(request: web.Request) -> Json:
    return dict(parse_qsl(request.query_string))


def _broken(request: web.Request) -> web.Response:
    """Break the connection of a request, so that no answer arrives."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@asynccontextmanager
async def open_double(
    now: Callable[[], datetime], contract: Contract | None = None
) -> AsyncGenerator[PixDouble]:
    """Run the server on a free port of localhost."""
    double = PixDouble(now, contract)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    double.authority.issue_cert("localhost").configure_cert(context)
    double.issuer.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", double.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        double.url = f"https://localhost:{runner.addresses[0][1]}"
        yield double
    finally:
        await runner.cleanup()
        await asyncio.sleep(0)
