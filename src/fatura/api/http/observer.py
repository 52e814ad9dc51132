"""The outermost layer of the application.

It gives each request an id, a log line and metrics, and it answers all errors (D-13).
"""

import asyncio
import time
from collections.abc import Callable
from functools import cache

import structlog
from prometheus_client import Counter, Histogram
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fatura import tracing
from fatura.api.http import trace
from fatura.api.http.problems import answer_to, internal_error, problem_response, server_stopping
from fatura.observability import counter, histogram, log
from fatura.tracing import Kind

CLIENT_GONE = 499
"""Status in logs and metrics when the client disconnects before it gets an answer."""
UNMATCHED = "unmatched"
"""Route in logs and metrics when no route matches."""

_requests = counter("fatura_http_requests_total", "Requests answered.", "method", "route", "status")
_seconds = histogram(
    "fatura_http_request_duration_seconds", "Time until a request was answered.", "method", "route"
)
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class Observer:
    """ASGI middleware around the whole application: request id, log line, metrics, and answers to errors.

    It serves HEAD as GET, and uvicorn omits the body. `refusal` gets the answer to an error and the request's scope,
    and returns the answer to send.
    """

    def __init__(self, app: ASGIApp, *, refusal: Callable[[Response, Scope], Response] | None = None) -> None:
        self._app = app
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, and answer an exception with a problem document.

        If part of the answer was already sent, raise the exception.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        current = trace.begin(scope)
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=current.request_id)
        with tracing.begin_trace(
            _shown(scope["method"]),
            kind=Kind.SERVER,
            client=trace.trace_parent(scope),
            http__request__method=_shown(scope["method"]),
            fatura__request_id=current.request_id,
        ) as span:
            try:
                await self._serve(current, scope, receive, send)
            finally:
                span.rename(f"{_shown(scope['method'])} {current.route or UNMATCHED}")
                span.set(http__route=current.route or UNMATCHED, http__response__status_code=_status(current))

    async def _serve(self, current: trace.Trace, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        method: str = scope["method"]

        async def stamped(message: Message) -> None:
            if message["type"] == "http.response.start":
                current.status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", current.request_id.encode()),
                    (b"x-content-type-options", b"nosniff"),
                ]
            await send(message)

        served = {**scope, "method": "GET"} if method == "HEAD" else scope
        try:
            await self._app(served, receive, stamped)
        except ClientDisconnect:
            current.status = CLIENT_GONE
        except Exception as error:
            answer = None if current.status is not None else answer_to(error, served)
            if answer is None:
                log.exception("request.failed", method=method, route=current.route)
                if current.status is not None:
                    raise
                answer = problem_response(internal_error(), current.request_id)
            await self._refused(answer, served)(served, receive, stamped)
        except asyncio.CancelledError:
            # uvicorn cancels the requests that still run DRAIN_SECONDS after the server began to stop
            log.warning("request.canceled", method=method, route=current.route)
            if current.status is None:
                answer = problem_response(server_stopping(), current.request_id)
                await self._refused(answer, served)(served, receive, stamped)
        finally:
            _record(current, method, time.perf_counter() - started)

    def _refused(self, answer: Response, scope: Scope) -> Response:
        return answer if self._refusal is None else self._refusal(answer, scope)


@cache
def _children(method: str, route: str, status: int) -> tuple[Counter, Histogram]:
    """Return the metrics with these labels.

    The result is cached because `labels` is slow and there are few combinations.
    """
    return _requests.labels(method, route, str(status)), _seconds.labels(method, route)


def _shown(method: str) -> str:
    return method if method in _METHODS else "other"


def _status(current: trace.Trace) -> int:
    return CLIENT_GONE if current.status is None else current.status


def _record(current: trace.Trace, method: str, seconds: float) -> None:
    route, status = current.route or UNMATCHED, _status(current)
    requests, durations = _children(_shown(method), route, status)
    requests.inc()
    durations.observe(seconds)
    log.info("request", method=method, route=route, status=status, latency_ms=round(seconds * 1000, 2))
