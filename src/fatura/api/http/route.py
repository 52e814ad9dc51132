"""A route of the API. FastAPI matches and documents it; this module serves requests, with checks in the order of D-10.

FastAPI's own handler is not used, because that handler reads the body before authentication.
"""

import difflib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Annotated, Any, get_args
from urllib.parse import parse_qsl

import structlog
from fastapi import Path
from fastapi import Query as QueryParameter
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from fatura.api.http import body, validation_errors
from fatura.api.http.authentication import Gate, check_media_type, content_length, idempotency_key
from fatura.api.http.fields import read_uuid
from fatura.api.http.forms import Examples
from fatura.api.http.trace import trace_of
from fatura.domain.account import Account, Caller
from fatura.domain.audit import Actor, ActorKind, AuditAction, Origin
from fatura.domain.credentials import Scope as KeyScope
from fatura.domain.endpoint_url import UrlRules
from fatura.domain.errors import FORBIDDEN, EngineError, Problem, account_suspended, invalid_fields, not_found
from fatura.usecases.audit_draft import AuditDraft, AuditError
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import IdempotentRequest
from fatura.views.view import View

Endpoint = Callable[..., Awaitable[Response]]
MAX_QUERY_PARAMETERS = 100
MAX_COMPARED = 3
"""Maximum number of unknown parameters for which an error suggests a similar name; each search takes long (D-60)."""
WHOLE_QUERY = "query"
"""The path of an error that is reported for the query as a whole."""
MAX_ID_CHARS = 255
_NO_MATCH: tuple[Match, Scope] = (Match.NONE, {})
_TAKES_BODY = frozenset({"DELETE", "PATCH", "POST", "PUT"})


@dataclass(frozen=True, slots=True)
class Documentation:
    """The description of a route in the OpenAPI document.

    `answers` maps each success status to the view of its answer, or to None if the answer has no body.
    """

    tag: str
    summary: str
    answers: Mapping[int, type[View] | None]
    problems: frozenset[Problem] = frozenset()


_UNDOCUMENTED = Documentation("", "", {})


class KeyPolicy(Enum):
    """What a route does with an Idempotency-Key (D-14)."""

    REQUIRED = auto()
    HONOURED = auto()
    IGNORED = auto()


@dataclass(frozen=True, slots=True)
class Call:
    """An authenticated request, as its endpoint gets it. `address` is the result of `client_address`.

    `request` is None if no Idempotency-Key was sent, or if the route ignores the key. If `request` is set, Fatura
    stores the answer, and sends it again if the request is repeated. If `holds_secret` is true, Fatura encrypts the
    stored answer. `draft` is None if the route changes nothing. Otherwise, `draft` is the start of the request's audit
    entry. The endpoint passes it to the transaction that makes the change (D-63).
    """

    deps: Deps
    caller: Caller
    address: str
    request: IdempotentRequest | None
    draft: AuditDraft | None
    only_reads: bool
    success_status: int
    holds_secret: bool

    @property
    def account(self) -> Account:
        return self.caller.account

    @property
    def needed_draft(self) -> AuditDraft:
        assert self.draft is not None, "the route declares an audit action"
        return self.draft

    def settle(self) -> None:
        """Note that this request needs no audit entry, because it is a repeat or a dry run."""
        self.needed_draft.settle()


def read_text_id(text: str) -> str:
    """Read an id that need not be a UUID. Raises ValueError if the text is too long or cannot be stored."""
    if len(text) > MAX_ID_CHARS or not body.is_storable(text):
        raise ValueError(text)
    return text


@dataclass(frozen=True, slots=True)
class PathId:
    """Declares an id in a path, as metadata for `Annotated`: what the id identifies, and how to parse it.

    A malformed id is answered with 404, as an unknown id is (D-11).
    """

    resource: str
    form: Callable[[str], object] = read_uuid

    def read(self, text: str) -> object:
        """Return the parsed id. Raises EngineError: `engine.not_found` if the id is malformed."""
        try:
            return self.form(text)
        except ValueError:
            raise not_found(self.resource, text) from None


def _path_id(annotation: Any) -> PathId:
    found = [each for each in get_args(annotation) if isinstance(each, PathId)]
    assert len(found) == 1, f"a path parameter is Annotated with its PathId: {annotation}"
    return found[0]


