"""Checks of HTTP responses: complete problem documents, invalid fields and unchanged data."""

import re
from hashlib import sha256
from typing import Any

from fatura.domain.errors import CATALOGUE
from tests.support.world import Answer, Merchant

Json = Any
UNKNOWN_ID = "019a0000-0000-7000-8000-000000000000"
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
"""ISO 8601 in UTC with milliseconds and `Z` (spec 2.1)."""
CATALOG_LISTS = ("/v1/products", "/v1/plans", "/v1/customers", "/v1/subscriptions", "/v1/invoices")
TITLES = {(problem.type, problem.status): problem.title for problem in CATALOGUE}


def problem(answer: Answer) -> tuple[int, str, Json]:
    """Check a problem document completely. Return its status, type and meta (spec 7, D-13)."""
    document = answer.json
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(document) - {"meta"} == {"type", "title", "status", "detail", "requestId"}
    assert document["title"] == TITLES[document["type"], answer.status]
    assert document["status"] == answer.status
    assert document["detail"].strip()
    assert document["requestId"] == answer.headers["x-request-id"]
    return answer.status, document["type"], document.get("meta")


def invalid(answer: Answer) -> dict[str, str]:
    """Check that a response is a 400 for invalid fields. Return the message for each field, by path."""
    status, type_, meta = problem(answer)
    assert (status, type_) == (400, "engine.invalid_request"), answer.body
    fields: list[dict[str, str]] = meta["fields"]
    assert all(field["message"].strip() for field in fields)
    assert len({field["path"] for field in fields}) == len(fields)
    return {field["path"]: field["message"] for field in fields}


async def everything(merchant: Merchant) -> list[Json]:
    """Return an account's most important lists, its events and its audit log.

    Tests compare the results before and after a refused request, to prove that the request changed nothing.
    """
    lists = [await merchant.all(path) for path in CATALOG_LISTS]
    gateways = (await merchant.get("/v1/integration/gateways")).json
    keys = (await merchant.get("/v1/integration/api-keys")).json["data"]
    shown = [key | {"lastUsedAt": None} for key in keys]
    return [*lists, gateways, shown, await merchant.events(), await merchant.audit()]


def hashed(key: str) -> str:
    """Return an Idempotency-Key as it is stored (D-228)."""
    return sha256(key.encode()).hexdigest()
