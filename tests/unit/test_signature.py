"""The signature of webhooks and price calls: Fatura and other packages create it and verify it."""

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError
from stripe import SignatureVerificationError, WebhookSignature

import fatura
from fatura import signature
from fatura.signature import SignatureError, sign, standard_signature, verify

NEW = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OLD = "whsec_" + base64.b64encode(bytes(range(32, 64))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(32)).decode()
BODY = '{"id":"1","type":"invoice.paid","data":{"name":"Açaí \\u00e9 \\n"}}'.encode()
NOW = 1_700_000_000


def accepts(body: bytes, header: str | None, secret: str = NEW, *, now: float = NOW) -> bool:
    """Return whether `verify` accepts a header. Any error other than a refusal fails the test."""
    try:
        verify(body, header, secret=secret, now=now)
    except SignatureError:
        return False
    return True


def test_a_signature_is_the_hmac_of_timestamp_and_body():
    """The key of the HMAC is the whole secret, including `whsec_`. [spec 5.6, D-42 keys]"""
    keyed = hmac.new(NEW.encode(), f"{NOW}.".encode() + BODY, hashlib.sha256).hexdigest()
    assert sign(BODY, [NEW], timestamp=NOW) == f"t={NOW},v1={keyed}"


def test_the_signature_of_a_fixed_message_never_changes():
    """The expected signature was computed with OpenSSL. [spec 5.6]"""
    assert sign(b'{"amount":100}', ["whsec_c2VjcmV0"], timestamp=NOW) == (
        "t=1700000000,v1=f7f4d0c1e5589c3771724f7e77293a9d66377e29df8351855f4dd392c0603535"
    )


def test_both_secrets_of_a_rotation_sign():
    """[D-40, D-40 receiver]"""
    header = sign(BODY, [NEW, OLD], timestamp=NOW)
    assert [part.partition("=")[0] for part in header.split(",")] == ["t", "v1", "v1"]
    assert header.startswith(sign(BODY, [NEW], timestamp=NOW))
    assert [accepts(BODY, header, secret) for secret in (NEW, OLD, OTHER)] == [True, True, False]


@pytest.mark.parametrize(
    ("off", "accepted"),
    [
        (0, True),
        (299.9, True),
        (300, True),
        (300.5, False),
        (301, False),
        (-300, True),
        (-300.5, False),
        (-301, False),
        (86_400, False),
    ],
)
def test_timestamps_may_differ_by_300_seconds(off, accepted):
    """[spec 5.6, spec 8 signature tolerance]"""
    assert accepts(BODY, sign(BODY, [NEW], timestamp=NOW), now=NOW + off) is accepted


def test_the_default_time_is_that_of_the_machine():
    """[spec 5.6]"""
    verify(BODY, sign(BODY, [NEW], timestamp=int(time.time())), secret=NEW)
    with pytest.raises(SignatureError, match="300 seconds off"):
        verify(BODY, sign(BODY, [NEW], timestamp=int(time.time()) - 310), secret=NEW)


@given(st.binary(max_size=300), st.data())
def test_a_changed_body_is_refused(body, data):
    """[spec 5.6]"""
    header = sign(body, [NEW], timestamp=NOW)
    assert accepts(body, header)
    assert not accepts(body + b" ", header)
    if body:
        place, bit = data.draw(st.integers(0, len(body) - 1)), data.draw(st.integers(0, 7))
        changed = bytearray(body)
        changed[place] ^= 1 << bit
        assert not accepts(bytes(changed), header)


def test_the_same_json_in_other_bytes_is_refused():
    """[spec 5.6]"""
    assert not accepts(json.dumps(json.loads(BODY)).encode(), sign(BODY, [NEW], timestamp=NOW))


V1 = sign(BODY, [NEW], timestamp=NOW).partition(",")[2]
GOOD = V1.removeprefix("v1=")


@pytest.mark.parametrize(
    "header",
    [
        f"t={NOW},{V1}",
        f"t={NOW}, {V1}",
        f"{V1},t={NOW}",
        f"t={NOW},v0=abc,{V1},v2=abc",
        f"t={NOW},v1=,v1=zz,{V1}",
        f"t={NOW},nonsense,,=,{V1}",
        f"t={NOW}," + "v1=00," * 1000 + V1,
    ],
    ids=["plain", "blank", "reordered", "other schemes", "wrong signatures first", "unknown fields", "many"],
)
def test_any_matching_v1_is_accepted(header):
    """[D-40 receiver]"""
    assert accepts(BODY, header)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        " ",
        ",",
        f"t={NOW}",
        V1,
        f"t=,{V1}",
        f"t={NOW},v1=",
        f"t={NOW},v1",
        f"t={NOW},v1={GOOD[:-1]}",
        f"t={NOW},v1={GOOD}0",
        f"t={NOW},v1={GOOD.upper()}",
        f"t={NOW},v0={GOOD}",
        f"t={NOW},V1={GOOD}",
        f"t={NOW + 1},{V1}",
        f"t={NOW},t={NOW},{V1}",
        f"t={NOW},t={NOW + 1},{V1}",
        f"t={NOW}.0,{V1}",
        f"t=-{NOW},{V1}",
        f"t=+{NOW},{V1}",
        f"t=0x{NOW:x},{V1}",
        f"t=1_700_000_000,{V1}",
        f"t={chr(0x661)}{chr(0x667)}00000000,{V1}",  # digits that are not ASCII
        f"t=²,{V1}",
        f"t=nan,{V1}",
        f"t=inf,{V1}",
        f"t={'9' * 12},{V1}",
        f"t={'9' * 5000},{V1}",
        f"t={NOW},v1=" + "é" * 64,
        f"t={NOW},v1=\ud800",
        f"t={NOW},v1={GOOD[:-1]}\0",
        f"t={NOW}," + "v1=00," * 100_000 + V1,
        "t=" * 100_000,
        "\0",
    ],
)
def test_malformed_headers_are_refused(header):
    """[spec 5.6]"""
    assert not accepts(BODY, header)


