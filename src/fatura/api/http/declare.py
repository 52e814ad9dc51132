"""How a noun declares its routes; what follows from a route's shape is added here, its own problems it names."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from fatura.api.http.openapi import operation_extras, problem_responses
from fatura.api.http.route import ApiRoute, Key
from fatura.domain.errors import (
    IDEMPOTENCY_IN_PROGRESS,
    IDEMPOTENCY_KEY_REQUIRED,
    IDEMPOTENCY_KEY_REUSED,
    INTERNAL,
    INVALID_REQUEST,
    NOT_FOUND,
    PAYLOAD_TOO_LARGE,
    RATE_LIMITED,
    UNAUTHORIZED,
    UNAVAILABLE,
    Problem,
)

EndpointT = TypeVar("EndpointT", bound=Callable[..., Any])
Declare = Callable[[EndpointT], EndpointT]
_OUTCOMES = {200: "Done.", 201: "Created.", 202: "Accepted; it goes on.", 204: "Done; nothing is answered."}


class Routes:
    """The routes of one noun, in the order in which they are matched and documented.

    `answers` is the model that documents the answer; the endpoint's docstring is the route's description.
    """

    def __init__(self, tag: str) -> None:
        """Begin a section of the document."""
        self.tag = tag
        self.routes: list[ApiRoute] = []

    def get(self, path: str, *, answers: Any, problems: Sequence[Problem] = ()) -> Declare[EndpointT]:
        """Declare a read."""
        return self._declare("GET", path, answers, problems=problems)

    def post(
        self,
        path: str,
        *,
        answers: Any,
        status: int = 200,
        also: Sequence[int] = (),
        key: Key = Key.HONOURED,
        holds_secret: bool = False,
        problems: Sequence[Problem] = (),
    ) -> Declare[EndpointT]:
        """Declare a creation or an action; by default it honours an Idempotency-Key (D-14).

        `also` are other statuses that answer the same model.
        """
        return self._declare(
            "POST",
            path,
            answers,
            status=status,
            also=also,
            key=key,
            holds_secret=holds_secret,
            problems=problems,
        )

    def put(self, path: str, *, answers: Any, problems: Sequence[Problem] = ()) -> Declare[EndpointT]:
        """Declare a replacement."""
        return self._declare("PUT", path, answers, problems=problems)

    def patch(self, path: str, *, answers: Any, problems: Sequence[Problem] = ()) -> Declare[EndpointT]:
        """Declare a change of the fields that are sent."""
        return self._declare("PATCH", path, answers, problems=problems)

    def delete(self, path: str, *, problems: Sequence[Problem] = ()) -> Declare[EndpointT]:
        """Declare a removal, answered 204 without a body."""
        return self._declare("DELETE", path, None, status=204, problems=problems)

    def _declare(
        self,
        method: str,
        path: str,
        answers: Any,
        *,
        status: int = 200,
        also: Sequence[int] = (),
        key: Key = Key.IGNORED,
        holds_secret: bool = False,
        problems: Sequence[Problem] = (),
    ) -> Declare[EndpointT]:
        def declare(endpoint: EndpointT) -> EndpointT:
            route = ApiRoute(
                path,
                endpoint,
                key=key,
                methods=[method],
                success_status=status,
                holds_secret=holds_secret,
                response_model=answers,
                response_description=_OUTCOMES[status],
                responses={each: {"model": answers, "description": _OUTCOMES[each]} for each in also},
                tags=[self.tag],
                operation_id=endpoint.__name__,
                openapi_extra=operation_extras(key),
            )
            route.responses |= problem_responses({*_usual_problems(route, method, key), *problems})
            self.routes.append(route)
            return endpoint

        return declare


def _usual_problems(route: ApiRoute, method: str, key: Key) -> Iterable[Problem]:
    """Return the problems that follow from a route's shape."""
    yield from (INVALID_REQUEST, UNAUTHORIZED, RATE_LIMITED, INTERNAL, UNAVAILABLE)
    if "{" in route.path:
        yield NOT_FOUND
    if method != "GET":
        yield from (PAYLOAD_TOO_LARGE, IDEMPOTENCY_IN_PROGRESS)
    if key is Key.REQUIRED:
        yield IDEMPOTENCY_KEY_REQUIRED
    if key is not Key.IGNORED:
        yield IDEMPOTENCY_KEY_REUSED
