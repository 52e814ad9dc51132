"""The OpenAPI document that `/docs-json` serves: what FastAPI knows of the routes, and what only we know of them."""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from fatura import __version__
from fatura.api.http import trace
from fatura.api.http.answers import REPLAYED
from fatura.api.http.authentication import IDEMPOTENCY_KEY
from fatura.api.http.problems import MEDIA_TYPE
from fatura.api.http.route import Key
from fatura.api.models.shared import Problem as ProblemModel
from fatura.api.v1.links import links_of
from fatura.domain.errors import CATALOGUE, Problem

Schema = dict[str, Any]
_SECURITY = "ApiKey"
_EXAMPLE_REQUEST_ID = "019a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f50"
_WITH_RETRY_AFTER = {"409", "429", "503"}
_VISIBLE_ASCII = "^[!-~]+$"
_CITATION = re.compile(r" \((spec|D-|RFC)[^)]*\)")

_DESCRIPTION = """\
Recurring billing: define products and plans, bind customers by subscriptions, and invoices are generated, charged
and paid by themselves.

Money is integer cents. Dates are `YYYY-MM-DD` in America/Sao_Paulo; instants are ISO 8601 in UTC with milliseconds.
Integers are written without fraction and exponent (`10.0` and `1e1` are refused), in at most 40 digits. Texts hold no
NUL characters and no lone surrogates.

Every error is `application/problem+json`; branch on its `type`, never on its text:

| Type | Status | When |
|---|---|---|
"""


def operation_extras(key: Key) -> Schema:
    """Return what every authenticated operation says besides its own inputs and answers."""
    parameters = [{"$ref": "#/components/parameters/RequestId"}]
    if key is not Key.IGNORED:
        name = "IdempotencyKeyRequired" if key is Key.REQUIRED else "IdempotencyKey"
        parameters.append({"$ref": f"#/components/parameters/{name}"})
    return {"security": [{_SECURITY: []}], "parameters": parameters}


def problem_responses(problems: Iterable[Problem]) -> dict[int | str, Schema]:
    """Return the document's entries for problems, grouped by status, every code with an example (D-12)."""
    by_status: defaultdict[int, list[Problem]] = defaultdict(list)
    for problem in sorted(problems, key=lambda each: (each.status, each.type)):
        by_status[problem.status].append(problem)
    return {status: _problem_response(status, group) for status, group in by_status.items()}


def _problem_response(status: int, group: list[Problem]) -> Schema:
    types = {"type": "string", "enum": [problem.type for problem in group]}
    narrowed = {"properties": {"type": types, "status": {"type": "integer", "const": status}}}
    return {
        "description": " ".join(f"`{problem.type}`: {problem.when}" for problem in group),
        "content": {
            MEDIA_TYPE: {
                "schema": {"allOf": [{"$ref": "#/components/schemas/Problem"}, narrowed]},
                "examples": {
                    problem.type: {"summary": problem.title, "value": _example(problem)} for problem in group
                },
            }
        },
    }


def _example(problem: Problem) -> Schema:
    return {
        "type": problem.type,
        "title": problem.title,
        "status": problem.status,
        "detail": _without_citations(problem.when),
        "requestId": _EXAMPLE_REQUEST_ID,
    }


def document(app: FastAPI) -> Schema:
    """Return the whole document."""
    rows = "".join(
        f"| `{each.type}` | {each.status} | {_without_citations(each.when)} |\n" for each in CATALOGUE
    )
    found = get_openapi(
        title="Fatura",
        version=__version__,
        description=_DESCRIPTION + rows,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    components = found.setdefault("components", {})
    schemas: Schema = components.setdefault("schemas", {})
    for framework_own in ("HTTPValidationError", "ValidationError"):
        schemas.pop(framework_own, None)
    problem = ProblemModel.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= {**problem.pop("$defs"), "Problem": problem}
    components |= {
        "parameters": _PARAMETERS,
        "headers": _HEADERS,
        "securitySchemes": {_SECURITY: {"type": "http", "scheme": "bearer", "bearerFormat": "rk_..."}},
    }
    for path in found["paths"].values():
        for operation in path.values():
            _finish(operation)
    _tidy(found["paths"])
    _tidy(schemas)
    return found


def _finish(operation: Schema) -> None:
    """Name the headers and links of the answers, and drop the framework's own 422, which is never answered."""
    responses: dict[str, Schema] = operation["responses"]
    refused = responses.get("422", {}).get("content", {})
    if refused and MEDIA_TYPE not in refused:
        del responses["422"]
    takes_key = any("IdempotencyKey" in each.get("$ref", "") for each in operation.get("parameters", ()))
    for status, response in responses.items():
        response["headers"] = {trace.HEADER: {"$ref": "#/components/headers/RequestId"}}
        if takes_key and status.startswith("2"):
            response["headers"][REPLAYED] = {"$ref": "#/components/headers/Replayed"}
        if status.startswith("2") and (links := links_of(operation["operationId"])):
            response["links"] = links
        if status in _WITH_RETRY_AFTER:
            response["headers"]["Retry-After"] = {"$ref": "#/components/headers/RetryAfter"}


def _tidy(value: Any) -> None:
    """Drop the titles made up from field names, write whole limits as integers, and leave citations to the code."""
    if isinstance(value, list):
        for inner in cast("list[Any]", value):
            _tidy(inner)
    if not isinstance(value, dict):
        return
    node = cast("Schema", value)
    if isinstance(node.get("title"), str):
        del node["title"]
    for name, inner in node.items():
        if isinstance(inner, float) and inner.is_integer():
            node[name] = int(inner)
        elif name == "description" and isinstance(inner, str):
            node[name] = _without_citations(inner)
        elif name not in {"example", "examples"}:
            _tidy(inner)


def _without_citations(text: str) -> str:
    return _CITATION.sub("", text)


def _key_parameter(*, required: bool) -> Schema:
    return {
        "name": IDEMPOTENCY_KEY,
        "in": "header",
        "required": required,
        "description": "A fresh text for every new request. A repeat with it is answered what the first one was, for "
        "30 days, with the header `Idempotent-Replayed: true`.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": _VISIBLE_ASCII},
        "example": "4f0f1e5c-8a55-4d9e-9d3c-0c9a4e6f2b11",
    }


_REQUEST_ID: Schema = {"type": "string", "minLength": 1, "maxLength": 128, "pattern": _VISIBLE_ASCII}
_PARAMETERS: Schema = {
    "RequestId": {
        "name": trace.HEADER,
        "in": "header",
        "required": False,
        "description": "Correlation id of 1 to 128 visible ASCII characters; one is made when none is sent, or another "
        "text. It comes back in the header, in problems and in our logs.",
        "schema": {"type": "string"},
        "example": _EXAMPLE_REQUEST_ID,
    },
    "IdempotencyKey": _key_parameter(required=False),
    "IdempotencyKeyRequired": _key_parameter(required=True),
}
_HEADERS: Schema = {
    "RequestId": {"description": "The request's correlation id.", "schema": _REQUEST_ID},
    "Replayed": {
        "description": "Stands on the answer to a repeat, which is the first one's.",
        "schema": {"type": "string", "const": "true"},
    },
    "RetryAfter": {
        "description": "Seconds to wait before asking again.",
        "schema": {"type": "integer", "minimum": 1},
    },
}
