"""One connection to a merchant's server: asks, and reads no byte more than the answer may have."""

import asyncio
import time

from fatura.outbound.http.response import Response

_READ_BYTES = 4096
"""Read at once; a connection's whole buffer, so that two thousand of them stay small."""


class Connection(asyncio.BufferedProtocol):
    """A connection that is asked one thing at a time; anything unasked closes it."""

    def __init__(self) -> None:
        """Wait to be connected."""
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self._response: Response | None = None
        self._answered: asyncio.Future[None] | None = None
        self.idle_since = time.monotonic()

    async def ask(self, request: bytes, response: Response) -> None:
        """Send a request and wait until its response is whole or at fault; cancelled, the connection is closed."""
        transport = self._transport
        if transport is None or transport.is_closing():
            response.end(was_clean=True)
            return
        assert self._response is None, "asked while it is being answered"
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
        """Whether another request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        """Close at once, whatever is still to be sent or read."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] - a TCP one it is
        """Keep the transport."""
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the transport's hint, not our limit
        """Offer room for as much as may still be read; an idle connection has one byte, to notice what is unasked."""
        wanted = 1 if self._response is None else self._response.wanted_bytes
        return self._buffer[: max(1, min(_READ_BYTES, wanted))]

    def buffer_updated(self, nbytes: int) -> None:
        """Feed the response with what came."""
        if self._response is None or self._response.is_ended:
            self.abort()
            return
        self._response.feed(self._buffer[:nbytes])
        self._tell()

    def eof_received(self) -> None:
        """Take it as the end of the response; the connection closes."""
        self._end(was_clean=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take it as the end of the response, an unclean one if the connection broke."""
        self._end(was_clean=exc is None)
        self._transport = None

    def _end(self, *, was_clean: bool) -> None:
        if self._response is not None:
            self._response.end(was_clean=was_clean)
            self._tell()

    def _tell(self) -> None:
        assert self._response is not None
        assert self._answered is not None
        if self._response.is_ended and not self._answered.done():
            self._answered.set_result(None)
