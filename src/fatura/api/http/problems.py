"""Answers every failure with an `application/problem+json` body and matching headers (spec 7).

`domain.errors` has the codes, and `validation_errors` has the messages about invalid fields.
"""

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from fatura.api.http.trace import trace_of
from fatura.domain import errors
from fatura.domain.errors import EngineError
from fatura.observability import log
from fatura.usecases.database_clock import WrongClockError
from fatura.usecases.transaction import DATABASE_FAILURES, LockTimeoutError, NoFreeConnectionError
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


def server_stopping() -> EngineError:
    """Return the error for a request that is canceled because the server stops."""
    detail = "The server is stopping; repeat the request with the same Idempotency-Key."
    return EngineError(errors.UNAVAILABLE, detail, retry_after_seconds=1)


def answer_to(error: Exception, scope: Scope) -> Response | None:
    """Return the answer for an expected exception, or None for an unexpected one (spec 7, D-12)."""
    current = trace_of(scope)
    match error:
        case EngineError():
            return problem_response(error, current.request_id)
        case HTTPException():
            shown, headers = _refused_by_framework(error, scope)
            return problem_response(shown, current.request_id, headers=headers)
        case _ if isinstance(error, DATABASE_FAILURES):
            log.warning("request.database_failed", route=current.route, error=error)
            return problem_response(_database_failed(error), current.request_id)
        case _:
            return None


def _database_failed(error: Exception) -> EngineError:
    detail = "The database cannot be reached; repeat the request with the same Idempotency-Key."
    if isinstance(error, LockTimeoutError):
        detail = "Another request is changing this; try again."
    if isinstance(error, NoFreeConnectionError):
        detail = "Too many requests wait for the database; repeat the request with the same Idempotency-Key."
    if isinstance(error, WrongClockError):
        detail = "This server's clock is wrong, so it changes nothing; try again, or tell the operator."
    return EngineError(errors.UNAVAILABLE, detail, retry_after_seconds=1)


def _refused_by_framework(error: HTTPException, scope: Scope) -> tuple[EngineError, Mapping[str, str]]:
    """Return the error and headers for an unknown route, a wrong method or unreadable HTTP (D-11)."""
    match error.status_code:
        case errors.NOT_FOUND.status:
            detail = "There is no such route, or an id in the path is empty; /docs lists all routes."
            return EngineError(errors.NOT_FOUND, detail), {}
        case errors.METHOD_NOT_ALLOWED.status:
            methods = _allowed_methods(scope)
            return EngineError(errors.METHOD_NOT_ALLOWED, f"This route accepts only {methods}."), {
                "allow": methods
            }
        case _:
            return EngineError(errors.INVALID_REQUEST, "The request cannot be read."), {}


def _allowed_methods(scope: Scope) -> str:
    """Return the methods of all routes that match the request's path. Starlette names the methods of only one route."""
    routes: list[BaseRoute] = scope["app"].routes
    found = {
        method
        for route in routes
        if route.matches(scope)[0] is not Match.NONE
        for method in getattr(route, "methods", None) or ()
    }
    return ", ".join(sorted(found | {"HEAD"} if "GET" in found else found))
