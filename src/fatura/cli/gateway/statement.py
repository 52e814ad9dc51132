"""Read a bank statement from a file, and show what an import does with its credits (D-257)."""

import codecs
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column

from fatura.cli.client import ApiError
from fatura.cli.local_file import read_file
from fatura.cli.output import add_row, counted, echo, table

MAX_CHARACTERS = 200_000
"""The limit of the API."""
MAX_BYTES = 4 * MAX_CHARACTERS
_OFX_START = re.compile(r"\ufeff?\s*(?:OFXHEADER|<\?xml|<\?OFX|<OFX)", re.IGNORECASE)
"""How an OFX file begins. A payer's message in a CSV file may contain these words too."""
WHAT_TO_DO = {
    "similar": "may be recorded already; if it is another payment, import it with --confirm BANK_ID",
    "ambiguous": "may pay several invoices; record it by hand",
    "unmatched": "pays no invoice of this connection",
    "id_reused": "has the bank id of another payment; if the invoice lacks it, record it by hand",
}


def read(path: Path) -> dict[str, str]:
    """Return the body of the request: the format and the text of the statement.

    The file may be in UTF-8, in UTF-16 with a mark of the byte order or, as many banks write it, in Windows-1252.
    Raises ApiError.
    """
    content = read_file(path, max_bytes=MAX_BYTES)
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        if is_utf16:
            raise ApiError(f"{path} is not in UTF-16, although it begins so") from None
        text = content.decode("windows-1252", errors="replace")
    if len(text) > MAX_CHARACTERS:
        raise ApiError(
            f"{path} has more than {MAX_CHARACTERS:,} characters; export the statement of fewer days"
        )
    return {"format": "ofx" if _OFX_START.match(text) else "csv", "statement": text}


def show(result: Mapping[str, Any]) -> None:
    """Print the credits, and what the person must do. The ids of a credit stand below each other, to fit 80 columns."""
    rows = table("no.", "date", Column("amount", justify="right"), "result", "bank id and invoice")
    rows.box = None
    for each in result["data"]:
        cents = each["amountCents"]
        add_row(
            rows,
            each["number"],
            each["occurredOn"],
            f"{cents // 100}.{cents % 100:02}",
            each["result"],
            "\n".join(filter(None, (each["bankId"], each["invoiceId"]))),
        )
    if result["data"]:
        Console().print(rows)
    echo(
        f"{counted(result['new'], 'new payment')}, {counted(result['duplicates'], 'duplicate')}, "
        f"{counted(result['debits'], 'debit')}, {result['needsYou']} need you"
    )
    for name, advice in WHAT_TO_DO.items():
        if any(each["result"] == name for each in result["data"]):
            echo(f"{name}: {advice}")


def show_import(result: Mapping[str, Any], *, shown: Mapping[str, Any]) -> None:
    """Print the result of an import. Print its credits again if it decided otherwise than the dry run `shown`."""
    if result["data"] != shown["data"]:
        echo("The import decided otherwise than the dry run:")
        show(result)
    echo(f"Imported {counted(result['new'], 'payment')}.")
