"""The example merchant needs only the standard library, and verifies the signature before it parses a body."""

import base64
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from fatura.signature import sign
from tests.support.example_merchant import PROGRAM, ExampleMerchant, example_merchant
from tests.support.fatura_processes import environment
from tests.support.postgres_processes import until
from tests.support.world import Json

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OLD = "whsec_" + base64.b64encode(bytes(32)).decode()


@pytest.fixture(scope="module")
def merchant() -> Iterator[ExampleMerchant]:
    with example_merchant(SECRET) as running:
        yield running


def signed(
    merchant: ExampleMerchant, path: str, message: Json, *, off: int = 0, secrets: str = SECRET
) -> Json:
    """Post a signed message whose timestamp is `off` seconds in the future. Return status and body."""
    body = json.dumps(message).encode()
    header = sign(body, secrets.split(","), timestamp=int(time.time()) + off)
    answer = merchant.post(path, body, X_Service_Signature=header)
    return answer.status_code, answer.json()


def price_request(product: str, request_id: str, *, mode: str = "live", cycle: int = 2) -> Json:
    """Return the request that the engine sends to a price endpoint (spec 4.7)."""
    return {
        "version": 1,
        "mode": mode,
        "pricingRequestId": request_id,
        "product": {"externalRef": product},
        "subscription": {"externalRef": "subscription-2"},
        "customer": {"externalRef": "customer-2"},
        "period": {"start": "2033-12-01", "end": "2033-12-31"},
        "cycle": cycle,
        "currency": "BRL",
    }


def test_a_price_is_the_same_for_repeated_requests(merchant: ExampleMerchant) -> None:
    """[spec 4.7 response, spec 4.7 skip]"""
    first = signed(merchant, "/price", price_request("classes", "steady"))
    assert first == (200, {"amount": 10500, "description": "3 classes used before 2033-12-01"})
    assert signed(merchant, "/price", price_request("classes", "steady")) == first
    assert signed(merchant, "/price", price_request("classes", "none", cycle=1)) == (200, {"skip": True})


def test_prices_can_fail_first_or_always(merchant: ExampleMerchant) -> None:
    """For towels, the first two live calls with one request id fail. For smoothies, all calls fail.

    [D-31, spec 4.7 rule 3]
    """
    towels = [signed(merchant, "/price", price_request("towels", "late"))[0] for _ in range(4)]
    assert towels == [503, 503, 200, 200]
    assert signed(merchant, "/price", price_request("towels", "tried out", mode="test"))[0] == 200
    smoothies = [signed(merchant, "/price", price_request("smoothies", "broken"))[0] for _ in range(13)]
    assert smoothies == [503] * 13
    assert signed(merchant, "/price", price_request("unheard of", "x"))[0] == 404


def test_an_event_delivered_twice_is_processed_once(merchant: ExampleMerchant) -> None:
    """[spec 6.1]"""
    event = {"id": "e1", "sequence": 1, "type": "invoice.canceled", "createdAt": "x", "data": {}}
    assert [signed(merchant, "/webhooks", event)[0] for _ in range(3)] == [200, 200, 200]
    until(lambda: merchant.summary()["events"].get("invoice.canceled") == 1, seconds=5)
    assert merchant.summary()["duplicates"] == 2


@pytest.mark.parametrize("path", ["/price", "/webhooks"])
def test_requests_without_a_valid_signature_are_401(merchant: ExampleMerchant, path: str) -> None:
    """[spec 5.6]"""
    before = merchant.summary()
    body = json.dumps(price_request("classes", "forged")).encode()
    good = sign(body, [SECRET], timestamp=int(time.time()))
    refused = [
        signed(merchant, path, {}, secrets=OLD)[0],
        signed(merchant, path, {}, off=-310)[0],
        signed(merchant, path, {}, off=310)[0],
        merchant.post(path, body).status_code,
        merchant.post(path, body + b" ", X_Service_Signature=good).status_code,
        merchant.post(path, b"\xff{", X_Service_Signature=good).status_code,
        merchant.post(path, b"", X_Service_Signature="t=,v1=").status_code,
    ]
    assert refused == [401] * 7
    assert merchant.summary() == before | {"refused": before["refused"] + 7}


def test_either_secret_of_a_rotation_is_accepted(merchant: ExampleMerchant) -> None:
    """[D-40 receiver]"""
    event = {"id": "rotated", "sequence": 1, "type": "invoice.paid", "createdAt": "x", "data": {}}
    assert signed(merchant, "/webhooks", event, secrets=f"{OLD},{SECRET}")[0] == 200


@pytest.mark.parametrize("length", [b"", b"Content-Length: x\r\n", b"Content-Length: 99999999999\r\n"])
def test_a_body_without_a_length_is_not_read(merchant: ExampleMerchant, length: bytes) -> None:
    host, port = merchant.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"POST /webhooks HTTP/1.1\r\nHost: x\r\n" + length + b"\r\n")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 411 ")


def test_the_example_does_not_start_without_a_secret() -> None:
    ended = subprocess.run(
        [sys.executable, "-I", "-S", str(PROGRAM)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert ended.returncode == 2
    assert "FATURA_INTEGRATION_SECRET" in ended.stderr
