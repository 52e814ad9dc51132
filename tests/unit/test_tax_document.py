"""Which tax documents are accepted."""

import pytest

from fatura.domain.tax_document import refusal, without_documents

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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"cpfCnpj":"52998224725"}', '{"cpfCnpj":"***"}'),
        ("/customers?cpfCnpj=529.982.247-25&limit=1", "/customers?cpfCnpj=***&limit=1"),
        ('{"cnpj":"11.222.333\\/0001-81"}', '{"cnpj":"***"}'),
        ("cnpj=11.222.333%2F0001-81", "cnpj=***"),
        ('"11222333000181"', '"***"'),
        ('"12ABC34501DE35"', '"***"'),
        ('"52998224724"', '"52998224724"'),
        ('"152998224725"', '"152998224725"'),
        ('"pay_080225913252"', '"pay_080225913252"'),
    ],
)
def test_documents_in_a_text_are_hidden(text: str, shown: str) -> None:
    """[D-267, spec 2.4 document]"""
    assert without_documents(text) == shown
