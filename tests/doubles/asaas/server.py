"""The HTTP server of the simulated Asaas."""

import json
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any, ClassVar
from uuid import uuid4

from aiohttp import web

from tests.doubles.asaas.book import Account, RefusedError
from tests.doubles.contract import Contract
from tests.doubles.server import Double, Json, query_of, served

MAX_LIMIT = 100


@dataclass(slots=True, kw_only=True)
class AsaasDouble(Double):
    prefix: ClassVar[str] = "/v3"
    today: date
    accounts: dict[str, Account] = field(default_factory=dict[str, Account])
    refused_changes: bool = False
    """Whether every change of a customer is refused."""

    def open_account(self) -> str:
        """Open an account, and return its API key."""
        token = f"$aact_hmlg_{uuid4().hex}"
        self.accounts[token] = Account(self.today)
        return token

    def answered(self, request: web.Request, path: str, sent: bytes) -> tuple[int, Any]:
        try:
            account = self._account(request, sent)
            body = json.loads(sent, parse_float=Decimal) if sent else {}
            for method, pattern, act in ROUTES:
                if method == request.method and (found := re.fullmatch(pattern, path)):
                    return 200, act(account, query_of(request), body, *found.groups())
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


@asynccontextmanager
async def open_double(today: date, contract: Contract | None = None) -> AsyncGenerator[AsaasDouble]:
    """Run the server on a free port of 127.0.0.1."""
    double = AsaasDouble(today=today, contract=contract)
    async with served(double):
        double.url += AsaasDouble.prefix
        yield double
