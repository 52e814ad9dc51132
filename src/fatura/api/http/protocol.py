"""HTTP/1.1 with limits that uvicorn lacks.

A request's head is limited in size. Each wait for a client is limited in time (see `State`). The module `connections`
limits the numbers of connections and requests, and the bytes that the server holds for them.
"""

import asyncio
from enum import Enum, auto
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from fatura.api.http.connections import Connections
from fatura.api.http.observer import Observer
from fatura.api.http.problems import problem_response
from fatura.api.http.trace import trace_of
from fatura.domain.errors import INVALID_REQUEST, EngineError

MAX_FRAMING_BYTES = 64 * 1024
"""Maximum size of a request without its body: request line, headers, chunk sizes and trailers.

The size is checked after each read from the socket. So the process may receive more bytes before it refuses the
request.
"""
MAX_HEADERS = 100
PATIENCE_SECONDS = 10
"""Maximum duration of each of the states HEAD, REST and CLOSING."""
UNREAD_SECONDS = 30
"""Maximum duration of the state UNREAD."""


class State(Enum):
    """What a connection does, or what it waits for."""

    IDLE = auto()
    """Waits for the next request. uvicorn's own timer for this state ends at the first byte that arrives."""
    HEAD = auto()
    BODY = auto()
    """Waits for the body of a request that is not answered yet; `body.READ_SECONDS` limits the time."""
    SERVING = auto()
    REST = auto()
    """Waits for the rest of the body of a request that was answered early."""
    UNREAD = auto()
    """Waits until the client reads, because the buffer of answers is full."""
    CLOSING = auto()
    """Waits until the client has read the final answer of a connection that will be closed."""
    CLOSED = auto()


class _Served:
    """The application, serving one request. If the connection was closed meanwhile, the answer is discarded.

    uvicorn learns of the end of a connection only in the next round of the event loop. Before that, a write would fail.
    """

    def __init__(self, app: Any, cycle: RequestResponseCycle) -> None:
        self._app = app
        self._cycle = cycle

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._send = send
        await self._app(scope, receive, self._send_if_open)

    async def _send_if_open(self, message: Any) -> None:
        if self._cycle.transport.is_closing():
            self._cycle.disconnected = True
        await self._send(message)


class _Refuse:
    """Refuse a request and close its connection."""

    def __init__(self, error: EngineError) -> None:
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = trace_of(scope).request_id
        answer = problem_response(self._error, request_id, headers={"connection": "close"})
        await answer(scope, receive, send)


class LimitedProtocol(HttpToolsProtocol):
    """Closes a connection whose client is too slow or sends a head that is too large.

    Some requests are answered before their body has arrived, for example with 401 or 413. The rest of the body is then
    discarded for up to PATIENCE_SECONDS, because an immediate close could lose the answer.
    """

    _state: State = State.CLOSED
    _running: RequestResponseCycle | None = None
    """The request in progress or, if there is none, the most recent one. Pipelined requests wait for its answer."""
    _in_head: bool = True
    _in_body: bool = False
    _framing_bytes: int = 0
    _body_bytes: int = 0
    """What has arrived of the newest request's body."""
    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, connections: Connections, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._open = connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] - as in uvicorn
        super().connection_made(transport)
        self._open.add(self, peer=self.client[0] if self.client else "")
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.remove(self)
        # uvicorn marks only the newest request as disconnected. A pipelined request may be newer than the running one.
        if self._running is not None:
            self._running.disconnected = True
        super().connection_lost(exc)
        self._watch()

    def abort(self) -> None:
        """Close the connection soon, and discard its answers. uvloop must not close it in the middle of a write."""
        self.loop.call_soon(self.transport.abort)

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
        self._in_head, self._framing_bytes, self._body_bytes = True, 0, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. Drop a trailer, which follows the body and must not count as a header (RFC 9110, 6.5.1)."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self.transport.is_closing():  # the connection closes after an earlier request, so ignore this one
            return
        asks_for_upgrade = self.parser is not None and self.parser.should_upgrade()
        if len(self.headers) > MAX_HEADERS:
            self.send_400_response(f"The request has more than {MAX_HEADERS} headers.")
            return
        if asks_for_upgrade and self._announces_body():
            message = "A request with a body must not ask for an upgrade; send no Upgrade header."
            self.send_400_response(message)
            return
        super().on_headers_complete()
        self._in_body = True
        if asks_for_upgrade:  # the parser may have dropped a request that followed in the same read
            self.cycle.keep_alive = False

    def _announces_body(self) -> bool:
        """Return whether the request has a body. With an Upgrade header, the parser takes the body for a request."""
        return any(name in {b"content-length", b"transfer-encoding"} for name, _ in self.headers)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Serve a request, or refuse it if too many are in progress."""
        refusal = self._open.refusal(self, requests=len(self.tasks))
        chosen = app if refusal is None else Observer(_Refuse(refusal))
        self._running = cycle
        super()._start_asgi_task(cycle, _Served(chosen, cycle))

    def on_body(self, body: bytes) -> None:
        self._framing_bytes -= len(body)
        self._body_bytes += len(body)
        if not self.transport.is_closing():
            super().on_body(body)

    def _unsupported_upgrade_warning(self) -> None:
        """Log no warning, because a client may ask for an upgrade that the server does not support."""

    def on_message_complete(self) -> None:
        self._in_body = False
        if not self.transport.is_closing():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Called when the client reads so slowly that the buffer of answers is full."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Answer malformed HTTP with a problem document (spec 7), and close the connection."""
        answer = problem_response(EngineError(INVALID_REQUEST, msg), None, headers={"connection": "close"})
        head = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head + b"\r\n" + bytes(answer.body))
        self.transport.close()

    def _watch(self) -> None:
        """Determine the connection's state, and apply the limits of this state."""
        self._enter(self._current_state())

    def _current_state(self) -> State:
        if self.parser is None:
            return State.CLOSED
        if self.transport.is_closing():
            return State.CLOSING
        if self.flow.write_paused:
            return State.UNREAD
        if self._has_request():
            is_newest = self._running is self.cycle
            return State.BODY if is_newest and self._in_body else State.SERVING
        if self._in_head:
            return State.HEAD
        return State.REST if self._in_body else State.IDLE

    def _has_request(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _enter(self, state: State) -> None:
        """Count the connection as served or waiting. If the state has changed, start the state's time limit."""
        if state is State.SERVING:
            self._open.serve(self)
        else:
            self._open.wait(self, has_request=self._has_request(), held_bytes=self._held_bytes(state))
        if state is self._state:
            return
        self._state = state
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        seconds = self._seconds(state)
        if seconds is not None:
            self._deadline = self.loop.call_later(seconds, self._give_up)

    def _held_bytes(self, state: State) -> int:
        if self.flow.write_paused:
            return self.transport.get_write_buffer_size()
        return self._body_bytes if state is State.BODY else 0

    def _seconds(self, state: State) -> int | None:
        """Return the maximum duration of a state."""
        match state:
            case State.IDLE:
                return self.timeout_keep_alive
            case State.HEAD | State.REST | State.CLOSING:
                return PATIENCE_SECONDS
            case State.UNREAD:
                return UNREAD_SECONDS
            case _:
                return None

    def _give_up(self) -> None:
        """Close the connection of a client that is too slow.

        In the states UNREAD and CLOSING, discard the buffered answers. In other states, let the client read them first.
        """
        if self._state in {State.UNREAD, State.CLOSING}:
            self.transport.abort()
        else:
            self.transport.close()
            self._watch()
