"""HTTP/1.1 with limits that uvicorn lacks: for the request head, and for the rest of a body after an early answer."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fatura.api.http.problems import problem_response
from fatura.domain.errors import INVALID_REQUEST, EngineError

MAX_HEAD_BYTES = 64 * 1024
"""Maximum size of the request line and headers; the last read from the socket may exceed it."""
PATIENCE_SECONDS = 10
"""Maximum time for a request head to arrive, and for the rest of a body after an early answer."""


class LimitedProtocol(HttpToolsProtocol):
    """Closes a connection when the client sends the rest of a request too slowly.

    A body that an endpoint reads has its own limit, `body.READ_SECONDS`. After an early answer (401, 413) the rest of
    the body is discarded for up to PATIENCE_SECONDS, because an immediate close could lose the answer.
    """

    _in_head: bool = True
    _in_body: bool = False
    _head_bytes: int = 0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] - as in uvicorn
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_head = self._in_body = False
        self._watch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response(f"The headers are larger than {MAX_HEAD_BYTES // 1024} KiB.")
        self._watch()

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._in_head, self._in_body = False, True

    def on_message_complete(self) -> None:
        """Restart the keep-alive timer if the request was answered before its body ended."""
        self._in_body = False
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
        """Answer malformed HTTP with a problem as well (spec 7), and close the connection."""
        answer = problem_response(EngineError(INVALID_REQUEST, msg), None, headers={"connection": "close"})
        head = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head + b"\r\n" + bytes(answer.body))
        self.transport.close()

    def _watch(self) -> None:
        """Start a deadline while the client still has to send bytes that no endpoint waits for; else cancel it."""
        owes = self._in_head or (self._in_body and self.cycle.response_complete)
        if owes and self._deadline is None:
            self._deadline = self.loop.call_later(PATIENCE_SECONDS, self.transport.close)
        elif not owes and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