def _documented(signature: inspect.Signature) -> inspect.Signature:
    """Return the signature that FastAPI documents. It omits the parameter `call`."""
    shown: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name == "query":
            shown.append(parameter.replace(annotation=Annotated[parameter.annotation, QueryParameter()]))
        elif name == "body":
            shown.append(parameter)
        elif name != "call":
            shown.append(
                parameter.replace(annotation=Annotated[parameter.annotation, Path(alias=to_camel(name))])
            )
    return signature.replace(parameters=shown)


class ApiRoute(APIRoute):
    """An authenticated route. Its endpoint is `async (call, [ids...], [query], [body]) -> Response`."""

    def __init__(
        self,
        path: str,
        endpoint: Any,
        documentation: Documentation,
        *,
        method: str,
        scope: KeyScope,
        audit: AuditAction | None,
        key: KeyPolicy,
        holds_secret: bool,
    ) -> None:
        signature = inspect.signature(endpoint, eval_str=True)
        query, taken = signature.parameters.get("query"), signature.parameters.get("body")
        self._query = None if query is None else TypeAdapter[Any](query.annotation)
        self._query_names = frozenset[str](
            () if query is None else (field.alias for field in query.annotation.model_fields.values())
        )
        self._body = None if taken is None else TypeAdapter[Any](taken.annotation)
        self._ids = [
            (name, to_camel(name), _path_id(parameter.annotation))
            for name, parameter in signature.parameters.items()
            if name not in {"call", "query", "body"}
        ]
        self._run: Endpoint = endpoint
        self.documentation = documentation
        self.scope = scope
        self.audit = audit
        self.key = key
        self.body_examples: Examples = {} if taken is None else taken.annotation.examples
        self.body_may_be_absent = taken is not None and getattr(taken.annotation, "may_be_absent", False)
        self._success_status = next(iter(documentation.answers))
        self._holds_secret = holds_secret
        endpoint.__signature__ = _documented(signature)
        super().__init__(
            path,
            endpoint,
            methods=[method],
            status_code=self._success_status,
            tags=[documentation.tag],
            operation_id=endpoint.__name__,
        )
        self._fixed_start = path.partition("{")[0]
        self.app = self._serve

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Compare the start of the path first. This comparison rules out most routes quickly."""
        if not scope["path"].startswith(self._fixed_start):
            return _NO_MATCH
        return super().matches(scope)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request in the order 401, 429, 403, 413, 400, then call the endpoint (D-10, D-242).

        `open_requests` counts the request from the arrival of its body until its answer is sent (D-179).
        """
        gate: Gate = scope["app"].state.gate
        trace_of(scope).route = self.path
        caller = await gate.admit(scope)
        account_id = caller.account.account_id
        structlog.contextvars.bind_contextvars(account_id=str(account_id))
        self._check(caller)
        raw = b""
        if scope["method"] in _TAKES_BODY:
            raw, waited = await body.read_noting_wait(
                receive, announced_bytes=content_length(scope["headers"])
            )
            if waited:
                caller = await gate.admit_again(scope)
                self._check(caller)
        with gate.deps.open_requests.one(account_id):
            response = await self._answer(gate, caller, scope, raw)
            await response(scope, receive, send)

    def _check(self, caller: Caller) -> None:
        """Refuse a key that lacks the scope of the route (D-64), and a key of a suspended account (D-242).

        Raises EngineError: `engine.forbidden`, `engine.account_suspended`.
        """
        if self.scope not in caller.scopes:
            raise EngineError(
                FORBIDDEN,
                f"The API key lacks the scope `{self.scope}`; send another key.",
                meta={"scope": self.scope},
            )
        if caller.is_suspended:
            raise account_suspended()

    async def _answer(self, gate: Gate, caller: Caller, scope: Scope, raw: bytes) -> Response:
        method, headers = scope["method"], scope["headers"]
        key = None
        if self.key is not KeyPolicy.IGNORED:
            key = idempotency_key(headers, required=self.key is KeyPolicy.REQUIRED)
        if raw:
            check_media_type(headers)
        value = body.parse(raw) if raw else None
        if self._body is None:
            value = _nothing(value, sent=bool(raw))
        elif self.body_may_be_absent and not raw:
            value = dict[str, Any]()
        arguments = self._validated(scope["query_string"], value, gate.deps.url_rules[caller.account.mode])
        for name, wire_name, path_id in self._ids:
            arguments[name] = path_id.read(scope["path_params"][wire_name])
        address = gate.client_address(scope)
        draft = None
        if self.audit is not None:
            actor = Actor(ActorKind.API_KEY, caller.key_name, caller.api_key_id)
            draft = AuditDraft(Origin(actor, trace_of(scope).request_id, address), self.audit)
        call = Call(
            gate.deps,
            caller,
            address,
            draft=draft,
            request=None if key is None else IdempotentRequest(key, f"{method} {scope['path']}", value),
            only_reads=method not in _TAKES_BODY,
            success_status=self._success_status,
            holds_secret=self._holds_secret,
        )
        response = await self._run(call, **arguments)
        if draft is not None and not draft.is_settled:
            raise AuditError(f"{method} {self.path} added no audit entry")
        return response

    def _validated(self, query_string: bytes, value: Any, rules: UrlRules) -> dict[str, Any]:
        """Return the validated `query` and `body` of the endpoint. The body's validators get `rules` as their context.

        Raises EngineError: `engine.invalid_request` with the invalid fields of both the query and the body.
        """
        arguments = dict[str, Any]()
        parameters, refused = read_query(query_string, self._query_names)
        if self._query is not None:
            try:
                arguments["query"] = self._query.validate_python(parameters)
            except ValidationError as error:
                refused += validation_errors.listed(error, parameters)
        if self._body is not None:
            try:
                arguments["body"] = self._body.validate_python(value, context=rules)
            except ValidationError as error:
                refused += validation_errors.listed(error, value)
        if refused:
            raise invalid_fields(*refused)
        return arguments


