"""A program that plays misbehaving merchant servers on raw sockets, with one path per behaviour.

The program prints two ports: one for all paths, and one whose TLS handshake arrives byte by byte. `/sent` returns the
number of bytes that each behaviour has sent.
"""

import asyncio
import gzip
import json
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from itertools import repeat
from urllib.parse import unquote

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
SLOWLY_SECONDS = 0.5
Behaviour = Callable[[asyncio.StreamReader], AsyncIterator[bytes]]

BEHAVIOURS: dict[str, Behaviour] = {}


def _slowly(name: str, before: bytes, piece: bytes) -> None:
    """Add a behaviour: send `before`, then `piece` every half second until the client disconnects."""

    async def behave(_reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        yield before
        while True:
            yield piece
            await asyncio.sleep(SLOWLY_SECONDS)

    BEHAVIOURS[name] = behave


def _endlessly(name: str, before: bytes, piece: bytes) -> None:
    """Add a behaviour: send `before`, then `piece` as fast as possible until the client disconnects."""

    async def behave(_reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        yield before
        for each in repeat(piece * (1 + 16384 // len(piece))):
            yield each

    BEHAVIOURS[name] = behave


def _once(name: str, *pieces: bytes, then_close: bool = True) -> None:
    """Add a behaviour: send the pieces once, then close the connection. Without `then_close`, leave it open."""

    async def behave(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        for each in pieces:
            yield each
        if not then_close:
            await reader.read()

    BEHAVIOURS[name] = behave


def _json(name: str, body: bytes, *, head: bytes = OK) -> None:
    """Add a behaviour: send a well-formed response whose `body` may be invalid JSON."""
    _once(name, head + b"Content-Length: %d\r\n\r\n" % len(body) + body, then_close=False)


_once("silence", then_close=False)
_slowly("status drip", b"HTTP/1.1 200 ", b"O")
_slowly("header drip", OK, b"X-A: b\r\n")
_slowly("body drip", OK + b"Content-Length: 1000\r\n\r\n", b"{")
_slowly("chunk drip", CHUNKED, b"1\r\n{\r\n")
_slowly("chunk length drip", CHUNKED, b"0")
_slowly("drip without length", OK + b"\r\n", b"{")
_slowly("1xx drip", b"", b"HTTP/1.1 100 Continue\r\n\r\n")
_once("half a body, then silence", OK + b'Content-Length: 20\r\n\r\n{"amount"', then_close=False)
_once("no last chunk", CHUNKED + b'c\r\n{"amount":1}\r\n', then_close=False)
_once("headers, then silence", OK + b"Content-Length: 12\r\n\r\n", then_close=False)
_once("half the headers, then silence", OK + b"Content-Len", then_close=False)

_once("closes unasked")
_once("closes inside the headers", OK + b"Content-Length: 12\r\n")
_once("garbage", bytes(range(256)) * 4)
_once("HTTP/0.9", b'{"amount": 1}')
_once("HTTP/2", b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64")
_once("HTTP/3.0", b'HTTP/3.0 200 OK\r\nContent-Length: 12\r\n\r\n{"amount":1}')
_once("SSH", b"SSH-2.0-OpenSSH_9.9\r\n", then_close=False)
_once("TLS alert", b"\x15\x03\x03\x00\x02\x02\x28")
_once("no status", b"HTTP/1.1 abc\r\n\r\n")
_once("header without colon", OK + b"Content-Length 12\r\n\r\n")
_once("NUL in a header", OK + b"X-A: b\0c\r\nContent-Length: 0\r\n\r\n")
_once("two lengths", OK + b'Content-Length: 12\r\nContent-Length: 13\r\n\r\n{"amount":1}')
_once("negative length", OK + b'Content-Length: -1\r\n\r\n{"amount":1}')
_once("length of forty digits", OK + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n")
_once(
    "another protocol",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nxyz",
    then_close=False,
)
_endlessly("endless header line", OK + b"X-A: ", b"b")
_endlessly("endless header name", OK, b"b")
_endlessly("endless status line", b"HTTP/1.1 200 ", b"O")
_endlessly("a million headers", OK, b"X-A: b\r\n")
_endlessly("folded headers", OK + b"X-A: b\r\n", b" c\r\n")
_endlessly("1xx flood", b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
_endlessly("empty lines", b"", b"\r\n")

_once("ten gigabytes announced", OK + b"Content-Length: 10000000000\r\n\r\n", b"{" * 1000, then_close=False)
_endlessly("ten gigabytes sent", OK + b"Content-Length: 10000000000\r\n\r\n", b"{")
_endlessly("endless chunks", CHUNKED, b"400\r\n" + b"{" * 1024 + b"\r\n")
_endlessly("endless small chunks", CHUNKED, b"1\r\n{\r\n")
_endlessly("endless chunk extension", CHUNKED + b"1;", b"a")
_endlessly("endless trailers", CHUNKED + b"2\r\n{}\r\n0\r\n", b"X-A: b\r\n")
_endlessly("endless without length", OK + b"\r\n", b"{")
_once("a chunk of sixteen exabytes", CHUNKED + b"ffffffffffffffff\r\n", b"{" * 1000, then_close=False)
_once("a chunk length too long", CHUNKED + b"f" * 64 + b"\r\n", then_close=False)
_once("chunk length that is none", CHUNKED + b"xyz\r\n{}\r\n", then_close=False)
_json("one byte too many", b" " * 65536 + b"1")
_once("closes inside the body", OK + b'Content-Length: 20\r\n\r\n{"amount"')
_once("closes inside a chunk", CHUNKED + b'20\r\n{"amount"')
_json(
    "gzip bomb",
    gzip.compress(b'{"amount": 1}' + b" " * 50_000_000, 9),
    head=OK + b"Content-Encoding: gzip\r\n",
)
_json("brotli", b"\x0b\x02\x80", head=OK + b"Content-Encoding: br\r\n")
_json("encoded twice", b"{}", head=OK + b"Content-Encoding: identity\r\nContent-Encoding: zstd\r\n")
_once(
    "gzip by transfer", OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", then_close=False
)
_json("gzip on an error page", b"\x1f\x8b", head=b"HTTP/1.1 503 Busy\r\nContent-Encoding: gzip\r\n")

_json("a price", b'{"amount": 100}')
_json("a price in capitals", b'{"amount": 100}', head=b"HTTP/1.1 200 OK\r\nCONTENT-ENCODING: identity\r\n")
_once("a price without length", OK + b'\r\n{"amount": 100}')
_once("a price of HTTP/1.0", b'HTTP/1.0 200 OK\r\n\r\n{"amount": 100}')
_once("a price in chunks", CHUNKED + b'7\r\n{"amoun\r\n8\r\nt": 100}\r\n0\r\n\r\n', then_close=False)
_once(
    "a price after 1xx",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nContent-Encoding: gzip\r\n\r\n",
    OK + b'Content-Length: 15\r\n\r\n{"amount": 100}',
    then_close=False,
)
_once(
    "a second answer",
    OK + b'Content-Length: 15\r\n\r\n{"amount": 100}' + OK + b'Content-Length: 15\r\n\r\n{"amount": 666}',
    then_close=False,
)
_json("as large as may be", b'{"amount": 100' + b" " * (65536 - 15) + b"}")
_json("redirect", b"", head=b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/\r\n")
_json("redirect that keeps POST", b"", head=b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /a%20price\r\n")
_json("permanent redirect", b"", head=b"HTTP/1.1 308 Permanent Redirect\r\nLocation: //127.0.0.1/\r\n")
_json("busy", b"busy", head=b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 30\r\n")
_json("broken", b"<h1>Oops</h1>", head=b"HTTP/1.1 500 Internal Server Error\r\n")
_json("cookies", b'{"amount": 100}', head=OK + b"Set-Cookie: a=b\r\n")
_once("no content", b"HTTP/1.1 204 No Content\r\n\r\n", then_close=False)
_json("empty", b"")
_json("deep", b"[" * 60_000)
_json("not a number", b'{"amount": NaN}')
_json("5000 digits", b'{"amount": ' + b"9" * 5000 + b"}")
_json("text", b'{"amount": "12"}')
_json("true", b'{"amount": true}')
_json("a fraction", b'{"amount": 1.0}')
_json("an exponent", b'{"amount": 1e2}')
_json("negative", b'{"amount": -1}')
_json("a list", b'[{"amount": 100}]')
_json("twice", b'{"amount": 1, "amount": 100}')
_json("NUL", b'{"amount": 1, "description": "a\\u0000b"}')
_json("half a character", b'{"amount": 1, "description": "\\ud800"}')
_json("not UTF-8", b'{"amount": 1, "description": "\xff"}')
_json("not JSON", b"<html>hello</html>")
_json("over the cap", b'{"amount": 1000001}')


async def _reset(_reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Send nothing and close. `_serve` has set SO_LINGER to zero, so closing resets the connection."""
    yield b""


async def _drip_head(_reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    for byte in OK + b"Content-Length: 2\r\n\r\n{}":
        yield bytes([byte])
        await asyncio.sleep(SLOWLY_SECONDS)


async def _reset_in_body(_reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    yield OK + b"Content-Length: 20\r\n\r\n{"
    await asyncio.sleep(0.2)


BEHAVIOURS["head drip"] = _drip_head
BEHAVIOURS["reset"] = _reset
BEHAVIOURS["reset inside the body"] = _reset_in_body
_TLS_HANDSHAKE = b"\x16"
_LINGER_NOT = struct.pack("ii", 1, 0)
_SENT: Counter[str] = Counter()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    try:
        head = await reader.readexactly(1)
        if head == _TLS_HANDSHAKE:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return
        head += await reader.readuntil(b"\r\n\r\n")
        name = unquote(head.split(b" ")[1].decode().removeprefix("/"))
        if name == "sent":
            body = json.dumps(_SENT).encode()
            writer.write(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            return
        if name.startswith("reset"):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        async for piece in BEHAVIOURS[name](reader):
            writer.write(piece)
            await writer.drain()
            _SENT[name] += len(piece)
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def _drip_tls(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send the header of a TLS record, and then the record byte by byte."""
    try:
        for piece in (b"\x16\x03\x03\x3f\x00\x02\x00\x3e\xfc", *repeat(b"\0", 100)):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(SLOWLY_SECONDS)
    except OSError:
        pass
    finally:
        writer.close()


async def _main() -> None:
    plain = await asyncio.start_server(_serve, "127.0.0.1", 0, backlog=1000)
    tls = await asyncio.start_server(_drip_tls, "127.0.0.1", 0, backlog=1000)
    print(*(each.sockets[0].getsockname()[1] for each in (plain, tls)), flush=True)  # noqa: T201 - the tests read it
    await asyncio.gather(plain.serve_forever(), tls.serve_forever())


if __name__ == "__main__":
    asyncio.run(_main())
