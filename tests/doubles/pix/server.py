"""The HTTPS server of the simulated bank, which requires client certificates."""

import base64
import json
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import parse_qsl
from uuid import uuid4

import trustme
from aiohttp import web

from tests.doubles.contract import Contract
from tests.doubles.pix.book import Account, RefusedError
from tests.doubles.server import Double, Json, query_of, served

TOKEN_SECONDS = 3600
API = "/v2"


@dataclass(slots=True, kw_only=True)
class PixDouble(Double):
    prefix: ClassVar[str] = API
    error_type: ClassVar[str] = "application/problem+json"
    now: Callable[[], datetime]
    issuer: trustme.CA = field(default_factory=trustme.CA)
    """Issues the clients' certificates. `authority` issued the server's certificate."""
    authority: trustme.CA = field(default_factory=trustme.CA)
    accounts: dict[str, Account] = field(default_factory=dict[str, Account])
    tokens: dict[str, str] = field(default_factory=dict[str, str])
    token_seconds: int = TOKEN_SECONDS

    def open_account(self, pix_key: str = "5f84a4c5-c5cb-4599-9f13-7eb4d419dacc") -> Account:
        account = Account(self.now, pix_key)
        self.accounts[account.client_id] = account
        return account

    def client_context(self) -> ssl.SSLContext:
        """Return a TLS context that trusts this server only."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context

    def documented_path(self, request: web.Request, status: int) -> str | None:
        is_documented = request.path.startswith(API) and status not in {401, 403}
        return request.path.removeprefix(API) if is_documented else None

    def answered(self, request: web.Request, path: str, sent: bytes) -> tuple[int, Any]:
        if (request.method, path) == ("POST", "/oauth/token"):
            return self._token(request, sent)
        try:
            account = self._account(request)
            body = json.loads(sent) if sent else {}
            return _done(account, request.method, path, query_of(request), body)
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


@asynccontextmanager
async def open_double(
    now: Callable[[], datetime], contract: Contract | None = None
) -> AsyncGenerator[PixDouble]:
    """Run the server on a free port of localhost."""
    double = PixDouble(now=now, contract=contract)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    double.authority.issue_cert("localhost").configure_cert(context)
    double.issuer.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    async with served(double, context):
        yield double
