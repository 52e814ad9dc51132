"""Creating and parsing API keys."""

import hashlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.domain.credentials import Mode, format_key, parse_key, visible_prefix

ACCOUNT = UUID("019a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f50")
KEY = format_key(ACCOUNT, Mode.SANDBOX, secret=bytes(range(32)))


@given(st.uuids(), st.sampled_from(Mode), st.binary(min_size=32, max_size=32))
def test_a_key_contains_its_account(account_id, mode, secret):
    """[D-41, spec 5.2]"""
    key = format_key(account_id, mode, secret=secret)
    parsed = parse_key(key)
    assert parsed is not None
    assert (parsed.account_id, parsed.mode) == (account_id, mode)
    assert parsed.secret_hash == hashlib.sha256(key.encode()).digest()


@pytest.mark.parametrize(("mode", "start"), [(Mode.LIVE, "rk_live_"), (Mode.SANDBOX, "rk_test_")])
def test_a_key_has_its_four_parts(mode, start):
    """A key is `rk_`, the mode, the account id in 22 characters, and the secret in 43 characters. [spec 5.1, D-41]"""
    key = format_key(ACCOUNT, mode, secret=bytes(32))
    assert key.startswith(start)
    account, secret = key.removeprefix(start).split("_")
    assert (len(account), len(secret)) == (22, 43)
    assert key.isascii()


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=2, max_size=2, unique=True))
def test_different_secrets_make_different_keys(secrets):
    """[D-41]"""
    one, other = (format_key(ACCOUNT, Mode.LIVE, secret=secret) for secret in secrets)
    assert one != other
    assert parse_key(one) != parse_key(other)


def test_the_prefix_shows_four_characters_of_the_secret():
    """[D-41]"""
    shown = visible_prefix(KEY)
    assert KEY.startswith(shown)
    assert len(KEY) - len(shown) == 43 - 4


TOO_LARGE = "7n42DGM5Tflk9n8mt7Fhc8"
"""2 ** 128 in base 62, one more than the greatest account id."""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rk_",
        "rk",
        KEY[:-1],
        KEY + "0",
        KEY + "_",
        "_" + KEY,
        " " + KEY,
        KEY + "\n",
        KEY.replace("rk_", "sk_"),
        KEY.replace("rk_", "RK_"),
        KEY.replace("_test_", "_prod_"),
        KEY.replace("_test_", "__"),
        KEY[:8] + TOO_LARGE + KEY[30:],
        KEY[:8] + "z" * 22 + KEY[30:],
        KEY[:-1] + "-",
        KEY[:-1] + "ä",
        KEY[:-1] + "٣",  # a non-ASCII digit
        KEY[:-1] + "\0",
    ],
)
def test_a_malformed_key_is_refused_without_a_query(text):
    """[D-41, spec 5.3]"""
    assert parse_key(text) is None


def test_the_largest_account_id_is_accepted_and_the_next_refused():
    parsed = parse_key(KEY[:8] + TOO_LARGE[:-1] + "7" + KEY[30:])
    assert parsed is not None
    assert parsed.account_id == UUID(int=2**128 - 1)


@given(st.text(max_size=90))
def test_any_text_is_a_key_or_refused(text):
    """[D-41]"""
    parsed = parse_key(text)
    assert parsed is None or text.startswith("rk_")
