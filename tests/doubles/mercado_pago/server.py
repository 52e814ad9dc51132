"""The HTTP server of the simulated Mercado Pago."""

import json
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

from aiohttp import web

from tests.doubles.contract import Contract
from tests.doubles.mercado_pago.book import Account, RefusedError
from tests.doubles.server import Double, Json, query_of, served

MAX_LIMIT = 100


@dataclass(slots=True, kw_only=True)
class MercadoPagoDouble(Double):
    now: Callable[[], datetime]
    accounts: dict[str, Account] = field(default_factory=dict[str, Account])

    def open_account(self) -> str:
        """Open an account, and return its access token."""
        token = f"TEST-{uuid4().hex}-031013-{uuid4().hex}"
        self.accounts[token] = Account(self.now)
        return token

    def documented_path(self, request: web.Request, status: int) -> str | None:
        """Leave refusals out, because the document describes no errors."""
        return request.path if status < 400 else None

    def answered(self, request: web.Request, path: str, sent: bytes) -> tuple[int, Any]:
        try:
            account = self._account(request)
            body = json.loads(sent, parse_float=Decimal) if sent else {}
            for method, pattern, act, status in ROUTES:
                if method == request.method and (found := re.fullmatch(pattern, path)):
                    return status, act(account, request, body, *found.groups())
        except RefusedError as refused:
            return refused.status, refused.body
        return 404, RefusedError(404, "resource not found", status=404, error="not_found").body

    def _account(self, request: web.Request) -> Account:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        account = self.accounts.get(token)
        if scheme != "Bearer" or account is None:
            raise RefusedError(401, f"invalid access token {token}", status=401, error="unauthorized")
        return account


def _preferences(account: Account, request: web.Request, _body: Json) -> Json:
    query = query_of(request)
    found, offset, limit = account.listed(query["external_reference"]), *_page(query)
    elements = found[offset : offset + limit]
    return {"elements": elements, "next_offset": offset + len(elements), "total": len(found)}


def _payments(account: Account, request: web.Request, _body: Json) -> Json:
    query = query_of(request)
    found, offset, limit = account.found(query["external_reference"]), *_page(query)
    paging = {"total": len(found), "limit": limit, "offset": offset}
    return {"paging": paging, "results": found[offset : offset + limit]}


def _page(query: Json) -> tuple[int, int]:
    offset, limit = int(query.get("offset", 0)), int(query.get("limit", 30))
    if not 1 <= limit <= MAX_LIMIT:
        raise RefusedError(400, "limit must be between 1 and 100")
    return offset, limit


def _shows_in_process(request: web.Request) -> bool:
    return request.headers.get("X-Render-In-Process-Refunds") == "true"


def _refunds(account: Account, request: web.Request, _body: Json, payment_id: str) -> Sequence[Json]:
    shown = account.payment(payment_id)["refunds"]
    return [each for each in shown if each["status"] != "in_process" or _shows_in_process(request)]


def _refund(account: Account, request: web.Request, body: Json, payment_id: str) -> Json:
    key = request.headers.get("X-Idempotency-Key", "")
    return account.refund(payment_id, body, key, shows_in_process=_shows_in_process(request))


ROUTES: Sequence[tuple[str, str, Callable[..., Any], int]] = (
    ("GET", "/users/me", lambda account, _, __: {"id": account.user_id, "site_id": account.site_id}, 200),
    ("POST", "/checkout/preferences", lambda account, _, body: account.create(body), 201),
    ("GET", "/checkout/preferences/search", _preferences, 200),
    ("GET", "/checkout/preferences/([^/]+)", lambda account, _, __, found: account.preference(found), 200),
    (
        "PUT",
        "/checkout/preferences/([^/]+)",
        lambda account, _, body, found: account.change(found, body),
        200,
    ),
    ("GET", "/v1/payments/search", _payments, 200),
    ("GET", "/v1/payments/([^/]+)", lambda account, _, __, found: account.payment(found), 200),
    ("PUT", "/v1/payments/([^/]+)", lambda account, _, body, found: account.cancel(found, body), 200),
    ("GET", "/v1/payments/([^/]+)/refunds", _refunds, 200),
    ("POST", "/v1/payments/([^/]+)/refunds", _refund, 201),
)
"""For each operation, the method, the pattern of the path, the function that does the work, and the status."""


@asynccontextmanager
async def open_double(
    now: Callable[[], datetime], contract: Contract | None = None
) -> AsyncGenerator[MercadoPagoDouble]:
    """Run the server on a free port of 127.0.0.1."""
    double = MercadoPagoDouble(now=now, contract=contract)
    async with served(double):
        yield double
