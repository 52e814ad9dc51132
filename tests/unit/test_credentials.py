"""Creating and parsing API keys."""

import hashlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.domain.credentials import Mode, format_key, parse_key, visible_prefix
from fatura.domain.tags import Tagger

ACCOUNT = UUID("019a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f50")
TAGGER = Tagger(bytes(range(32)))
KEY = format_key(ACCOUNT, Mode.SANDBOX, secret=bytes(range(24)), tagger=TAGGER)


@given(st.uuids(), st.sampled_from(Mode), st.binary(min_size=24, max_size=24))
def test_a_key_contains_its_account(account_id, mode, secret):
    """[D-41, spec 5.2]"""
    key = format_key(account_id, mode, secret=secret, tagger=TAGGER)
    parsed = parse_key(key, tagger=TAGGER)
    assert parsed is not None
    assert (parsed.account_id, parsed.mode) == (account_id, mode)
    assert parsed.secret_hash == hashlib.sha256(key.encode()).digest()


@pytest.mark.parametrize(("mode", "start"), [(Mode.LIVE, "rk_live_"), (Mode.SANDBOX, "rk_test_")])
def test_a_key_has_its_four_parts(mode, start):
    """A key is `rk_`, the mode, the account id in 22 characters, and the secret in 43 characters. [spec 5.1, D-41]"""
    key = format_key(ACCOUNT, mode, secret=bytes(24), tagger=TAGGER)
    assert key.startswith(start)
    account, secret = key.removeprefix(start).split("_")
    assert (len(account), len(secret)) == (22, 43)
    assert key.isascii()


@given(st.lists(st.binary(min_size=24, max_size=24), min_size=2, max_size=2, unique=True))
def test_different_secrets_make_different_keys(secrets):
    """[D-41]"""
    one, other = (format_key(ACCOUNT, Mode.LIVE, secret=secret, tagger=TAGGER) for secret in secrets)
    assert one != other
    assert parse_key(one, tagger=TAGGER) != parse_key(other, tagger=TAGGER)


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
    assert parse_key(text, tagger=TAGGER) is None


def test_the_largest_account_id_is_accepted():
    largest = UUID(int=2**128 - 1)
    key = format_key(largest, Mode.LIVE, secret=b"\xff" * 24, tagger=TAGGER)
    assert key[8:30] == TOO_LARGE[:-1] + "7"
    parsed = parse_key(key, tagger=TAGGER)
    assert parsed is not None
    assert parsed.account_id == largest


@pytest.mark.parametrize("position", [30, 35, 50, 63, 73])
def test_a_key_with_another_character_is_refused_without_a_query(position):
    """[D-240]"""
    other = "A" if KEY[position] != "A" else "B"
    assert parse_key(KEY[:position] + other + KEY[position + 1 :], tagger=TAGGER) is None


def test_a_key_of_another_installation_mode_or_account_is_refused_without_a_query():
    """[D-240]"""
    assert parse_key(KEY, tagger=Tagger(bytes(32))) is None
    assert parse_key(KEY.replace("_test_", "_live_"), tagger=TAGGER) is None
    other = format_key(UUID(int=7), Mode.SANDBOX, secret=bytes(range(24)), tagger=TAGGER)
    assert parse_key(other[:31] + KEY[31:], tagger=TAGGER) is None


@given(st.text(max_size=90))
def test_any_text_is_a_key_or_refused(text):
    """[D-41]"""
    parsed = parse_key(text, tagger=TAGGER)
    assert parsed is None or text.startswith("rk_")
