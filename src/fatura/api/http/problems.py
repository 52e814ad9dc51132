"""Answers every failure with an `application/problem+json` body and its headers (spec 7).

`domain.errors` has the codes, and `validation_errors` has the messages about invalid fields.
"""

from collections.abc import Mapping

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from fatura.api.http.trace import trace_of
from fatura.domain import errors
from fatura.domain.errors import EngineError
from fatura.observability import log
from fatura.usecases.transaction import DATABASE_FAILURES, LockTimeoutError
from fatura.views.problems import ProblemView

MEDIA_TYPE = "application/problem+json"


def problem_response(
    error: EngineError, request_id: str | None, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the answer for an error (spec 7, D-12, D-13)."""
    problem = error.problem
    sent = {"cache-control": "no-store", **(headers or {})}
    if problem is errors.UNAUTHORIZED:
        sent["www-authenticate"] = "Bearer"
    if error.retry_after_seconds is not None:
        sent["retry-after"] = str(error.retry_after_seconds)
    return Response(ProblemView.of(error, request_id).json(), problem.status, sent, MEDIA_TYPE)


def internal_error() -> EngineError:
    """Return the error for an unexpected failure; it contains no details (spec 7)."""
    return EngineError(errors.INTERNAL, "Something failed on our side; give the requestId to support.")


def register(app: FastAPI) -> None:
    """Add the handlers of expected exceptions; the observer answers all others."""
    app.add_exception_handler(EngineError, _engine_error)
    app.add_exception_handler(HTTPException, _http_exception)
    for failure in DATABASE_FAILURES:
        app.add_exception_handler(failure, _database_failure)


async def _engine_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError), error
    return problem_response(error, trace_of(request.scope).request_id)


async def _database_failure(request: Request, error: Exception) -> Response:
    current = trace_of(request.scope)
    log.warning("request.database_failed", route=current.route, error=f"{type(error).__name__}: {error}")
    detail = "The database cannot be reached; repeat the request with the same Idempotency-Key."
    if isinstance(error, LockTimeoutError):
        detail = "Another request is changing this; try again."
    return problem_response(
        EngineError(errors.UNAVAILABLE, detail, retry_after_seconds=1), current.request_id
    )


async def _http_exception(request: Request, error: Exception) -> Response:
    """Answer a request that the framework refuses, such as one with an unknown route or a wrong method (D-11)."""
    assert isinstance(error, HTTPException), error
    headers: Mapping[str, str] | None = None
    match error.status_code:
        case errors.NOT_FOUND.status:
            shown = EngineError(errors.NOT_FOUND, "There is no such route; /docs lists all routes.")
        case errors.METHOD_NOT_ALLOWED.status:
            methods = _allowed_methods(request)
            shown = EngineError(errors.METHOD_NOT_ALLOWED, f"This route accepts only {methods}.")
            headers = {"allow": methods}
        case _:
            shown = EngineError(errors.INVALID_REQUEST, "The request cannot be read.")
    return problem_response(shown, trace_of(request.scope).request_id, headers=headers)


def _allowed_methods(request: Request) -> str:
    """Return the methods of all routes with the request's path. Starlette names only those of the first route."""
    routes: list[BaseRoute] = request.app.routes
    found = {
        method
        for route in routes
        if route.matches(request.scope)[0] is not Match.NONE
        for method in getattr(route, "methods", None) or ()
    }
    return ", ".join(sorted(found | {"HEAD"} if "GET" in found else found))
