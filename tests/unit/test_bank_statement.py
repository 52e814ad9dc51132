"""Bank statements are read from OFX and CSV files (D-257)."""

import contextlib
import time
from datetime import UTC, date, datetime

import pytest

from fatura.domain.bank_statement import (
    MAX_CREDITS,
    MAX_TEXT,
    MAX_TRANSACTIONS,
    Credit,
    StatementError,
    StatementFormat,
    read,
)

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
END_TO_END = "E18236120202611281530s0123456789"
SGML = """OFXHEADER:100
<OFX><BANKMSGSRSV1><STMTTRNRS><STMTRS><CURDEF>BRL
<BANKTRANLIST>
<STMTTRN>
<TRNTYPE>CREDIT
<DTPOSTED>20261128153000[-3:BRT]
<TRNAMT>199.80
<FITID>N1
<MEMO>PIX RECEBIDO abcdefghijklmnopqrstuvwxy ANA SOUZA 529.982.247-25
<STMTTRN>
<TRNTYPE>DEBIT
<DTPOSTED>20261128
<TRNAMT>-12,50
<FITID>N2
<MEMO>TARIFA
</BANKTRANLIST></STMTRS></STMTTRNRS></BANKMSGSRSV1></OFX>
"""


def _csv(*rows: str, header: str = "date,amount,id,description") -> str:
    return "\n".join((header, *rows))


def _one(text: str, format_: StatementFormat = StatementFormat.CSV) -> Credit:
    [credit] = read(text, format_, now=NOW).credits
    return credit


def test_an_ofx_file_in_sgml_is_read() -> None:
    """[D-257]"""
    statement = read(SGML, StatementFormat.OFX, now=NOW)

    [credit] = statement.credits
    assert (statement.debits, credit.number, credit.bank_id, credit.amount_cents) == (1, 1, "N1", 19980)
    assert credit.occurred_at == datetime(2026, 11, 28, 18, 30, tzinfo=UTC)
    assert credit.documents == ("52998224725",)
    assert credit.words == {"ABCDEFGHIJKLMNOPQRSTUVWXY"}


def test_an_ofx_file_in_xml_is_read() -> None:
    """[D-257]"""
    text = (
        "<?xml version='1.0'?><OFX><STMTTRN><DTPOSTED>20261128</DTPOSTED><TRNAMT>+99,9</TRNAMT><FITID>7</FITID>"
        f"<NAME>PIX {END_TO_END}</NAME></STMTTRN></OFX>"
    )
    credit = _one(text, StatementFormat.OFX)

    assert (credit.amount_cents, credit.bank_id, credit.occurred_on) == (9990, END_TO_END, date(2026, 11, 28))


def test_a_csv_file_with_semicolons_and_portuguese_names_is_read() -> None:
    """[D-257]"""
    text = "\ufeffData;Valor;Identificador;Descrição\r\n28/11/2026;1.234,56;a1;Pix de 11.222.333/0001-81\r\n"
    credit = _one(text)

    assert (credit.amount_cents, credit.bank_id, credit.occurred_on) == (123456, "a1", date(2026, 11, 28))
    assert credit.documents == ("11222333000181",)


@pytest.mark.parametrize(
    ("amount", "cents"),
    [
        ("99.90", 9990),
        ("99,9", 9990),
        ("100", 10000),
        ("R$ 1.234,56", 123456),
        ("R$\u00a01.234,56", 123456),
        ('"1,234.56"', 123456),
        ("0.01", 1),
    ],
)
def test_amounts_are_exact(amount: str, cents: int) -> None:
    """[D-257]"""
    header = (
        "date;amount;id;description" if '"' not in amount and "," in amount else "date,amount,id,description"
    )
    separator = ";" if ";" in header else ","
    row = separator.join(("2026-11-28", amount, "1", "x"))

    assert _one(_csv(row, header=header)).amount_cents == cents


@pytest.mark.parametrize(
    "amount", ["", "x", "1.2.3", "1e3", "99.999", "1.234.5", "--1", "٩٩", "NaN", f"{10**13}", "1_000"]
)
def test_an_unclear_amount_is_refused(amount: str) -> None:
    """[D-257]"""
    with pytest.raises(StatementError, match="transaction 1 has an amount"):
        read(_csv(f"2026-11-28,{amount},1,x"), StatementFormat.CSV, now=NOW)


@pytest.mark.parametrize(
    "day", ["", "2026-13-01", "31/02/2026", "11/28/2026", "2026-11-30", "1999-12-31", "20261128120000[+99:X]"]
)
def test_an_unclear_or_future_date_is_refused(day: str) -> None:
    """[D-257]"""
    with pytest.raises(StatementError, match="transaction 1"):
        read(_csv(f"{day},1.00,1,x"), StatementFormat.CSV, now=NOW)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "date,amount\n",
        "a;b;c\n1;2;3",
        '"',
        "date,amount,id\n2026-11-28,1",
        "date,amount,id\n2026-11-28,1,",
    ],
)
def test_a_file_without_the_columns_or_an_id_is_refused(text: str) -> None:
    """[D-257]"""
    with pytest.raises(StatementError):
        read(text, StatementFormat.CSV, now=NOW)


