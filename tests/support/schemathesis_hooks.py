"""Hooks that adjust Schemathesis's requests. Its configuration loads this file.

Requests that are meant to be valid are adjusted to rules that JSON Schema cannot express. No request makes the engine
call another machine, and no request revokes the API key in use.
"""

import json
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import httpx
import schemathesis
from pydantic import TypeAdapter, ValidationError

from fatura.api.http.fields import Instant
from fatura.domain.account import MAX_CLOCK_OFFSET
from fatura.domain.endpoint_url import refusal
from fatura.usecases.sandbox.test_clock import MAX_ADVANCE

Json = Any
FILLED: Json = json.loads(os.environ["FILLED"])
RESOURCES: Json = FILLED["resources"]
PRICE_URL = f"{FILLED['merchant_url']}/price"
ANSWERS = Path(FILLED["answers"])
NEEDED = {
    "archive_plan": ("planId", RESOURCES["plan_id"]),
    "archive_product": ("productId", RESOURCES["product_id"]),
    "revoke_api_key": ("apiKeyId", FILLED["api_key_id"]),
}
"""Resources that later requests need.

A key is the operation that would end the resource. A value has the operation's path parameter and the resource's id.
"""
MAX_DAYS = 2
"""Maximum number of days by which one request advances the test clock. The engine's work for a day takes time."""


@schemathesis.hook
def before_load_schema(_context: Any, document: Json) -> None:
    """Extend the URL patterns of the schema, so that the URL of the local merchant server is valid."""
    nodes: list[Json] = [document]
    for node in nodes:
        nodes += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        if isinstance(node, dict) and node.get("format") == "uri" and "pattern" in node:
            node["pattern"] += f"|^{re.escape(PRICE_URL)}$"


@schemathesis.hook
def after_call(_context: Any, case: Any, response: Any) -> None:
    """Append the operation and the status of a response to the file that the test reads."""
    with ANSWERS.open("a") as file:
        file.write(f"{case.operation.definition.raw['operationId']} {response.status_code}\n")


@schemathesis.hook
def before_call(_context: Any, case: Any, _options: Any) -> None:
    operation = case.operation.definition.raw["operationId"]
    is_valid = case.meta is not None and case.meta.generation.mode.is_positive
    if is_valid:
        if isinstance(case.body, (dict, list)):
            case.body = whole_numbers(case.body)
        if crc32(repr((case.path_parameters, case.query, case.body)).encode()) % 2:
            prefer_suitable(operation, case)
        fix = FIXES.get(operation)
        if fix is not None:
            fix(case)
        if "Idempotency-Key" in (case.headers or {}):
            # Schemathesis may give two requests the same key. The API would refuse the second request (D-14).
            case.headers["Idempotency-Key"] = str(uuid4())
    restrict(operation, case, is_valid=is_valid)


def prefer_suitable(operation: str, case: Any) -> None:
    """Give a request what it needs to succeed: ids of resources in the right state, and lists without filters."""
    if operation.startswith("list_"):
        case.query = {}
    if operation == "redeliver_event":
        register_webhook()
    for suitable in RESOURCES["suitable"].get(operation, ()):
        case.path_parameters = {**(case.path_parameters or {}), **suitable}
    if operation == "create_subscription":
        case.body["planId"] = RESOURCES["plan_id"]
        case.body.pop("gatewayConnectionId", None)
    if operation == "move_subscriptions":
        case.body["toConnectionId"] = RESOURCES["ids"]["connectionId"][0]
    if operation in {"create_plan", "publish_plan", "customize_subscription"}:
        for item in case.body["items"]:
            item["productId"] = RESOURCES["product_id"]


def register_webhook() -> None:
    """Register the webhook again, because a request may have deleted it."""
    url = f"{FILLED['url']}/v1/integration/webhook"
    headers = {"Authorization": f"Bearer {FILLED['api_key']}"}
    assert httpx.put(url, json={"url": PRICE_URL}, headers=headers).is_success


