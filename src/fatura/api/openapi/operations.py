"""Adds headers, security, example bodies, answers and problems to FastAPI's description of a route."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from fatura.api.http import problems, trace
from fatura.api.http.authentication import IDEMPOTENCY_KEY
from fatura.api.http.replies import MEDIA_TYPE, REPLAYED
from fatura.api.http.route import ApiRoute, Documentation, KeyPolicy, OpenRoute
from fatura.api.openapi.links import links_of
from fatura.api.openapi.schemas import Schema, name_of, reference, without_citations
from fatura.domain.errors import EngineError, Problem
from fatura.views.problems import ProblemView
from fatura.views.samples.answers import SAMPLES
from fatura.views.samples.story import REQUEST_ID
from fatura.views.view import View

SECURITY = "ApiKey"
_WITH_RETRY_AFTER = {409, 429, 503}
_VISIBLE_ASCII = "^[!-~]+$"


def complete(operation: Schema, route: ApiRoute | OpenRoute) -> None:
    """Add to an operation what FastAPI cannot derive: summary, security, headers, examples and responses."""
    documentation, takes_key = route.documentation, False
    operation["summary"] = documentation.summary
    operation["security"] = []
    if isinstance(route, ApiRoute):
        takes_key = route.key is not KeyPolicy.IGNORED
        operation["security"] = [{SECURITY: []}]
        operation["description"] += f"\n\nThe API key needs the scope `{route.scope}`."
        operation.setdefault("parameters", []).extend(_header_parameters(route.key))
        if route.body_may_be_absent:
            operation["requestBody"]["required"] = False
        if route.body_examples:
            operation["requestBody"]["content"][MEDIA_TYPE]["examples"] = examples(route.body_examples)
    operation["responses"] = {
        **{
            str(status): _answer(documentation, status, operation["operationId"], takes_key=takes_key)
            for status in documentation.answers
        },
        **_problem_answers(documentation.problems),
    }


def examples(named: Mapping[str, Any]) -> Schema:
    return {name: {"summary": name.capitalize(), "value": value} for name, value in named.items()}


def content(schema_name: str, examples: Schema, *, media_type: str = MEDIA_TYPE) -> Schema:
    return {media_type: {"schema": reference(schema_name), "examples": examples}}


def sample_of(view: type[View]) -> Any:
    return json.loads(SAMPLES[view].json())


def _header_parameters(key: KeyPolicy) -> Iterable[Schema]:
    yield {"$ref": "#/components/parameters/RequestId"}
    if key is not KeyPolicy.IGNORED:
        name = "IdempotencyKeyRequired" if key is KeyPolicy.REQUIRED else "IdempotencyKey"
        yield {"$ref": f"#/components/parameters/{name}"}


def _answer(documentation: Documentation, status: int, operation_id: str, *, takes_key: bool) -> Schema:
    view = documentation.answers[status]
    headers = _headers(status)
    if takes_key:
        headers[REPLAYED] = {"$ref": "#/components/headers/Replayed"}
    answer: Schema = {"description": "Done.", "headers": headers}
    if view is not None:
        answer["description"] = view.__doc__
        answer["content"] = content(name_of(view), {name_of(view): {"value": sample_of(view)}})
    if links := links_of(operation_id):
        answer["links"] = links
    return answer


def _problem_answers(found: Iterable[Problem]) -> dict[str, Schema]:
    """Return one answer for each HTTP status of the problems, with an example of each `engine.*` code (D-12)."""
    by_status: defaultdict[int, list[Problem]] = defaultdict(list)
    for problem in sorted(found, key=lambda each: (each.status, each.type)):
        by_status[problem.status].append(problem)
    return {
        str(status): {
            "description": " ".join(f"`{problem.type}`: {problem.when}" for problem in group),
            "headers": _headers(status),
            "content": content(
                name_of(ProblemView),
                {problem.type: {"summary": problem.title, "value": _example(problem)} for problem in group},
                media_type=problems.MEDIA_TYPE,
            ),
        }
        for status, group in by_status.items()
    }


def _example(problem: Problem) -> Any:
    error = EngineError(problem, without_citations(problem.when))
    return json.loads(ProblemView.of(error, REQUEST_ID).json())


def _headers(status: int) -> Schema:
    found = {trace.HEADER: {"$ref": "#/components/headers/RequestId"}}
    if status in _WITH_RETRY_AFTER:
        found["Retry-After"] = {"$ref": "#/components/headers/RetryAfter"}
    return found


def _key_parameter(*, required: bool) -> Schema:
    return {
        "name": IDEMPOTENCY_KEY,
        "in": "header",
        "required": required,
        "description": "Send another key, such as a UUID, with each new request. For 30 days, a repeated request "
        "with the same key gets the first answer again, with the header `Idempotent-Replayed: true`. An answer that "
        "contains a secret is kept for 24 hours.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": _VISIBLE_ASCII},
    }


PARAMETERS: Schema = {
    "RequestId": {
        "name": trace.HEADER,
        "in": "header",
        "required": False,
        "description": "Correlation id of 1 to 128 visible ASCII characters. If it is missing or invalid, Fatura makes "
        "a new id. The answer's header, problems and the engine's logs show the id.",
        "schema": {"type": "string"},
    },
    "IdempotencyKey": _key_parameter(required=False),
    "IdempotencyKeyRequired": _key_parameter(required=True),
}
HEADERS: Schema = {
    "RequestId": {
        "description": "Correlation id of the request.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": _VISIBLE_ASCII},
    },
    "Replayed": {
        "description": "Present when this answer repeats the first answer to the Idempotency-Key.",
        "schema": {"type": "string", "const": "true"},
    },
    "RetryAfter": {
        "description": "Seconds to wait before the next try.",
        "schema": {"type": "integer", "minimum": 1},
    },
}
