"""Every failure as the client reads it: one `application/problem+json` body, and the headers that go with it (spec 7).

The codes are `domain.errors`; the words for invalid fields are `refused_fields`.
"""

from collections.abc import Mapping

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from fatura.api.http.trace import trace_of
from fatura.domain.errors import (
    INTERNAL,
    INVALID_REQUEST,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    UNAUTHORIZED,
    UNAVAILABLE,
    EngineError,
)
from fatura.observability import log
from fatura.usecases.database_errors import DatabaseUnavailableError, DeadlockError, LockTimeoutError
from fatura.views.problems import ProblemView

MEDIA_TYPE = "application/problem+json"


def problem_response(
    error: EngineError, request_id: str | None, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the answer that tells a client of an error (spec 7, D-12, D-13)."""
    problem = error.problem
    sent = {"cache-control": "no-store", **(headers or {})}
    if problem is UNAUTHORIZED:
        sent["www-authenticate"] = "Bearer"
    if error.retry_after_seconds is not None:
        sent["retry-after"] = str(error.retry_after_seconds)
    return Response(ProblemView.of(error, request_id).json(), problem.status, sent, MEDIA_TYPE)


def internal_error() -> EngineError:
    """Return what a client learns of a failure on our side: nothing but whom to ask (spec 7)."""
    return EngineError(INTERNAL, "Something failed on our side; tell support the requestId.")


def register(app: FastAPI) -> None:
    """Let the application answer every expected exception as a problem; the observer answers the others."""
    app.add_exception_handler(EngineError, _engine_error)
    app.add_exception_handler(HTTPException, _http_exception)
    for failure in (DatabaseUnavailableError, DeadlockError, LockTimeoutError):
        app.add_exception_handler(failure, _database_failure)


async def _engine_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError), error
    return problem_response(error, trace_of(request.scope).request_id)


async def _database_failure(request: Request, error: Exception) -> Response:
    current = trace_of(request.scope)
    log.warning("request.database_failed", route=current.route, error=f"{type(error).__name__}: {error}")
    told = EngineError(
        UNAVAILABLE,
        "The database cannot be reached; repeat the request with the same Idempotency-Key.",
        retry_after_seconds=1,
    )
    if isinstance(error, LockTimeoutError):
        told = EngineError(
            UNAVAILABLE, "Something else is still working on this; ask again.", retry_after_seconds=1
        )
    return problem_response(told, current.request_id)


async def _http_exception(request: Request, error: Exception) -> Response:
    """Answer what the framework refuses: unknown routes and wrong methods above all (D-11)."""
    assert isinstance(error, HTTPException), error
    headers: Mapping[str, str] | None = None
    match error.status_code:
        case NOT_FOUND.status:
            told = EngineError(NOT_FOUND, "There is no such route; /docs shows all there are.")
        case METHOD_NOT_ALLOWED.status:
            methods = _allowed_methods(request)
            told = EngineError(METHOD_NOT_ALLOWED, f"This route takes {methods} only.")
            headers = {"allow": methods}
        case _:
            told = EngineError(INVALID_REQUEST, "The request cannot be read.")
    return problem_response(told, trace_of(request.scope).request_id, headers=headers)


def _allowed_methods(request: Request) -> str:
    """Return the methods of all routes with the request's path, where the framework would name the first one's."""
    routes: list[BaseRoute] = request.app.routes
    found = {
        method
        for route in routes
        if route.matches(request.scope)[0] is not Match.NONE
        for method in getattr(route, "methods", None) or ()
    }
    return ", ".join(sorted(found | {"HEAD"} if "GET" in found else found))
