"""Reads request bodies within limits of size and time, and parses them as strict JSON (D-11).

The module `fields` and the model of each route then check the contents.
"""

import asyncio
import json
import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from fatura.domain.errors import INVALID_REQUEST, MAX_LISTED, PAYLOAD_TOO_LARGE, EngineError, invalid_fields

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_VALUES = 5000
"""Maximum number of values in a body: members of objects and elements of arrays, at all depths (D-201).

The largest valid body is a plan with 20 items and 20 discounts for each item. It has about 1,700 values.
"""
MAX_INTEGER_CHARS = 40
READ_SECONDS = 30
"""Maximum time for a whole body to arrive."""
MAX_NAME_CHARS = 120
WHOLE_BODY = ""
"""The path of an error that is reported for the body as a whole."""
TOO_DEEP = f"must not be nested deeper than {MAX_DEPTH} levels"
TOO_MANY = f"must not contain more than {MAX_VALUES:,} values"
UNSTORABLE = "must not contain NUL characters or lone surrogates"


async def read(receive: Receive, *, announced_bytes: int | None, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the whole body. `announced_bytes` is the request's Content-Length.

    A Content-Length above `max_bytes` is refused before anything is read (D-10).
    Raises EngineError: `engine.payload_too_large`; `engine.invalid_request` if the body takes longer than READ_SECONDS.
    Raises ClientDisconnect when the client disconnects.
    """
    if announced_bytes is not None and announced_bytes > max_bytes:
        raise _too_large(max_bytes)
    if announced_bytes == 0:
        return b""
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await _collect(receive, max_bytes)
    except TimeoutError:
        raise EngineError(
            INVALID_REQUEST, f"The body did not arrive within {READ_SECONDS} seconds."
        ) from None


async def read_noting_wait(receive: Receive, *, announced_bytes: int | None) -> tuple[bytes, bool]:
    """Return the whole body, and whether `read` had to wait for it. Raises the same errors as `read`."""
    waited = asyncio.Event()
    handle = asyncio.get_running_loop().call_soon(waited.set)  # the event loop runs this only if `read` waits
    try:
        raw = await read(receive, announced_bytes=announced_bytes)
    finally:
        handle.cancel()
    return raw, waited.is_set()


async def _collect(receive: Receive, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(max_bytes: int) -> EngineError:
    return EngineError(
        PAYLOAD_TOO_LARGE, f"The body is larger than {max_bytes // 1024} KiB; send less at once."
    )


class _Repeated(dict[str, Any]):
    """A JSON object in which some keys appeared more than once; `names` has these keys."""

    names: tuple[str, ...] = ()


def parse(body: bytes) -> Any:
    """Return the JSON value of a body. 10.0 stays a float, so that models refuse it for an integer field (D-8).

    Raises EngineError: `engine.invalid_request` for a body that is not strict JSON in UTF-8. Repeated keys, NUL
    characters, lone surrogates, too large numbers, nesting deeper than MAX_DEPTH and more than MAX_VALUES values are
    refused as well (D-11, D-201).
    """
    if _has_too_many_values(body):
        raise invalid_fields((WHOLE_BODY, TOO_MANY))
    repeated: list[_Repeated] = []

    def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) == len(pairs):
            return value
        marked = _Repeated(value)
        marked.names = tuple(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        repeated.append(marked)
        return marked

    decoder = json.JSONDecoder(
        object_pairs_hook=read_object,
        parse_int=_read_integer,
        parse_float=_read_float,
        parse_constant=_refuse_constant,
    )
    try:
        value = decoder.decode(body.decode())
    except UnicodeDecodeError:
        raise invalid_fields((WHOLE_BODY, "must be JSON in UTF-8")) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise invalid_fields((WHOLE_BODY, f"must be JSON; {error.msg} at {where}")) from None
    except RecursionError:
        raise invalid_fields((WHOLE_BODY, TOO_DEEP)) from None
    if repeated or _may_hide_refusals(body):
        refused = list(islice(_refusals(value, WHOLE_BODY, 0), MAX_LISTED))
        if refused:
            raise invalid_fields(*refused)
    return value


def _has_too_many_values(body: bytes) -> bool:
    """Return whether a body has more than MAX_VALUES values. The body is not parsed, because that would take long.

    Each value in an object or array follows an opening bracket or a comma. The function therefore counts opening
    brackets and commas. An empty object or array counts as if it had a value.
    """
    # This count also includes commas and brackets inside texts, so it is never below the number of values.
    if _openings(body) <= MAX_VALUES:
        return False
    # A value and its name have at most four quotes, so MAX_VALUES values have at most 4 * MAX_VALUES quotes. A body
    # with more quotes has too many values.
    # Return here, because splitting the body at its quotes would take 2 ms.
    if body.count(b'"') - body.count(b'\\"') > 4 * MAX_VALUES + 4:
        return True
    outside_texts = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    return _openings(b"".join(outside_texts)) > MAX_VALUES


def _openings(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _read_integer(digits: str) -> int:
    if len(digits) > MAX_INTEGER_CHARS:
        raise invalid_fields(
            (WHOLE_BODY, f"must not contain integers of more than {MAX_INTEGER_CHARS} digits")
        )
    return int(digits)


def _read_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise invalid_fields((WHOLE_BODY, "must not contain numbers too large for a double"))
    return value


def _refuse_constant(name: str) -> None:
    raise invalid_fields((WHOLE_BODY, f"must be JSON; {name} is not"))


def _may_hide_refusals(body: bytes) -> bool:
    """Return whether a body may contain values that the decoder accepts, but that Fatura refuses.

    Fatura refuses values nested deeper than MAX_DEPTH, and texts with an escaped NUL character or lone surrogate.
    """
    return b"\\u" in body or body.count(b"{") + body.count(b"[") > MAX_DEPTH


def _refusals(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if not is_storable(value):
            yield path, UNSTORABLE
    elif isinstance(value, (dict, list)):
        if depth == MAX_DEPTH:
            yield path, TOO_DEEP
        elif isinstance(value, list):
            for index, item in enumerate(cast("list[Any]", value)):
                yield from _refusals(item, member(path, index), depth + 1)
        else:
            yield from _refusals_inside(cast("dict[str, Any]", value), path, depth)


def _refusals_inside(value: dict[str, Any], path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, _Repeated):
        for name in value.names:
            yield member(path, name), "is repeated in the same object"
    for name, item in value.items():
        if not is_storable(name):
            yield member(path, name), UNSTORABLE
        yield from _refusals(item, member(path, name), depth + 1)


def is_storable(text: str) -> bool:
    """Return whether PostgreSQL can store a text. It refuses NUL characters and lone surrogates (D-11)."""
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def member(path: str, of: str | int) -> str:
    """Return the path of a member of an object or array, such as `items[0].discounts[1].percent`.

    `path` is the path of the object or array. `of` is the member's name or index.
    """
    if isinstance(of, int):
        return f"{path}[{of}]"
    name = of[:MAX_NAME_CHARS].encode(errors="replace").decode()
    return f"{path}.{name}" if path else name