@given(st.one_of(st.text(), st.from_regex(r"(t=\d{0,30}|v1=[0-9a-f]{0,70}|,){0,8}", fullmatch=True)))
def test_any_header_without_the_secret_is_refused(header):
    """[spec 5.6]"""
    assert not accepts(BODY, header)


def test_an_empty_secret_is_refused():
    """With an empty secret, anyone could sign. [spec 5.6]"""
    forged = hmac.new(b"", f"{NOW}.".encode() + BODY, hashlib.sha256).hexdigest()
    with pytest.raises(SignatureError, match="empty"):
        verify(BODY, f"t={NOW},v1={forged}", secret="", now=NOW)


def test_signatures_are_compared_in_constant_time(monkeypatch):
    """`hmac.compare_digest` compares every `v1`, even after a match. [spec 5.6]"""
    compared: list[bytes] = []

    def watched(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return hmac.compare_digest(one, other)

    replaced = SimpleNamespace(new=hmac.new, digest=hmac.digest, compare_digest=watched)
    monkeypatch.setattr(signature, "hmac", replaced)
    header = f"{sign(BODY, [OLD, NEW], timestamp=NOW)},v1=0,v1="
    assert accepts(BODY, header)
    assert compared == [part.removeprefix("v1=").encode() for part in header.split(",")[1:]]


def stripe_accepts(body: bytes, header: str, secret: str) -> bool:
    try:
        return WebhookSignature.verify_header(body, header, secret, tolerance=300)
    except SignatureVerificationError:
        return False


def test_stripes_package_verifies_the_signature():
    """[spec 5.6, D-40, D-42 keys]"""
    now = int(time.time())
    header = sign(BODY, [NEW, OLD], timestamp=now)
    assert [stripe_accepts(BODY, header, secret) for secret in (NEW, OLD, OTHER)] == [True, True, False]
    assert not stripe_accepts(BODY + b" ", header, NEW)
    assert not stripe_accepts(BODY, sign(BODY, [NEW], timestamp=now - 310), NEW)
    signed_there = WebhookSignature.generate_signature_header(BODY.decode(), NEW, timestamp=now)
    assert accepts(BODY, signed_there, now=now)


def standard_accepts(body: bytes, secrets: list[str], secret: str, *, message_id: str, at: int) -> bool:
    """Sign a body as message `msg_1`. Return whether Standard Webhooks accepts it as message `message_id`."""
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": standard_signature("msg_1", body, secrets=secrets, timestamp=at),
    }
    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError:
        return False
    return True


def test_standard_webhooks_verifies_the_signature():
    """The Standard Webhooks library uses the base64-decoded secret as the key. [D-42 keys, D-40]"""
    now, both = int(time.time()), [NEW, OLD]
    for secret, accepted in ((NEW, True), (OLD, True), (OTHER, False)):
        assert standard_accepts(BODY, both, secret, message_id="msg_1", at=now) is accepted
    assert not standard_accepts(BODY, both, NEW, message_id="msg_2", at=now)
    assert not standard_accepts(BODY, both, NEW, message_id="msg_1", at=now - 310)
    assert not standard_accepts(BODY, both, NEW, message_id="msg_1", at=now + 310)
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(now),
        "webhook-signature": standard_signature("msg_1", BODY, secrets=both, timestamp=now),
    }
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(BODY.replace(b"paid", b"held"), headers)


@pytest.mark.parametrize("secret", ["whsec_!", "whsec_abc", "whsec_é", "whsec_", ""])
def test_a_secret_that_is_not_base64_is_refused(secret):
    """The key of a Standard Webhooks signature is the base64-decoded secret. [D-42 keys]"""
    with pytest.raises(SignatureError, match="base64"):
        standard_signature("msg_1", BODY, secrets=[secret], timestamp=NOW)


ALONE = """
import sys
sys.path.insert(0, sys.argv[1])
import fatura.signature
header = fatura.signature.sign(b"x", ["whsec_AAAA"], timestamp=1)
fatura.signature.verify(b"x", header, secret="whsec_AAAA", now=1)
foreign = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"__main__"}
print(sorted(foreign), sorted(name for name in sys.modules if name.startswith("fatura.")))
"""


def test_the_module_imports_only_the_standard_library():
    """Merchants may copy the module, so it must not need other packages. [D-40 receiver]"""
    source = Path(fatura.__file__).parents[1]
    printed = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ALONE, str(source)],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (printed.stdout, printed.stderr) == ("['fatura'] ['fatura.signature']\n", "")
