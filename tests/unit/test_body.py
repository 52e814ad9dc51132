"""Request bodies must be strict JSON of at most 256 KiB that arrives before a deadline. [D-11]"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as some
from starlette.requests import ClientDisconnect

from fatura.api.http import body
from fatura.api.http.body import MAX_BYTES, MAX_DEPTH, MAX_VALUES, TOO_DEEP, TOO_MANY, UNSTORABLE
from fatura.domain.errors import INVALID_REQUEST, PAYLOAD_TOO_LARGE, EngineError
from tests.unit.tiny_api import client_of, fields_of, tiny_api


def refused(sent: bytes) -> list[tuple[str, str]]:
    """Parse a body that must be refused. Return the path and message of each field that the refusal lists."""
    with pytest.raises(EngineError) as raised:
        body.parse(sent)
    assert raised.value.problem is INVALID_REQUEST
    assert raised.value.meta is not None
    json.dumps(raised.value.meta).encode()
    return [(field["path"], field["message"]) for field in raised.value.meta["fields"]]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b'{"a":1}}', id="trailing garbage"),
        pytest.param(b'{"a":1} {"a":2}', id="two values"),
        pytest.param(b"{'a':1}", id="single quotes"),
        pytest.param(b'{"a":1,}', id="trailing comma"),
        pytest.param(b"{a:1}", id="bare key"),
        pytest.param(b'{"a":01}', id="leading zero"),
        pytest.param(b'{"a":+1}', id="plus"),
        pytest.param(b'{"a":.5}', id="no digit before the point"),
        pytest.param(b'{"a":0x10}', id="hexadecimal"),
        pytest.param(b'{"a":1_000}', id="underscore"),
        pytest.param(b'{"a":"\x00"}', id="raw NUL"),
        pytest.param(b'{"a":"\n"}', id="raw control character"),
        pytest.param(b'{"a":// no\n1}', id="comment"),
        pytest.param(b" ", id="nothing"),
        pytest.param(b"\xef\xbb\xbf{}", id="BOM"),
        pytest.param(b'{"a":"\xff"}', id="not UTF-8"),
        pytest.param(b'{"a":"\xed\xa0\x80"}', id="surrogate in UTF-8"),
        pytest.param('{"a":1}'.encode("utf-16"), id="UTF-16"),
        pytest.param(b'{"a":NaN}', id="NaN"),
        pytest.param(b'{"a":Infinity}', id="Infinity"),
        pytest.param(b'{"a":-Infinity}', id="-Infinity"),
        pytest.param(b'{"a":1e400}', id="more than a double"),
        pytest.param(b'{"a":%s}' % (b"9" * 41), id="absurd integer"),
        pytest.param(b'{"a":%s}' % (b"9" * 5000), id="integer beyond Python's limit"),
        pytest.param(b"[" * 200_000, id="open brackets"),
        pytest.param(b'{"a":' * 50_000, id="open braces"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="very deep"),
    ],
)
def test_invalid_json_is_refused_without_a_field(sent):
    """[D-11]"""
    assert [path for path, _ in refused(sent)] == [""]


@pytest.mark.parametrize(
    ("sent", "fields"),
    [
        (b'{"a":1,"a":1}', [("a", "is repeated in the same object")]),
        (b'{"x":[{"b":1,"c":2,"b":3}]}', [("x[0].b", "is repeated in the same object")]),
        (b'{"a":1,"\\u0061":2}', [("a", "is repeated in the same object")]),
        (b'{"a":"\\u0000"}', [("a", UNSTORABLE)]),
        (b'{"a":["x","\\ud800"]}', [("a[1]", UNSTORABLE)]),
        (b'{"a":"\\ude00\\ud83d"}', [("a", UNSTORABLE)]),
        (b'{"a\\u0000":1}', [("a\0", UNSTORABLE)]),
        (b'{"\\udfff":1}', [("?", UNSTORABLE)]),
        (b'"\\u0000"', [("", UNSTORABLE)]),
        (
            b'{"a":"\\u0000","b":{"c":1,"c":"\\ud800"}}',
            [("a", UNSTORABLE), ("b.c", "is repeated in the same object"), ("b.c", UNSTORABLE)],
        ),
    ],
)
def test_every_invalid_place_is_named(sent, fields):
    """[D-11]"""
    assert refused(sent) == fields


def test_the_list_of_invalid_places_is_limited():
    """[D-104]"""
    sent = json.dumps(["\0"] * 2_000).encode()
    assert len(refused(sent)) == body.MAX_LISTED


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_limited_to_32_levels(opening, closing):
    """[D-11]"""
    body.parse(opening * MAX_DEPTH + b"1" + closing * MAX_DEPTH)
    deeper = opening * MAX_DEPTH + b"[]" + closing * MAX_DEPTH
    assert [message for _, message in refused(deeper)] == [TOO_DEEP]
    assert body.parse(b'["%s"]' % (b"[{" * 500)) == ["[{" * 500]


def test_the_number_of_values_is_limited():
    """A body with too many values is refused before it is parsed, even if it is not JSON. [D-201]"""
    for most in (
        b'{"a":[%s]}' % b",".join([b"0"] * (MAX_VALUES - 1)),
        b"{%s}" % b",".join(b'"%d":{"b":[1,2]}' % number for number in range(MAX_VALUES // 4)),
        b"{%s}" % b",".join(b'"%d,":","' % number for number in range(MAX_VALUES - 1)),
        json.dumps({"a": "[{," * 20_000, 'b\\",,"\\\\': ",[" * 10_000}).encode(),
        json.dumps({"a": ',"' * 30_000}).encode(),
    ):
        assert isinstance(body.parse(most), dict)
    for sent in (
        b"[%s]" % b",".join([b"0"] * (MAX_VALUES + 1)),
        b"[%s" % (b"0," * MAX_VALUES),
        b"{%s}" % b",".join(b'"a%d":[]' % number for number in range(MAX_VALUES)),
        b'{"x\\\\":[%s]}' % b",".join([b'"\\""'] * MAX_VALUES),
        b"{%s}" % b",".join(b'"%d":""' % number for number in range(MAX_VALUES * 2)),
    ):
        assert refused(sent) == [("", TOO_MANY)]


@pytest.mark.parametrize(
    ("sent", "value"),
    [
        (b'{"a": "\\ud83d\\ude00 \\n", "b": "\xc3\xa9"}', {"a": "\U0001f600 \n", "b": "\u00e9"}),
        (b' \r\n\t{"a":[]}\n', {"a": []}),
        (b'{"A":1,"a":2}', {"A": 1, "a": 2}),
        (b"-0", 0),
        (b"null", None),
    ],
)
def test_strict_json_is_accepted_in_any_spelling(sent, value):
    assert body.parse(sent) == value


@pytest.mark.parametrize(("sent", "kind"), [(b"10", int), (b"10.0", float), (b"1e3", float), (b"true", bool)])
def test_numbers_keep_their_type(sent, kind):
    """[D-8]"""
    assert type(body.parse(sent)) is kind


_leaves = some.none() | some.booleans() | some.integers(-(10**30), 10**30) | some.floats(allow_nan=False)
_texts = some.text(some.characters(exclude_characters="\0", exclude_categories=["Cs"]))
_values = some.recursive(
    _leaves.filter(lambda each: each not in (float("inf"), float("-inf"))) | _texts,
    lambda inner: some.lists(inner, max_size=5) | some.dictionaries(_texts, inner, max_size=5),
    max_leaves=20,
)


@given(_values, some.booleans())
def test_parsing_reverses_encoding(value, ascii_only):
    assert body.parse(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(some.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(sent):
    with suppress(EngineError):
        body.parse(sent)


def arriving(pieces: Iterable[bytes], *, end: bool = True) -> Any:
    """Return an ASGI `receive` that yields these pieces, and then the end of the body.

    If `end` is False, it yields a disconnect instead of the end.
    """
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages.append({"type": "http.request", "more_body": False} if end else {"type": "http.disconnect"})
    waiting = iter(messages)

    async def receive() -> Any:
        return next(waiting)

    return receive


async def test_the_limit_is_256_kib_exactly():
    """[D-11]"""
    whole = b"x" * MAX_BYTES
    assert MAX_BYTES == 262_144
    assert await body.read(arriving([whole]), announced_bytes=MAX_BYTES) == whole
    assert await body.read(arriving([whole[:1000], whole[1000:]]), announced_bytes=None) == whole
    for pieces, announced in (([whole, b"x"], None), ([], MAX_BYTES + 1), ([whole, b"x"], 5)):
        with pytest.raises(EngineError) as raised:
            await body.read(arriving(pieces), announced_bytes=announced)
        assert raised.value.problem is PAYLOAD_TOO_LARGE


async def test_half_a_body_is_not_accepted_when_the_client_disconnects():
    with pytest.raises(ClientDisconnect):
        await body.read(arriving([b'{"a":1}'], end=False), announced_bytes=None)


async def test_a_slow_body_is_refused(monkeypatch):
    monkeypatch.setattr(body, "READ_SECONDS", 0.1)

    async def drip() -> Any:
        await asyncio.sleep(0.03)
        return {"type": "http.request", "body": b" ", "more_body": True}

    with pytest.raises(EngineError) as raised:
        await body.read(drip, announced_bytes=None)
    assert raised.value.problem is INVALID_REQUEST


@asynccontextmanager
async def things() -> AsyncGenerator[httpx.AsyncClient]:
    """A client of the tiny API that sends the same Idempotency-Key with every request."""
    async with client_of(tiny_api()) as client:
        client.headers["Idempotency-Key"] = "once"
        yield client


@pytest.mark.parametrize(
    ("media_type", "status"),
    [
        ("application/json", 201),
        ("application/json; charset=utf-8", 201),
        ('Application/JSON ;Charset="UTF-8"', 201),
        ("application/json; charset=latin-1", 400),
        ("application/merge-patch+json", 400),
        ("application/jsonx", 400),
        ("text/json", 400),
        ("text/plain", 400),
        ("application/x-www-form-urlencoded", 400),
        ("", 400),
        (None, 400),
    ],
)
async def test_other_media_types_are_refused(media_type, status):
    """[D-11]"""
    async with things() as client:
        headers = {} if media_type is None else {"Content-Type": media_type}
        answer = await client.post("/v1/things", content=b'{"name":"x"}', headers=headers)
        assert answer.status_code == status
        if status == 400:
            assert fields_of(answer) == [("Content-Type", "must be application/json")]


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"", 200), (b"{}", 200), (b" {} ", 200), (b'{"a":1}', 400), (b"[]", 400), (b"null", 400), (b"{", 400)],
)
async def test_a_route_without_a_body_accepts_none_or_an_empty_object(sent, status):
    """[D-11]"""
    async with things() as client:
        path = "/v1/things/019a0000-0000-7000-8000-000000000000/archive"
        answer = await client.post(path, content=sent, headers={"Content-Type": "application/json"})
        assert answer.status_code == status
        if status == 200:
            assert answer.json() == {"key": "once", "value": None}


@pytest.mark.parametrize("sent", [b"", b"null", b"[]", b'"x"', b"1"])
async def test_a_body_that_is_not_an_object_is_refused(sent):
    """[D-11]"""
    async with things() as client:
        answer = await client.post("/v1/things", content=sent, headers={"Content-Type": "application/json"})
        assert fields_of(answer) == [("", "must be a JSON object")]
