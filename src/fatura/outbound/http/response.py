"""Parse one HTTP response while it arrives, with size limits."""

from http import HTTPStatus

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from fatura.outbound.http.exchange import MAX_BODY_BYTES, MAX_HEADER_BYTES

MAX_FRAMING_BYTES = 16 * 1024
"""Limit for the bytes that belong neither to the headers nor to the body: chunk sizes and trailers."""
_BODILESS = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}
_KEPT_HEADERS = {b"content-encoding", b"content-length", b"transfer-encoding", b"retry-after"}


class _FaultError(Exception):
    """Stops the parser; the message says what is wrong with the response."""


class Response:
    """The received part of one response. Reading ends when `is_whole` is true or `fault` is set.

    `status` is set as soon as the headers are complete.
    """

    __slots__ = (
        "_headers",
        "_parser",
        "body",
        "bytes_read",
        "fault",
        "is_whole",
        "leaves_open",
        "retry_after",
        "status",
    )

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self.bytes_read = 0
        self.status: int | None = None
        self.body = bytearray()
        self.retry_after: str | None = None
        self.is_whole = False
        self.fault: str | None = None
        self.leaves_open = False

    @property
    def is_ended(self) -> bool:
        return self.is_whole or self.fault is not None

    @property
    def wanted_bytes(self) -> int:
        """The number of further bytes that the limits allow."""
        limit = MAX_HEADER_BYTES
        if self.status is not None:
            limit += MAX_BODY_BYTES + MAX_FRAMING_BYTES
        return limit - self.bytes_read

    def feed(self, data: memoryview) -> None:
        """Parse received bytes. The caller must not pass more than `wanted_bytes`."""
        self.bytes_read += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._fail(_SWITCHED)
        except HttpParserError as error:
            self._fail(str(error.__context__) if isinstance(error.__context__, _FaultError) else None)
        if not self.is_ended and self.wanted_bytes <= 0:
            too_much = "answered with too many chunks or trailers" if self.status else _TOO_MANY_HEADERS
            self._fail(too_much)

    def end(self, *, was_clean: bool) -> None:
        """Handle the end of the connection; `was_clean` says whether the server closed it without an error.

        A clean end completes a response whose body has no Content-Length and no chunks. Any other incomplete response
        becomes faulty.
        """
        if self.is_ended:
            return
        if self.status is None:
            self._fail("closed the connection before it answered")
        elif was_clean and not self._headers.keys() & {b"content-length", b"transfer-encoding"}:
            self.is_whole = True
        else:
            self._fail("closed the connection before its answer was whole")

    def on_message_begin(self) -> None:
        """Refuse a second response to one request."""
        if self.is_whole:
            raise _FaultError

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the headers that are needed; ignore trailers."""
        name = name.lower()
        if self.status is None and name in _KEPT_HEADERS:
            before = self._headers.get(name)
            self._headers[name] = value if before is None else before + b"," + value

    def on_headers_complete(self) -> None:
        """Check the headers of the response. Skip 1xx responses; their bytes still count towards the header limit."""
        status = self._parser.get_status_code()
        if status == HTTPStatus.SWITCHING_PROTOCOLS:
            raise _FaultError(_SWITCHED)
        if status < HTTPStatus.OK:
            self._headers.clear()
            return
        self.status = status
        self.retry_after = self._headers.get(b"retry-after", b"").decode("latin-1") or None
        if status not in _BODILESS:
            self._check_body_headers()

    def _check_body_headers(self) -> None:
        if self._headers.get(b"content-encoding", b"").strip().lower() not in {b"", b"identity"}:
            raise _FaultError("encoded its answer although the request did not accept it (Content-Encoding)")
        if self._headers.get(b"transfer-encoding", b"chunked").strip().lower() != b"chunked":
            raise _FaultError("encoded its answer although the request did not accept it (Transfer-Encoding)")
        if int(self._headers.get(b"content-length", b"0")) > MAX_BODY_BYTES:
            raise _FaultError(_TOO_LARGE)

    def on_body(self, data: bytes) -> None:
        room = MAX_BODY_BYTES - len(self.body)
        self.body += data[:room]
        if len(data) > room:
            raise _FaultError(_TOO_LARGE)

    def on_message_complete(self) -> None:
        """Mark the response complete, unless it is a 1xx response."""
        if self.status is not None:
            self.is_whole = True
            self.leaves_open = self._parser.should_keep_alive()

    def _fail(self, fault: str | None) -> None:
        """Mark the response faulty, unless it is complete already. In both cases, the connection is not reused."""
        self.leaves_open = False
        if not self.is_whole:
            self.fault = fault or "answered with something that is not HTTP/1.1"


_TOO_LARGE = f"answered with more than {MAX_BODY_BYTES // 1024} KiB"
_TOO_MANY_HEADERS = f"answered with more than {MAX_HEADER_BYTES // 1024} KiB of headers"
_SWITCHED = "changed to a protocol that was not asked for"