@pytest.mark.parametrize("text", ["", "OFX", "<STMTTRN>", "<OFX><CURDEF>USD</OFX>"])
def test_a_file_that_is_not_ofx_in_reais_is_refused(text: str) -> None:
    """[D-257]"""
    with pytest.raises(StatementError):
        read(text, StatementFormat.OFX, now=NOW)


def test_the_number_of_credits_is_limited() -> None:
    """[D-257]"""
    rows = [f"2026-11-28,1.00,{number},x" for number in range(MAX_CREDITS + 1)]
    assert len(read(_csv(*rows[1:]), StatementFormat.CSV, now=NOW).credits) == MAX_CREDITS
    with pytest.raises(StatementError, match="more than"):
        read(_csv(*rows), StatementFormat.CSV, now=NOW)


def test_masked_and_invalid_documents_are_ignored() -> None:
    """[D-257]"""
    credit = _one(_csv("2026-11-28,1.00,1,***.982.247-** 529.982.247-24 1529982247251 52998224725"))

    assert credit.documents == ("52998224725",)


def _ofx(*tags: str) -> str:
    return f"<OFX><CURDEF>BRL<STMTTRN><DTPOSTED>20261128<FITID>1{''.join(tags)}</STMTTRN></OFX>"


def test_all_texts_of_a_transaction_are_read() -> None:
    """A transaction may have a second MEMO, text in CDATA, and spaces inside tags. [D-257]"""
    one, two, three = "1" * 25, "2" * 25, "3" * 25
    text = _ofx(f"<TRNAMT>1.00<MEMO >{one}<NAME>{two}<MEMO><![CDATA[{three} <B>]]></MEMO>").replace(
        "<STMTTRN>", "<STMTTRN >"
    )

    assert _one(text, StatementFormat.OFX).words == {one, two, three}


@pytest.mark.parametrize(
    "text",
    [
        _ofx("<TRNAMT>0.01<MEMO>Pix <TRNAMT>99.90"),
        _ofx("<TRNAMT>0.01<MEMO>Pix <FITID>2"),
        _ofx("<TRNAMT>0.01<MEMO>Pix <DTPOSTED>20261127"),
        _ofx("<TRNTYPE>DEBIT<TRNAMT>99.90"),
        _ofx("<TRNAMT>0.01\n<MEMO>Pix <STMTTRN><DTPOSTED>20261128<TRNAMT>999<FITID>7<MEMO>X"),
        _ofx(
            "<TRNAMT>0.01\n<MEMO>Pix </MEMO></STMTTRN><STMTTRN><DTPOSTED>20261128<TRNAMT>999<FITID>7<MEMO>X"
        ),
        _ofx("<TRNAMT>99.90<CURRENCY><CURSYM>USD</CURRENCY>"),
        _ofx("<TRNAMT>99.90") + "<STMTRS><CURDEF>USD</STMTRS>",
        _ofx("<TRNAMT>99.90").replace("<CURDEF>BRL", "<CURDEF >USD"),
    ],
)
def test_an_ofx_file_that_may_have_two_meanings_is_refused(text: str) -> None:
    """Examples: tags in a payer's message, a debit without a minus, and a currency other than BRL. [D-257]"""
    with pytest.raises(StatementError):
        read(text, StatementFormat.OFX, now=NOW)


@pytest.mark.parametrize("kind", ["CREDIT", "ATM", "POS"])
def test_a_type_that_may_be_a_credit_is_read(kind: str) -> None:
    """A deposit at a cash machine has the type ATM. [D-257]"""
    assert _one(_ofx(f"<TRNTYPE>{kind}<TRNAMT>50.00"), StatementFormat.OFX).amount_cents == 5000


def test_transactions_on_one_line_are_read() -> None:
    """A program may write XML without line breaks. [D-257]"""
    one = "<STMTTRN><DTPOSTED>20261128</DTPOSTED><TRNAMT>1</TRNAMT><FITID>7</FITID><MEMO>x</MEMO></STMTTRN>"

    assert len(read(f"<OFX>{one}{one}</OFX>", StatementFormat.OFX, now=NOW).credits) == 2


def test_a_debit_in_another_currency_is_counted() -> None:
    """A purchase abroad does not make the file unreadable. [D-257]"""
    text = _ofx("<TRNTYPE>DEBIT<TRNAMT>-51.00<ORIGCURRENCY><CURRATE>5.1<CURSYM>USD</ORIGCURRENCY>")

    assert read(text, StatementFormat.OFX, now=NOW).debits == 1


