"""How a resource declares its routes.

The OpenAPI document lists the problems of each route. `Routes` adds the problems that follow from the route's method,
path and `KeyPolicy`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from fatura.api.http.route import ApiRoute, Documentation, KeyPolicy
from fatura.domain import errors
from fatura.domain.audit import AuditAction
from fatura.domain.credentials import Scope
from fatura.domain.errors import Problem
from fatura.views.view import View

EndpointT = TypeVar("EndpointT", bound=Callable[..., Any])
Declare = Callable[[EndpointT], EndpointT]


class Routes:
    """The routes of one resource, in the order in which they are matched and documented.

    In each method, `answers` is the view of a successful answer, and `scope` is the scope that the API key needs
    (D-64). `audit` is the action of the entry that a successful request adds to the audit log (D-63). It is None only
    for routes that change nothing. The OpenAPI document describes each route with the docstring of its endpoint.
    """

    def __init__(self, tag: str, description: str) -> None:
        self.tag = tag
        self.description = description
        self.routes: list[ApiRoute] = []

    def get(
        self,
        path: str,
        summary: str,
        *,
        answers: type[View],
        scope: Scope = Scope.READ,
        problems: Sequence[Problem] = (),
    ) -> Declare[EndpointT]:
        return self._declare("GET", path, summary, answers={200: answers}, scope=scope, problems=problems)

    def post(
        self,
        path: str,
        summary: str,
        *,
        answers: type[View],
        audit: AuditAction | None,
        scope: Scope = Scope.WRITE,
        status: int = 200,
        other_status: int | None = None,
        key: KeyPolicy = KeyPolicy.HONOURED,
        holds_secret: bool = False,
        problems: Sequence[Problem] = (),
    ) -> Declare[EndpointT]:
        """Declare a POST route. `other_status` is a second success status with the same view.

        By default, the route honours an Idempotency-Key (D-14): Fatura stores the answer, and sends it again if the
        request is repeated with the same key. If `holds_secret` is true, Fatura encrypts the stored answer.
        """
        statuses = [status] if other_status is None else [status, other_status]
        return self._declare(
            "POST",
            path,
            summary,
            answers=dict.fromkeys(statuses, answers),
            scope=scope,
            audit=audit,
            key=key,
            holds_secret=holds_secret,
            problems=problems,
        )

    def put(
        self,
        path: str,
        summary: str,
        *,
        answers: type[View],
        audit: AuditAction | None,
        scope: Scope = Scope.WRITE,
        problems: Sequence[Problem] = (),
    ) -> Declare[EndpointT]:
        return self._declare(
            "PUT", path, summary, answers={200: answers}, audit=audit, scope=scope, problems=problems
        )

    def patch(
        self,
        path: str,
        summary: str,
        *,
        answers: type[View],
        audit: AuditAction | None,
        scope: Scope = Scope.WRITE,
        problems: Sequence[Problem] = (),
    ) -> Declare[EndpointT]:
        return self._declare(
            "PATCH", path, summary, answers={200: answers}, audit=audit, scope=scope, problems=problems
        )

    def delete(
        self,
        path: str,
        summary: str,
        *,
        audit: AuditAction | None,
        scope: Scope = Scope.WRITE,
        problems: Sequence[Problem] = (),
    ) -> Declare[EndpointT]:
        """Declare a DELETE route; a successful answer is 204 without a body."""
        return self._declare(
            "DELETE", path, summary, answers={204: None}, audit=audit, scope=scope, problems=problems
        )

    def _declare(
        self,
        method: str,
        path: str,
        summary: str,
        *,
        answers: dict[int, type[View] | None],
        scope: Scope,
        audit: AuditAction | None = None,
        key: KeyPolicy = KeyPolicy.IGNORED,
        holds_secret: bool = False,
        problems: Sequence[Problem] = (),
    ) -> Declare[EndpointT]:
        usual = _usual_problems(method, path, key)
        documentation = Documentation(self.tag, summary, answers, frozenset({*usual, *problems}))

        def declare(endpoint: EndpointT) -> EndpointT:
            route = ApiRoute(
                path,
                endpoint,
                documentation,
                method=method,
                audit=audit,
                scope=scope,
                key=key,
                holds_secret=holds_secret,
            )
            self.routes.append(route)
            return endpoint

        return declare


def _usual_problems(method: str, path: str, key: KeyPolicy) -> Iterable[Problem]:
    yield from (
        errors.INVALID_REQUEST,
        errors.UNAUTHORIZED,
        errors.FORBIDDEN,
        errors.RATE_LIMITED,
        errors.INTERNAL,
        errors.UNAVAILABLE,
    )
    if "{" in path:
        yield errors.NOT_FOUND
    yield errors.ACCOUNT_SUSPENDED
    if method != "GET":
        yield errors.PAYLOAD_TOO_LARGE
    if key is KeyPolicy.REQUIRED:
        yield errors.IDEMPOTENCY_KEY_REQUIRED
    if key is not KeyPolicy.IGNORED:
        yield from (errors.IDEMPOTENCY_IN_PROGRESS, errors.IDEMPOTENCY_KEY_REUSED)
