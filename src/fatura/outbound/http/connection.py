"""One connection to a merchant's server; it never reads more bytes than the limits allow."""

import asyncio
import time

from fatura.outbound.http.response import Response

_READ_BYTES = 4096
"""Size of a connection's buffer, which is small because thousands of connections may be open."""


class Connection(asyncio.BufferedProtocol):
    """A connection for one request at a time; it closes if the server sends bytes while no request runs."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self._response: Response | None = None
        self._answered: asyncio.Future[None] | None = None
        self.idle_since = time.monotonic()

    async def ask(self, request: bytes, response: Response) -> None:
        """Send a request and wait until its response is complete or faulty. If canceled, close the connection."""
        transport = self._transport
        if transport is None or transport.is_closing():
            response.end(was_clean=True)
            return
        assert self._response is None, "one request at a time"
        self._response = response
        self._answered = asyncio.get_running_loop().create_future()
        try:
            transport.write(request)
            await self._answered
        finally:
            self._response = None
            self.idle_since = time.monotonic()
            if not response.leaves_open or transport.get_write_buffer_size():
                self.abort()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        """Close immediately, without sending or reading further bytes."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] - it is a TCP transport
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the size limit decides instead
        """Return the buffer, cut to the number of bytes that the size limits still allow.

        While no request runs, the buffer has one byte, so that unrequested bytes are noticed.
        """
        wanted = 1 if self._response is None else self._response.wanted_bytes
        return self._buffer[: max(1, min(_READ_BYTES, wanted))]

    def buffer_updated(self, nbytes: int) -> None:
        if self._response is None or self._response.is_ended:
            self.abort()
            return
        self._response.feed(self._buffer[:nbytes])
        self._finish_if_ended()

    def eof_received(self) -> None:
        """End the response and let the connection close."""
        self._end(was_clean=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response. If the connection broke before the response was complete, the response is faulty."""
        self._end(was_clean=exc is None)
        self._transport = None

    def _end(self, *, was_clean: bool) -> None:
        if self._response is not None:
            self._response.end(was_clean=was_clean)
            self._finish_if_ended()

    def _finish_if_ended(self) -> None:
        assert self._response is not None
        assert self._answered is not None
        if self._response.is_ended and not self._answered.done():
            self._answered.set_result(None)