def whole_numbers(value: Json) -> Json:
    """Replace 10.0 by 10. JSON Schema accepts both as integers; the API accepts only 10 (D-8)."""
    if isinstance(value, dict):
        return {name: whole_numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [whole_numbers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def restrict(operation: str, case: Any, *, is_valid: bool) -> None:
    """Prevent calls to other hosts, long clock advances, and changes of resources that later requests need.

    Also replace sandbox faults that would make a call hang, and those that would make the check of credentials fail.
    """
    name, needed = NEEDED.get(operation, ("", ""))
    if name and str(case.path_parameters.get(name)).lower() == needed:
        case.path_parameters[name] = str(uuid4())
    if not isinstance(case.body, dict):
        return
    for holder, name in ((case.body, "url"), (case.body, "endpointUrl"), (case.body.get("pricing"), "url")):
        if isinstance(holder, dict) and isinstance(url := holder.get(name), str):
            holder[name] = PRICE_URL if is_valid or refusal(url) is None else url
    if operation == "add_sandbox_fault" and case.body.get("fault") == "hang":
        case.body["fault"] = "rejected"
    if operation == "add_sandbox_fault" and case.body.get("operation") == "all":
        case.body["operation"] = "list_charges"
    if operation == "advance_test_clock":
        days, to = case.body.get("days"), case.body.get("to")
        if type(days) is int and 0 <= days <= MAX_ADVANCE.days:
            case.body["days"] = min(days, MAX_DAYS)
        if isinstance(to, str) and is_instant(to):
            case.body["to"] = str((datetime.now(UTC) + timedelta(days=MAX_DAYS)).date())


def is_instant(text: str) -> bool:
    try:
        TypeAdapter(Instant).validate_python(text)
    except ValidationError:
        return False
    return True


def fix_terms(case: Any) -> None:
    """Make each discount end no earlier than it begins, and set each given position to the index of its item."""
    for place, item in enumerate(case.body["items"]):
        if item.get("position") is not None:
            item["position"] = place
        for rule in item.get("discounts", ()):
            if rule.get("toCycle") is not None:
                rule["fromCycle"], rule["toCycle"] = sorted((rule["fromCycle"], rule["toCycle"]))


def given(case: Any, name: str) -> bool:
    """Return whether the request has a body with a value for the field. The body may be optional."""
    return isinstance(case.body, dict) and case.body.get(name) is not None


def fix_document(case: Any) -> None:
    """Replace the tax document, if given, by a valid one. JSON Schema cannot check its digits (D-251)."""
    if given(case, "document"):
        case.body["document"] = "52998224725"


def fix_subscription(case: Any) -> None:
    """Replace the tax document and the first charge date, if given, by valid values.

    The date must be between tomorrow and five years from now.
    """
    if case.body["customer"].get("document") is not None:
        case.body["customer"]["document"] = "52998224725"
    if given(case, "firstChargeDate"):
        case.body["firstChargeDate"] = str((datetime.now(UTC) + timedelta(days=60)).date())


def fix_reissue(case: Any) -> None:
    """Replace the due date, if given, by a valid one: between today and five years from now."""
    if given(case, "dueDate"):
        case.body["dueDate"] = str((datetime.now(UTC) + timedelta(days=60)).date())


def fix_payment(case: Any) -> None:
    """Replace the time of payment, if given, by a day in the past. The API refuses times in the future."""
    if given(case, "paidAt"):
        case.body["paidAt"] = "2026-01-01"


def fix_expiry(case: Any) -> None:
    """Replace the expiry of a key, if given, by a day that is in the future on every account's clock."""
    if given(case, "expiresAt"):
        case.body["expiresAt"] = str((datetime.now(UTC) + 2 * MAX_CLOCK_OFFSET).date())


def fix_fault(case: Any) -> None:
    """Remove `seconds` if `times` is given, because a fault may have only one of these fields."""
    if given(case, "times"):
        case.body.pop("seconds", None)


def fix_refund(case: Any) -> None:
    """Replace the amount, if given, by one cent, which can probably still be refunded."""
    if given(case, "amountCents"):
        case.body["amountCents"] = 1


def fix_due_days(case: Any) -> None:
    """Swap the first and the last day of the range if they are in the wrong order."""
    query = case.query or {}
    if query.get("dueFrom") is not None and query.get("dueTo") is not None:
        query["dueFrom"], query["dueTo"] = sorted((query["dueFrom"], query["dueTo"]))


def fix_gateway(case: Any) -> None:
    """Use the sandbox provider, with empty credentials and settings."""
    case.body |= {name: {} for name in ("credentials", "settings") if name in case.body}
    if "provider" in case.body:
        case.body["provider"] = "sandbox"


FIXES: dict[str, Callable[[Any], None]] = {
    "create_api_key": fix_expiry,
    "create_plan": fix_terms,
    "publish_plan": fix_terms,
    "customize_subscription": fix_terms,
    "patch_customer": fix_document,
    "create_subscription": fix_subscription,
    "reissue_invoice": fix_reissue,
    "pay_sandbox_charge": fix_payment,
    "record_payment": fix_payment,
    "refund_invoice": fix_refund,
    "add_sandbox_fault": fix_fault,
    "list_invoices": fix_due_days,
    "connect_gateway": fix_gateway,
    "patch_gateway": fix_gateway,
}
