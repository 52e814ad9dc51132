"""HTTP/1.1 with limits that uvicorn lacks.

A request's head is limited in size, and the requests that wait behind another one are limited in number. Each wait for
a client is limited in time (see `State`). The module `connections` limits the numbers of connections and requests, and
the bytes that the server holds for them.
"""

import asyncio
from collections.abc import Sized
from enum import Enum, auto
from typing import Any

import httptools
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from fatura.api.http.connections import Connections
from fatura.api.http.observer import Observer
from fatura.api.http.problems import problem_response
from fatura.api.http.trace import trace_of
from fatura.domain.errors import INVALID_REQUEST, EngineError

MAX_FRAMING_BYTES = 64 * 1024
"""Maximum size of a request without its body: request line, headers, chunk sizes and trailers.

The limit also applies to the total of the requests that wait behind another one. The counted size can be up to
PIECE_BYTES above the real size.
"""
PIECE_BYTES = 4 * 1024
"""The bytes of one read are parsed in pieces of this size. After each piece, the size of the request is checked."""
MAX_HEADERS = 100
MAX_PIPELINED = 4
"""Maximum number of a connection's requests that wait for the answer to an earlier one."""
PATIENCE_SECONDS = 10
"""Maximum duration of each of the states HEAD, REST and CLOSING."""
UNREAD_SECONDS = 30
"""Maximum duration of the state UNREAD."""


class State(Enum):
    """What a connection does, or what it waits for."""

    IDLE = auto()
    """Waits for the next request. uvicorn limits this state too, but its timer ends at the first byte that arrives."""
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
    """Runs the application for one request. If the connection is already closing, the answer is discarded.

    uvicorn notices the closing only in the next iteration of the event loop. A write before that would fail.
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
    """An ASGI application that refuses a request and closes its connection."""

    def __init__(self, error: EngineError) -> None:
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = trace_of(scope).request_id
        answer = problem_response(self._error, request_id, headers={"connection": "close"})
        await answer(scope, receive, send)


class _RefusedError(Exception):
    """Raised for a request that breaks a rule or a limit, so that the parser stops. The message is for the client."""


class _Flow(FlowControl):
    """Keeps reading paused while requests wait for the answer to an earlier one. uvicorn would resume too early."""

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if not self._pipeline and not self._transport.is_closing():
            super().resume_reading()


class LimitedProtocol(HttpToolsProtocol):
    """Closes a connection whose client is too slow, or sends something that is too large or malformed.

    Some requests are answered before their body has arrived, for example with 401 or 413. The rest of the body is then
    discarded for up to PATIENCE_SECONDS, because an immediate close could lose the answer.
    """

    _state: State = State.CLOSED
    _running: RequestResponseCycle | None = None
    """The request in progress or, if there is none, the most recent one. Pipelined requests wait for its answer."""
    _in_head: bool = True
    _in_body: bool = False
    _stopped: bool = False
    """True if the connection accepts no further requests. Bytes that still arrive are discarded."""
    _piece_bytes: int = 0
    _framing_bytes: int = 0
    _body_bytes: int = 0
    """Number of bytes of the newest request's body that have arrived."""
    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, connections: Connections, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._open = connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] - as in uvicorn
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
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
        """Discard the answers and close the connection, but only in the next iteration of the event loop.

        uvloop must not close a connection during a write.
        """
        self.loop.call_soon(self.transport.abort)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        for start in range(0, len(data), PIECE_BYTES):
            if self._stopped:
                break
            self._parse(data[start : start + PIECE_BYTES])
        self._watch()

    def _parse(self, piece: bytes) -> None:
        assert self.parser is not None, "the connection is open"
        self._piece_bytes = len(piece)
        self._framing_bytes += len(piece)
        try:
            self.parser.feed_data(piece)
            self._check_size()
        except _RefusedError as refused:
            self._stop(str(refused))
        except httptools.HttpParserUpgrade:
            pass  # the answer closes the connection, see `on_headers_complete`
        except httptools.HttpParserError as error:
            is_ours = isinstance(error.__context__, _RefusedError)
            self._stop(str(error.__context__) if is_ours else "The request is not valid HTTP.")

    def _check_size(self) -> None:
        if self._framing_bytes > MAX_FRAMING_BYTES:
            size = f"{MAX_FRAMING_BYTES // 1024} KiB"
            raise _RefusedError(f"The headers, chunk sizes and trailers are larger than {size}.")

    def _stop(self, refusal: str) -> None:
        """Accept no further request, and refuse the request that is arriving.

        Answer 400 only if all earlier requests are answered, and the answer to the arriving request has not begun.
        Otherwise, the client could take the 400 for the answer to an earlier request, which may have taken effect. The
        connection is then closed without a 400, after the answers that are still due.
        """
        self._stopped = True
        is_next = not self.cycle.response_started if self._in_body else not self._has_request()
        if is_next:
            self.send_400_response(refusal)
        elif self._has_request():
            self.cycle.keep_alive = False
        else:
            self.transport.close()

    def on_message_begin(self) -> None:
        if self._has_request() and (len(self.pipeline) >= MAX_PIPELINED or not self.cycle.keep_alive):
            raise _RefusedError("Too many requests wait for the answer to an earlier one.")
        if not self.pipeline:
            self._framing_bytes = self._piece_bytes
        self._in_head, self._body_bytes = True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. Drop a trailer, which follows the body and must not count as a header (RFC 9110, 6.5.1)."""
        if not self._in_head:
            return
        if len(self.headers) == MAX_HEADERS:
            raise _RefusedError(f"The request has more than {MAX_HEADERS} headers.")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._check_size()
        asks_for_upgrade = self.parser is not None and self.parser.should_upgrade()
        if asks_for_upgrade and self._announces_body():
            raise _RefusedError("A request with a body must not ask for an upgrade; send no Upgrade header.")
        if self._has_request() and self._announces_body():
            raise _RefusedError(
                "A request with a body must not be sent before the previous request is answered."
            )
        super().on_headers_complete()
        self._in_body = True
        # The parser may drop a request that follows an upgrade request, so close the connection after this answer.
        if asks_for_upgrade:
            self.cycle.keep_alive = False

    def _announces_body(self) -> bool:
        """Return whether the request has a body. After an Upgrade header, the parser mistakes a body for a request."""
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
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # uvicorn called `resume_reading` while the next request was in the pipeline; `_Flow` may have ignored the call.
        self.flow.resume_reading()
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
        """Return the maximum duration of a state, or None if this protocol does not limit it."""
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
