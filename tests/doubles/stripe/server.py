"""The HTTP server of the simulated Stripe, with idempotency keys that it remembers for a day."""

import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

from aiohttp import web

from tests.doubles.contract import Contract
from tests.doubles.forms import nested
from tests.doubles.server import Double, Json, served
from tests.doubles.stripe.book import LIST, Account, RefusedError

VERSION = "2026-10-28.endive"
KEYS_KEPT = timedelta(hours=24)
SEARCH_LAG = timedelta(minutes=1)
MAX_LIMIT = 100
MAX_KEY_LENGTH = 255
SHOWN_LINES = 10


@dataclass(slots=True)
class Saved:
    """The answer that was saved under an idempotency key."""

    at: datetime
    request: tuple[str, bytes]
    status: int
    answer: str


@dataclass(slots=True, kw_only=True)
class StripeDouble(Double):
    now: datetime
    accounts: dict[str, Account] = field(default_factory=dict[str, Account])
    saved: dict[tuple[str, str], Saved] = field(default_factory=dict[tuple[str, str], Saved])
    crashes: list[str] = field(default_factory=list[str])
    """Paths whose next request fails with a 500, which is saved under its idempotency key."""
    replays: int = 0

    def open_account(self) -> str:
        """Open an account, and return its secret key."""
        key = f"sk_test_{uuid4().hex}"
        self.accounts[key] = Account(lambda: self.now)
        return key

    def answered(self, request: web.Request, path: str, sent: bytes) -> tuple[int, Any]:
        try:
            key = request.headers.get("Authorization", "").removeprefix("Bearer ")
            account = self._account(request, key)
            idempotency_key = request.headers.get("Idempotency-Key")
            if request.method != "POST" or idempotency_key is None:
                return self._done(account, request, path, sent)
            return self._once(account, request, path, sent, (key, idempotency_key))
        except RefusedError as refused:
            return refused.status, refused.body

    def _account(self, request: web.Request, key: str) -> Account:
        account = self.accounts.get(key)
        if account is None:
            raise RefusedError(None, "Invalid API Key provided: sk_test_****zzzz", status=401)
        if request.headers.get("Stripe-Version") != VERSION:
            raise RefusedError("url_invalid", "The version of the API is not pinned.")
        form = "application/x-www-form-urlencoded"
        if request.method == "POST" and request.headers.get("Content-Type") != form:
            raise RefusedError("parameter_unknown", "The body must be a form.")
        return account

    def _once(
        self, account: Account, request: web.Request, path: str, sent: bytes, key: tuple[str, str]
    ) -> tuple[int, Any]:
        """Return the saved answer of an idempotency key, or do the work and save its answer."""
        if len(key[1]) > MAX_KEY_LENGTH:
            raise RefusedError("idempotency_key_invalid", "The key is too long.")
        found = self.saved.get(key)
        if found is not None and self.now - found.at < KEYS_KEPT:
            if found.request != (path, sent):
                text = "Keys for idempotent requests can only be used with the same parameters."
                raise RefusedError(None, text, type="idempotency_error")
            self.replays += 1
            return found.status, json.loads(found.answer)
        if path in self.crashes:
            self.crashes.remove(path)
            status, answer = 500, {"error": {"type": "api_error", "message": "An error occurred."}}
        else:
            status, answer = self._done(account, request, path, sent)
        self.saved[key] = Saved(self.now, (path, sent), status, json.dumps(answer))
        return status, answer

    def _done(self, account: Account, request: web.Request, path: str, sent: bytes) -> tuple[int, Any]:
        query = nested(parse_qsl(request.query_string, keep_blank_values=True))
        body = nested(parse_qsl(sent.decode(), keep_blank_values=True))
        for method, pattern, known, act in ROUTES:
            if method == request.method and (found := re.fullmatch(pattern, path)):
                for name in (query if method == "GET" else body).keys() - set(known.split()):
                    raise RefusedError("parameter_unknown", f"Received unknown parameter: {name}", param=name)
                return 200, act(account, query if method == "GET" else body, *found.groups())
        raise RefusedError("url_invalid", "Unrecognized request URL.", status=404)


def _invoice(account: Account, query: Json, invoice_id: str) -> Json:
    invoice = account.found("invoice", invoice_id)
    return _with_payments(account, invoice, is_expanded="payments" in query.get("expand", ()))


def _invoices(account: Account, query: Json) -> Json:
    listed = _page(
        [each for each in account.invoices.values() if query.get("customer") in {None, each["customer"]}],
        query,
    )
    is_expanded = "data.payments" in query.get("expand", ())
    listed["data"] = [_with_payments(account, each, is_expanded=is_expanded) for each in listed["data"]]
    return listed


def _searched(account: Account, query: Json) -> Json:
    """Search invoices by one metadata field. The search shows an invoice a minute late."""
    found = re.fullmatch(r"metadata\['(\w+)'\]:'([^']+)'", query["query"])
    if found is None:
        raise RefusedError("parameter_invalid_string", "The query cannot be parsed.", param="query")
    until = (account.clock() - SEARCH_LAG).timestamp()
    matching = [
        each
        for each in reversed(account.invoices.values())
        if each["metadata"].get(found[1]) == found[2] and each["created"] <= until
    ]
    return {**LIST, "object": "search_result", "data": [_with_payments(account, each) for each in matching]}


