"""`fatura api` over real HTTP connections (D-10, D-11, D-14)."""

import asyncio
import json

import httpx
import pytest

from tests.api.conftest import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")
BODY = b'{"name": "Gym", "pricing": {"mode": "fixed", "monthlyPriceCents": 9990}}'


async def test_sixteen_concurrent_requests_with_one_key_create_one(served: Served):
    """[D-14]"""
    headers = {
        "Authorization": f"Bearer {served.api_key}",
        "Content-Type": "application/json",
        "Idempotency-Key": "order-1",
    }
    limits = httpx.Limits(max_connections=16, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=served.url, limits=limits, timeout=30) as client:
        before = (await client.get("/v1/products", headers=headers)).json()["data"]
        answers = await asyncio.gather(
            *[client.post("/v1/products", content=BODY, headers=headers) for _ in range(16)]
        )
        listed = (await client.get("/v1/products", headers=headers)).json()["data"]

    assert [answer.status_code for answer in answers] == [201] * 16
    assert len({answer.content for answer in answers}) == 1
    assert sum("idempotent-replayed" in answer.headers for answer in answers) == 15
    assert len({answer.headers["x-request-id"] for answer in answers}) == 16
    assert listed == [answers[0].json(), *before]


async def talk(served: Served, request: bytes) -> tuple[int, bytes, bytes]:
    """Send a request on a new connection. Return the status, the header lines in lower case, and the body.

    In `request`, `KEY` stands for the API key, and a newline for CRLF.
    """
    reader, writer = await asyncio.open_connection(served.host, served.port)
    try:
        writer.write(request.replace(b"\n", b"\r\n").replace(b"KEY", served.api_key.encode()))
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = b"" if request.startswith(b"HEAD") else await reader.readexactly(length)
    finally:
        writer.close()
    return int(head.split()[1]), head.lower(), body


LIST = b"GET /v1/products HTTP/1.1\nHost: x\nAuthorization: Bearer KEY"
POST = b"POST /v1/products HTTP/1.1\nHost: x\nAuthorization: Bearer KEY\nIdempotency-Key: a"
JSON = b"\nContent-Type: application/json"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (LIST + b"\n\n", 200),
        (LIST.replace(b"GET", b"HEAD") + b"\n\n", 200),
        (LIST + b" \t\n\n", 200),  # trailing blanks are not part of a header's value
        (LIST + b"\nContent-Length: 5\n\nhello", 200),
        (LIST + b"\nX-Long: " + b"a" * 50_000 + b"\n\n", 200),
        (LIST + b"\nAuthorization: Bearer KEY\n\n", 401),
        (LIST.replace(b" HTTP", b"/%00 HTTP") + b"\n\n", 404),
        (LIST.replace(b" HTTP", b"/%ff%fe HTTP") + b"\n\n", 404),
        (LIST.replace(b" HTTP", b"%2f..%2fplans HTTP") + b"\n\n", 404),
        (LIST.replace(b" HTTP", b"?page=%zz HTTP") + b"\n\n", 400),
        (POST + b"\nTransfer-Encoding: chunked\nContent-Type: application/json\n\n2\n{}\n0\n\n", 400),
        (POST + b"\nContent-Length: 99999999999999\n\n{", 413),  # refused before the body arrives
        (POST + b"\nContent-Length: 2\nContent-Length: 3\n\n{}x", 400),
        (POST + b"\nContent-Length: 5\nTransfer-Encoding: chunked\n\n2\n{}\n0\n\n", 400),
        (POST + b"\nContent-Length: x\n\n", 400),
        (POST + b"\nContent-Length: " + b"9" * 5000 + b"\n\n{", 400),
        (
            POST + JSON + b"\nContent-Length: " + b"0" * 5000 + b"2\n\n{}",
            400,
        ),  # a valid length, but an empty plan
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", 400),
    ],
)
async def test_any_bytes_get_an_answer(served: Served, request_bytes, status):
    """[D-10, D-11, spec 7 problem+json]"""
    answered, head, body = await talk(served, request_bytes)

    assert answered == status
    assert b"\r\nserver:" not in head
    if status >= 400:
        assert b"content-type: application/problem+json" in head
        problem = json.loads(body)
        assert problem["status"] == status
        assert problem["type"].startswith("engine.")
