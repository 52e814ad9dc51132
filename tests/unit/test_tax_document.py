"""Which tax documents are accepted."""

import pytest

from fatura.domain.tax_document import refusal

VALID = (
    "52998224725",
    "529.982.247-25",
    "529 982 247 25",
    "11222333000181",
    "11.222.333/0001-81",
    "12ABC34501DE35",  # the example of the Receita Federal for the CNPJ with letters
    "12.ABC.345/01DE-35",
    "12.abc.345/01de-35",
)
FOREIGN = ("AR 20-12345678-9", "NL 123456789B01", "ABCDEFGHIJKLMN", "1" * 18, "é" * 14)


@pytest.mark.parametrize("document", [*VALID, *FOREIGN])
def test_a_valid_document_is_accepted(document: str) -> None:
    """[D-251]"""
    assert refusal(document) is None


@pytest.mark.parametrize("document", VALID)
def test_a_wrong_check_digit_is_refused(document: str) -> None:
    """[D-251]"""
    for place in (-1, -2):
        wrong = list(document)
        wrong[place] = str((int(wrong[place]) + 1) % 10) if wrong[place].isdigit() else wrong[place]
        if "".join(wrong) != document:
            assert "check digits are wrong" in (refusal("".join(wrong)) or "")


@pytest.mark.parametrize(
    "document",
    [
        "12345678901",
        "00000000000",
        "111.111.111-11",
        "00000000000000",
        "20-12345678-9",  # a tax id of Argentina, without the country code
        "12.ABC.345/01DE-36",
        "21.ABC.345/01DE-35",
    ],
)
def test_a_document_that_looks_like_a_brazilian_one_must_be_valid(document: str) -> None:
    """[D-251]"""
    assert "AR 20-12345678-9" in (refusal(document) or "")