def _with_payments(account: Account, invoice: Json, *, is_expanded: bool = False) -> Json:
    lines = invoice["lines"]["data"]
    shown = {**LIST, "data": lines[:SHOWN_LINES], "has_more": len(lines) > SHOWN_LINES}
    payments = {"payments": {**LIST, "data": list(account.payments(invoice["id"]))}} if is_expanded else {}
    return {**invoice, "lines": shown, **payments}


def _update(kind: str) -> Callable[..., Json]:
    def update(account: Account, body: Json, object_id: str) -> Json:
        found = account.found(kind, object_id)
        found |= {name: value or None for name, value in body.items() if name != "metadata"}
        found["metadata"] |= body.get("metadata", {})
        return found

    return update


def _of_payment(kind: str) -> Callable[[Account, Json], Json]:
    def listed(account: Account, query: Json) -> Json:
        found = [
            each
            for each in account.of(kind).values()
            if query.get("payment_intent") in {None, each["payment_intent"]}
        ]
        return _page(found, query)

    return listed


def _customers(account: Account, query: Json) -> Json:
    found = [each for each in account.of("customer").values() if not each.get("deleted")]
    return _page([each for each in found if query.get("email") in {None, each.get("email")}], query)


def _page(found: Sequence[Json], query: Mapping[str, Any]) -> Json:
    """Return a page of a list, newest first. `found` is ordered by creation."""
    limit = int(query.get("limit", 10))
    if not 1 <= limit <= MAX_LIMIT:
        raise RefusedError("parameter_invalid_integer", "The limit is from 1 to 100.", param="limit")
    bounds = query.get("created", {})
    least, below = int(bounds.get("gte", 0)), int(bounds.get("lt", 10**12))
    listed = [each for each in reversed(found) if least <= each["created"] < below]
    ids = [each["id"] for each in listed]
    for name in query.keys() & {"starting_after", "ending_before"}:
        if query[name] not in ids:
            raise RefusedError("resource_missing", f"No such object: '{query[name]}'", param=name)
    if "ending_before" in query:
        place = ids.index(query["ending_before"])
        return {**LIST, "data": listed[max(place - limit, 0) : place], "has_more": place > limit}
    if "starting_after" in query:
        listed = listed[ids.index(query["starting_after"]) + 1 :]
    return {**LIST, "data": listed[:limit], "has_more": len(listed) > limit}


_PAGE = "limit starting_after ending_before created expand"
_DRAFT = (
    "customer currency collection_method due_date auto_advance automatic_tax pending_invoice_items_behavior "
    "payment_settings metadata expand description"
)
ROUTES: Sequence[tuple[str, str, str, Callable[..., Any]]] = (
    ("GET", "/v1/account", "", lambda account, _: {"id": account.account_id, "object": "account"}),
    ("GET", "/v1/customers", f"{_PAGE} email", _customers),
    (
        "POST",
        "/v1/customers",
        "name email preferred_locales metadata tax_id_data",
        lambda account, body: account.create_customer(body),
    ),
    ("POST", "/v1/customers/([^/]+)", "name email metadata", _update("customer")),
    ("GET", "/v1/invoices", f"{_PAGE} customer status", _invoices),
    ("GET", "/v1/invoices/search", "query limit page expand", _searched),
    ("POST", "/v1/invoices", _DRAFT, lambda account, body: account.create_invoice(body)),
    ("GET", "/v1/invoices/([^/]+)", "expand", _invoice),
    ("DELETE", "/v1/invoices/([^/]+)", "", lambda account, _, found: account.delete(found)),
    (
        "POST",
        "/v1/invoiceitems",
        "customer invoice amount currency description discountable metadata",
        lambda account, body: account.add_line(body),
    ),
    (
        "POST",
        "/v1/invoices/([^/]+)/finalize",
        "auto_advance expand",
        lambda account, _, found: account.finalize(found),
    ),
    ("POST", "/v1/invoices/([^/]+)/void", "expand", lambda account, _, found: account.void(found)),
    ("GET", "/v1/refunds", f"{_PAGE} payment_intent charge", _of_payment("refund")),
    (
        "POST",
        "/v1/refunds",
        "payment_intent amount reason metadata",
        lambda account, body: account.refund(body),
    ),
    ("GET", "/v1/disputes", f"{_PAGE} payment_intent charge", _of_payment("dispute")),
    (
        "POST",
        "/v1/products",
        "id name description metadata",
        lambda account, body: account.create_product(body),
    ),
    ("POST", "/v1/products/([^/]+)", "name description metadata active", _update("product")),
)
"""For each operation: method, pattern of the path, known parameters, and the function that does the work."""


@asynccontextmanager
async def open_double(now: datetime, contract: Contract | None = None) -> AsyncGenerator[StripeDouble]:
    """Run the server on a free port of 127.0.0.1."""
    double = StripeDouble(now=now, contract=contract)
    async with served(double):
        yield double