@pytest.mark.parametrize("message", ["Payment", "cash", "d", "Pos", "debito"])
def test_a_payers_message_does_not_refuse_the_file(message: str) -> None:
    """[D-257]"""
    text = _csv(f"2026-11-28,0.01,1,{message}", "2026-11-28,0.01,2,Pix")

    assert len(read(text, StatementFormat.CSV, now=NOW).credits) == 2


def test_an_end_to_end_id_is_the_same_in_any_case() -> None:
    """The bank's id and the text have the same end-to-end id. [D-257]"""
    credit = _one(_csv(f"2026-11-28,1,{END_TO_END},Pix {END_TO_END.lower()}"))

    assert (credit.bank_id, credit.same_id) == (END_TO_END, END_TO_END.upper())


def test_an_empty_currency_means_reais() -> None:
    """[D-257]"""
    assert (
        _one(_ofx("<TRNAMT>1").replace("<CURDEF>BRL", "<CURDEF></CURDEF>"), StatementFormat.OFX).amount_cents
        == 100
    )


@pytest.mark.parametrize(
    "text",
    [
        _csv('2026-11-28,5.00,1,"Pix Bob', "2026-11-28,99.90,2,Pix Ana"),
        _csv('2026-11-28,5.00,1,"Pix Bob', '2026-11-28,99.90,2,Pix Ana"'),
        _csv("2026-11-28,99.90,1,D"),
        "date;valor;valor (r$);id\n2026-11-28;1,00;2,00;1",
    ],
)
def test_a_csv_file_that_may_have_two_meanings_is_refused(text: str) -> None:
    """Examples: a quote that may join rows, a cell that may mark a debit, and two columns for the amount. [D-257]"""
    with pytest.raises(StatementError):
        read(text, StatementFormat.CSV, now=NOW)


@pytest.mark.parametrize("amount", ["99 90", "1R$2", "R$-", "-R$ -1,00", "1,00-", "(1,00)"])
def test_an_amount_with_something_inside_is_refused(amount: str) -> None:
    """[D-257]"""
    with pytest.raises(StatementError, match="transaction 1 has an amount"):
        read(_csv(f"2026-11-28;{amount};1;x", header="date;amount;id;x"), StatementFormat.CSV, now=NOW)


def test_a_later_time_of_today_counts_as_now() -> None:
    """Some banks give all transactions of a day the same time, such as 23:59. [D-257]"""
    text = _ofx("<TRNAMT>1.00").replace("20261128", "20261129235900[-3:BRT]")

    assert _one(text, StatementFormat.OFX).occurred_at == NOW


@pytest.mark.parametrize(
    "text",
    [
        "date,amount,id\n" + "2026-11-28,0,\n" * (MAX_TRANSACTIONS + 1),
        _csv(f"2026-11-28,1.00,1,{'x' * (MAX_TEXT + 1)}"),
        f"date,amount,id{',' * 98}",
    ],
)
def test_what_would_take_long_is_refused(text: str) -> None:
    """[D-257, D-105]"""
    with pytest.raises(StatementError, match="more than"):
        read(text, StatementFormat.CSV, now=NOW)


@pytest.mark.parametrize(
    ("text", "format_"),
    [
        ("<OFX>" + "<![CDATA[" * 20_000, StatementFormat.OFX),
        ("<OFX>" + "<STMTTRN " * 20_000, StatementFormat.OFX),
        ("<OFX>" + "<MEMO>" * 30_000, StatementFormat.OFX),
        ("date,amount,id" + "," * 180_000, StatementFormat.CSV),
        ("\ufdfa" * 87_000 + "\n", StatementFormat.CSV),
    ],
    ids=["CDATA", "transactions", "texts", "columns", "ligatures"],
)
def test_an_odd_file_is_refused_quickly(text: str, format_: StatementFormat) -> None:
    """The limit is far above what a slow machine needs, and far below what a quadratic search would need. [D-257]"""
    start = time.process_time()
    with contextlib.suppress(StatementError):
        read(text, format_, now=NOW)

    assert time.process_time() - start < 1


def test_a_minus_that_is_no_hyphen_is_a_minus() -> None:
    """[D-257]"""
    text = "data;valor;identificador\n28/11/2026;\u2212R$\u00a01.234,56;1\n"

    assert read(text, StatementFormat.CSV, now=NOW).debits == 1


def test_a_credit_with_many_documents_names_no_payer() -> None:
    """[D-257]"""
    documents = "52998224725 11144477735 11222333000181 12ABC34501DE35"

    assert _one(_csv(f"2026-11-28,1.00,1,{documents}")).documents == ()
