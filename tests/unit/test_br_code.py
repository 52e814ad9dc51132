"""Pix codes have the format BR Code of the Central Bank (D-49)."""

import pytest

from fatura.gateways.br_code import br_code

PUBLISHED = (
    "00020126580014br.gov.bcb.pix0136123e4567-e12b-12d1-a456-426655440000"
    "5204000053039865802BR5913Fulano de Tal6008BRASILIA62070503***63041D3D"
)
"""The example of a static code in the Central Bank's manual of the BR Code."""


def test_the_published_example_is_reproduced():
    """[D-49]"""
    code = br_code(
        "key",
        "123e4567-e12b-12d1-a456-426655440000",
        amount_cents=None,
        merchant_name="Fulano de Tal",
        merchant_city="BRASILIA",
    )

    assert code == PUBLISHED


def test_a_code_names_its_amount_and_its_txid():
    """[D-49]"""
    code = br_code(
        "key", "pix@example.com", amount_cents=1005, merchant_name="A", merchant_city="B", txid="FATURA42"
    )

    assert "540510.05" in code
    assert "62120508FATURA42" in code


@pytest.mark.parametrize("name", ["São Paulo", 100 * "x"])
def test_a_value_that_does_not_fit_is_refused(name: str):
    """[D-49]"""
    with pytest.raises(ValueError, match="field 59"):
        br_code("url", "example.com", amount_cents=1, merchant_name=name, merchant_city="B")
