"""The tokens of pay pages name one invoice each, and cannot be guessed or changed (ADR 0020)."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.domain.pay_links import PayLink, PayLinks
from fatura.ids import new_id

NOW = datetime(2026, 11, 29, tzinfo=UTC)
LINKS = PayLinks(bytes(range(32)))
ACCOUNT, INVOICE = UUID(int=1), UUID(int=2)
LINK = PayLink(ACCOUNT, INVOICE, 0)
TOKEN = LINKS.token(LINK)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@given(st.builds(PayLink, st.uuids(), st.uuids(), st.integers(0, 2**48 - 1)))
def test_a_token_names_its_invoice(link: PayLink):
    """[D-258]"""
    token = LINKS.token(link)
    assert LINKS.read(token) == link
    assert LINKS.token(link) == token
    assert len(token) == 72
    assert set(token) <= set(ALPHABET)


def test_tokens_of_one_invoice_share_no_part():
    """A token tells nothing about the token of another version, invoice or account. [D-258]"""
    others = [
        PayLink(ACCOUNT, INVOICE, 1),
        PayLink(ACCOUNT, new_id(NOW), 0),
        PayLink(new_id(NOW), INVOICE, 0),
        PayLink(INVOICE, ACCOUNT, 0),
    ]
    tokens = [TOKEN, *map(LINKS.token, others), PayLinks(bytes(32)).token(LINK)]
    assert len({each[place : place + 12] for each in tokens for place in (0, 20, 40, 60)}) == 4 * len(tokens)
    assert all(str(each.invoice_id).replace("-", "") not in TOKEN for each in others)


@pytest.mark.parametrize("place", range(72))
def test_a_changed_character_makes_a_token_invalid(place: int):
    """[D-258]"""
    other = ALPHABET[ALPHABET.index(TOKEN[place]) ^ 1]
    assert LINKS.read(TOKEN[:place] + other + TOKEN[place + 1 :]) is None


@pytest.mark.parametrize(
    "text",
    ["", "x", TOKEN[:-1], TOKEN + "A", TOKEN + "=", TOKEN[:-1] + "=", TOKEN[:-1] + "+", f" {TOKEN}", f"{TOKEN}\n",
     "é" * 72, "A" * 72, "٣" * 72, "A" * 100_000],
)  # fmt: skip
def test_other_texts_are_no_tokens(text: str):
    """[D-258]"""
    assert LINKS.read(text) is None


def test_a_token_of_another_installation_is_none():
    """[D-258]"""
    assert PayLinks(bytes(32)).read(TOKEN) is None


@given(st.text(ALPHABET, min_size=72, max_size=72))
def test_a_guessed_token_is_none(guessed: str):
    """[D-258]"""
    assert LINKS.read(guessed) is None