def _nothing(value: Any, *, sent: bool) -> None:
    """Refuse a body on a route that takes none; an empty JSON object is allowed.

    Raises EngineError: `engine.invalid_request`.
    """
    if sent and value != {}:
        raise invalid_fields((body.WHOLE_BODY, "must be empty, or an empty JSON object"))


class OpenRoute(APIRoute):
    """A route without authentication. Its endpoint is `async (request) -> Response`.

    Any query is accepted, because monitoring tools and payment providers add parameters of their own (D-60).
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        documentation: Documentation | None = None,
        *,
        method: str = "GET",
        inputs: dict[str, Any] | None = None,
    ) -> None:
        """`inputs` are the operation's parameters and body, as the OpenAPI document shows them."""
        self.documentation = documentation or _UNDOCUMENTED
        super().__init__(
            path,
            endpoint,
            methods=[method],
            tags=[self.documentation.tag],
            operation_id=endpoint.__name__,
            include_in_schema=documentation is not None,
            openapi_extra=inputs,
        )
        self._run = endpoint
        self.app = self._serve

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        trace_of(scope).route = self.path
        response = await self._run(Request(scope, receive))
        await response(scope, receive, send)


def read_query(query_string: bytes, known: frozenset[str]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the known parameters of a query, and `(name, message)` for each refused parameter (D-60).

    Unknown and repeated parameters, and values that cannot be stored, are refused.

    Raises EngineError: `engine.invalid_request` if the query cannot be decoded, or has too many parameters (D-11).
    """
    if not query_string:
        return {}, []
    try:
        pairs = parse_qsl(
            query_string.decode(),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_QUERY_PARAMETERS,
        )
    except ValueError:
        raise invalid_fields(
            (WHOLE_QUERY, f"must be at most {MAX_QUERY_PARAMETERS} parameters in percent-encoded UTF-8")
        ) from None
    unknown = dict.fromkeys(name for name, _ in pairs if name not in known)
    refused = [
        (
            body.member("", name) or WHOLE_QUERY,
            _unknown_parameter(name, known, may_compare=place < MAX_COMPARED),
        )
        for place, name in enumerate(unknown)
    ]
    parameters: dict[str, str] = {}
    for name, text in pairs:
        if name in unknown:
            continue
        if name in parameters:
            refused.append((name, "must appear only once"))
        elif not body.is_storable(text):
            refused.append((name, body.UNSTORABLE))
            continue
        parameters[name] = text
    return parameters, refused


def _unknown_parameter(name: str, known: frozenset[str], *, may_compare: bool) -> str:
    if not known:
        return "unknown query parameter; this route takes none"
    by_lower_case = {each.lower(): each for each in sorted(known)}
    short = name[: body.MAX_NAME_CHARS].lower()
    if may_compare and (near := difflib.get_close_matches(short, by_lower_case, n=1)):
        return f"unknown query parameter; did you mean {by_lower_case[near[0]]}?"
    return f"unknown query parameter; this route takes {', '.join(by_lower_case.values())}"
