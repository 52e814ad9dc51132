"""HTTP/1.1 with limits that uvicorn lacks.

A request's head has a size limit and a time limit. If a request is answered before its whole body has arrived, the
rest of the body has a time limit too. While the process has the maximum number of open connections, it refuses
every new request with a problem document.
"""

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from fatura.api.http.observer import Observer
from fatura.api.http.problems import problem_response
from fatura.api.http.trace import trace_of
from fatura.domain.errors import INVALID_REQUEST, UNAVAILABLE, EngineError

MAX_FRAMING_BYTES = 64 * 1024
"""Maximum size of a request without its body: request line, headers, chunk sizes and trailers.

The size is checked after each read from the socket. So the process may receive more bytes before it refuses the
request.
"""
PATIENCE_SECONDS = 10
"""Maximum time for a request head to arrive, and for the rest of a body after an early answer."""


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a request and close its connection, because the process has the maximum number of open connections."""
    error = EngineError(
        UNAVAILABLE, "This server serves too many requests now; try again.", retry_after_seconds=1
    )
    answer = problem_response(error, trace_of(scope).request_id, headers={"connection": "close"})
    await answer(scope, receive, send)


_REFUSED: Any = Observer(_refuse)


class LimitedProtocol(HttpToolsProtocol):
    """Closes a connection if a request's head takes longer than PATIENCE_SECONDS, or is too large.

    A body that an endpoint reads has its own limit, `body.READ_SECONDS`. Some requests are answered before their body
    has arrived, for example with 401 or 413. The rest of the body is then discarded for up to PATIENCE_SECONDS, because
    an immediate close could lose the answer.
    """

    _in_head: bool = True
    _in_body: bool = False
    _framing_bytes: int = 0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] - as in uvicorn
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_head = self._in_body = False
        self._watch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._framing_bytes += len(data)
        super().data_received(data)
        if self._framing_bytes > MAX_FRAMING_BYTES and not self.transport.is_closing():
            if self._in_head or not self.cycle.response_started:
                size = f"{MAX_FRAMING_BYTES // 1024} KiB"
                self.send_400_response(f"The headers, chunk sizes and trailers are larger than {size}.")
            self.transport.close()
        self._watch()

    def on_message_begin(self) -> None:
        self._in_head, self._framing_bytes = True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. Drop a trailer, which follows the body and must not count as a header (RFC 9110, 6.5.1)."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        asks_for_upgrade = self.parser is not None and self.parser.should_upgrade()
        if asks_for_upgrade and self._announces_body():
            message = "A request with a body must not ask for an upgrade; send no Upgrade header."
            self.send_400_response(message)
            return
        super().on_headers_complete()
        self._in_body = True
        if asks_for_upgrade:  # the parser may have dropped a request that followed in the same read
            self.cycle.keep_alive = False

    def _announces_body(self) -> bool:
        """Return whether the request has a body.

        If a request with a body has an Upgrade header too, the parser mistakes the body for another request.
        """
        return any(name in {b"content-length", b"transfer-encoding"} for name, _ in self.headers)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Serve a request. With too many open connections, uvicorn passes a plain-text answer as `app`; replace it."""
        super()._start_asgi_task(cycle, _REFUSED if app is service_unavailable else app)

    def on_body(self, body: bytes) -> None:
        self._framing_bytes -= len(body)
        super().on_body(body)

    def _unsupported_upgrade_warning(self) -> None:
        """Log no warning, because a client may ask for an upgrade that the server does not support."""

    def on_message_complete(self) -> None:
        """Restart the keep-alive timer if the request was answered before its body ended.

        uvicorn starts the timer at the answer, but stops it when the rest of the body arrives.
        """
        self._in_body = False
        if self.transport.is_closing():
            return
        super().on_message_complete()
        if self.cycle.response_complete:
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Answer malformed HTTP with a problem document (spec 7), and close the connection."""
        answer = problem_response(EngineError(INVALID_REQUEST, msg), None, headers={"connection": "close"})
        head = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head + b"\r\n" + bytes(answer.body))
        self.transport.close()

    def _watch(self) -> None:
        """Start or cancel the deadline after which the connection is closed.

        The deadline runs while a request's head arrives, and while the rest of a body arrives after the answer.
        """
        owes = self._in_head or (self._in_body and self.cycle.response_complete)
        if owes and self._deadline is None:
            self._deadline = self.loop.call_later(PATIENCE_SECONDS, self.transport.close)
        elif not owes and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
