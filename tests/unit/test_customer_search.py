"""The normalized search keys by which customers are found (D-130)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.domain.customer_search import MAX_NAME_KEY_CHARS, document_key, email_key, name_key
from tests.support.world import rows

NAMES = rows("""
    name           | key
    Ana Souza      | ana souza
    JOÃO D'ÁVILA   | joao d'avila
    Joa\u0303o     | joao
    Straße         | strasse
    İbrahim        | ibrahim
    ﬁrma Ⅷ         | firma viii
    ΣΊΣΥΦΟΣ        | σισυφοσ
    李 小龍          | 李 小龍
""")


@pytest.mark.parametrize(("name", "key"), NAMES)
def test_a_name_key_ignores_case_and_accents(name, key):
    """[D-130]"""
    assert name_key(name) == key
    assert name_key(name.upper()) == name_key(name.lower()) == key


@given(st.text(min_size=1, max_size=40), st.integers(min_value=1))
def test_the_start_of_a_name_finds_it(name, length):
    """[D-130]"""
    start = name[:length]
    if name_key(start) != start:
        assert name_key(name).startswith(name_key(start))


def test_a_name_key_is_never_empty_and_fits_an_index():
    """An empty key would match every name. [D-130]"""
    assert name_key("\u0301") == "\u0301"
    assert len(name_key("\ufdfa" * 200)) == MAX_NAME_KEY_CHARS


def test_an_email_key_ignores_case():
    """[D-130]"""
    assert email_key("Ana.Souza@Example.COM") == "ana.souza@example.com"
    assert email_key("straße@example.com") != email_key("strasse@example.com")


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ("529.982.247-25", "52998224725"),
        ("52998224725", "52998224725"),
        ("12.ABC.345/01DE-35", "12abc34501de35"),
        (" 111 444 777 35 ", "11144477735"),
        ("\uff15\uff12\uff19", "529"),
        ("--", "--"),
    ],
)
def test_a_document_key_has_letters_and_digits_only(document, key):
    """[D-130]"""
    assert document_key(document) == key
