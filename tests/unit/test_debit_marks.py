"""A debit without a minus is recognized by its marks, so that it is never recorded as a payment (D-257)."""

from datetime import UTC, datetime

import pytest

from fatura.domain.bank_statement import StatementError, StatementFormat, read

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


def _csv(header: str, *rows: str) -> str:
    return "\n".join((f"date,amount,id,{header}", *(f"2026-11-28,99.90,{row}" for row in rows)))


def _credits(text: str, format_: StatementFormat = StatementFormat.CSV) -> int:
    return len(read(text, format_, now=NOW).credits)


@pytest.mark.parametrize(
    "cell",
    [
        "D",
        "d",
        "D-",
        "DEB",
        "debit",
        "débito",
        "DÉBITO",
        "De\u0301bito",
        "Débito em conta",
        "Saída",
        "Pix enviado",
        "Transferência enviada",
    ],
)
def test_a_cell_in_a_column_of_types_marks_a_debit(cell: str) -> None:
    """[D-257]"""
    with pytest.raises(StatementError, match="transaction 1 is marked as a debit"):
        _credits(_csv("tipo,descrição", f"1,{cell},Pix"))


@pytest.mark.parametrize("cell", ["C", "Crédito", "Entrada", "Pix recebido", "PIX", "", "x" * 500])
def test_other_cells_in_a_column_of_types_mark_no_debit(cell: str) -> None:
    """[D-257]"""
    assert _credits(_csv("tipo,descrição", f"1,{cell},Pix")) == 1


@pytest.mark.parametrize("name", ["operacao", "D/C", "natureza do lancamento", "sinal", "direction", ""])
def test_a_column_of_kinds_is_recognized_by_its_cells(name: str) -> None:
    """The column `tipo` shows only how the money moved. [D-257]"""
    with pytest.raises(StatementError, match="transaction 2 is marked as a debit"):
        _credits(_csv(f"tipo,{name},text", "1,PIX,Crédito,a", "2,PIX,débito,b", "3,PIX,,c"))


def test_payers_who_all_write_the_same_word_mark_no_debit() -> None:
    """The column `type` says for each transaction whether it is a credit. [D-257]"""
    assert _credits(_csv("type,message", "1,C,D", "2,C,d")) == 2


@pytest.mark.parametrize(
    "kind", ["DEBIT", "Debit", "Débito", "D", "DEB", "PIX ENVIADO", "PAYMENT", "DirectDebit", "FEE"]
)
def test_the_type_of_an_ofx_transaction_marks_a_debit(kind: str) -> None:
    """[D-257]"""
    text = f"<OFX><STMTTRN><TRNTYPE>{kind}<DTPOSTED>20261128<TRNAMT>99.90<FITID>1</STMTTRN></OFX>"
    with pytest.raises(StatementError, match="is marked as a debit"):
        _credits(text, StatementFormat.OFX)
