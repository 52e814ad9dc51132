"""Read a bank statement from a file, and show what an import does with its credits (D-257)."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column

from fatura.cli.client import ApiError
from fatura.cli.output import add_row, counted, echo, table

MAX_BYTES = 1_000_000
"""The API takes fewer characters than this."""
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

    The file may be in UTF-8 or, as many banks write it, in Windows-1252. Raises ApiError.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ApiError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise ApiError(f"{path} is larger than {MAX_BYTES:,} bytes; export the statement of fewer days")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("windows-1252", errors="replace")
    return {"format": "ofx" if _OFX_START.match(text) else "csv", "statement": text}


def show(result: Mapping[str, Any]) -> None:
    """Print the credits, and what the person must do."""
    rows = table("no.", "date", Column("amount", justify="right"), "result", Column("bank id"), "invoice")
    for each in result["data"]:
        cents = each["amountCents"]
        add_row(
            rows,
            each["number"],
            each["occurredOn"],
            f"{cents // 100}.{cents % 100:02}",
            each["result"],
            each["bankId"],
            each["invoiceId"] or "",
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
