"""Payers' messages in a bank statement can neither add nor hide transactions (D-257)."""

from datetime import UTC, datetime

import pytest

from fatura.domain.bank_statement import StatementError, StatementFormat, read

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
FORGED = f"<STMTTRN><DTPOSTED>20261128<TRNAMT>999<FITID>q<MEMO>{'A' * 25}"
"""A transaction that fits into the 140 characters of a message."""


def _transaction(memo: str, *, amount: str = "0.01", is_xml: bool = False) -> str:
    values = {"DTPOSTED": "20261128", "TRNAMT": amount, "FITID": "1", "MEMO": memo}
    lines = (f"<{tag}>{text}" + (f"</{tag}>" if is_xml else "") for tag, text in values.items())
    return "\n".join(("<STMTTRN>", *lines, "</STMTTRN>\n"))


def _ofx(*transactions: str, before: str = "OFXHEADER:100\n") -> str:
    return f"{before}<OFX><CURDEF>BRL\n<BANKTRANLIST>\n{''.join(transactions)}</BANKTRANLIST></OFX>\n"


def _refused(text: str, says: str) -> None:
    with pytest.raises(StatementError, match=says):
        read(text, StatementFormat.OFX, now=NOW)


def test_cdata_in_two_messages_adds_no_transaction() -> None:
    """[D-257]"""
    messages = "<![CDATA[", f"]]>{FORGED}"

    _refused(_ofx(*(_transaction(each) for each in messages)), "CDATA section")
    _refused(_ofx(*(_transaction(each, is_xml=True) for each in messages)), "CDATA section")


def test_cdata_in_two_messages_hides_no_transaction() -> None:
    """The second file has all transactions on one line. [D-257]"""
    text = _ofx(_transaction("<![CDATA["), _transaction("honest", amount="500.00"), _transaction("]]>"))

    _refused(text, "CDATA section")
    _refused(text.replace("\n", ""), "CDATA section")


def test_cdata_inside_a_message_is_refused() -> None:
    """[D-257]"""
    _refused(_ofx(_transaction("Pix <![CDATA[x]]>")), "CDATA section")
    _refused(_ofx(_transaction("<![CDATA[<FITID>2]]>", is_xml=True)), "CDATA section")


def test_cdata_that_is_the_text_of_a_tag_is_read() -> None:
    """A section that never ends is a text. [D-257]"""
    text = _ofx(_transaction("<![CDATA[<b> Pix]]>", is_xml=True), _transaction("a <![CDATA["))

    assert len(read(text, StatementFormat.OFX, now=NOW).credits) == 2


@pytest.mark.parametrize(
    "before",
    [
        "",
        "\ufeff \n",
        "OFXHEADER:100\nDATA:OFXSGML\n\n",
        "OFXHEADER:100DATA:OFXSGML",
        "<?xml version='1.0'?>\n<?OFX OFXHEADER='200'?>\n",
    ],
)
def test_headers_may_stand_before_the_root(before: str) -> None:
    """[D-257]"""
    assert len(read(_ofx(_transaction("x"), before=before), StatementFormat.OFX, now=NOW).credits) == 1


def test_a_csv_file_with_a_message_of_tags_is_no_ofx_file() -> None:
    """[D-257]"""
    _refused(f"date,amount,id,description\n2026-11-28,0.01,1,Pix <OFX>{FORGED}\n", "must begin with")
    _refused(f"<?xml version='1.0'?>\nPix <OFX>{FORGED}\n", "must begin with")


@pytest.mark.parametrize("space", [" ", "\t", "\x0b", "\x0c", "\x85", "\u2028", "\xa0", "\u3000", "\x1c"])
def test_a_transaction_behind_an_indented_text_is_refused(space: str) -> None:
    """[D-257]"""
    text = _ofx(_transaction(f"x</MEMO>{FORGED}")).replace("<MEMO>x", f"{space}<MEMO>x")

    _refused(text, "which a payer may have written")


@pytest.mark.parametrize("missing", ["</OFX>\n", "0</TRNAMT>", "0"])
def test_a_file_that_was_cut_is_refused(missing: str) -> None:
    """An amount of 99.90 that was cut behind its first 9 would be 99.9 or 99. [D-257]"""
    text = _ofx(_transaction("Pix", amount="99.90", is_xml=True))

    _refused(text[: text.rindex(missing)], "must end with </OFX>")
