"""Read the credits of a bank statement from an OFX or CSV file (D-257)."""

import csv
import io
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from enum import StrEnum

from fatura.domain import tax_document
from fatura.domain.calendar import EARLIEST_INSTANT, ZONE, local_date, start_of_day
from fatura.domain.customer_search import document_key
from fatura.domain.money import MAX_CENTS
from fatura.domain.text import unsafe_character

MAX_CREDITS = 500
"""Maximum number of credits in a statement."""
MAX_TRANSACTIONS = 2000
"""Maximum number of credits and debits in a statement."""
MAX_TEXT = 1000
"""Maximum number of characters in the texts of a transaction."""
MAX_DOCUMENTS = 3
"""If a transaction names more tax documents, none of them is used."""
MAX_BANK_ID = 255

COLUMNS: Mapping[str, frozenset[str]] = {
    "date": frozenset({"date", "data", "data lancamento", "data do lancamento"}),
    "amount": frozenset({"amount", "valor", "valor (r$)"}),
    "id": frozenset({"id", "identificador"}),
}
"""The names of the columns of a CSV file that must exist, in lower case and without accents."""
_DEBITS = frozenset(
    {
        *("DEBIT", "PAYMENT", "CHECK", "FEE", "SRVCHG", "ATM", "POS", "CASH", "DIRECTDEBIT", "REPEATPMT"),
        *("D", "DEBITO", "DÉBITO"),
    }
)
"""Types of OFX transactions, and cells of CSV files, that mark a debit."""
_KEYS = ("DTPOSTED", "TRNAMT", "FITID", "TRNTYPE", "CURSYM")
_TEXTS = frozenset({"NAME", "EXTDNAME", "MEMO", "CHECKNUM", "REFNUM"})

_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_BLOCK = re.compile(r"<STMTTRN\s*>(.*?)(?=</?STMTTRN\s*>|</BANKTRANLIST\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<([A-Z0-9.]+)\s*>([^<\r\n]*)", re.IGNORECASE)
_CURRENCY = re.compile(r"<CURDEF\s*>([^<\r\n]*)", re.IGNORECASE)
_OFX_DATE = re.compile(
    r"(\d{8})(\d{6})?(?:\.\d{3})?(?:\[([+-]?\d{1,2})(?:\.\d+)?(?::[A-Za-z]*)?\])?", re.ASCII
)
_AMOUNT = re.compile(
    r"(?P<before>[+-]?) ?(?:R\$ ?)?(?P<sign>[+-]?)"
    r"(?:(?P<plain>\d{1,15})(?:[.,](?P<cents>\d{1,2}))?"
    r"|(?P<points>\d{1,3}(?:\.\d{3})+),(?P<cents1>\d{2})|(?P<commas>\d{1,3}(?:,\d{3})+)\.(?P<cents2>\d{2}))",
    re.ASCII,
)
_BR_DATE = re.compile(r"(\d{2})/(\d{2})/(\d{4})", re.ASCII)
_END_TO_END = re.compile(r"(?<![0-9A-Za-z])E\d{20}[0-9A-Za-z]{11}(?![0-9A-Za-z])", re.ASCII)
_WORD = re.compile(r"[0-9A-Za-z]+", re.ASCII)
_DOCUMENT = re.compile(
    r"(?<![0-9A-Za-z.\-/])(?:\d{3}\.?\d{3}\.?\d{3}-?\d{2}|[0-9A-Z]{2}\.?[0-9A-Z]{3}\.?[0-9A-Z]{3}/?[0-9A-Z]{4}-?\d{2})"
    r"(?![0-9A-Za-z/])",
    re.ASCII,
)


class StatementFormat(StrEnum):
    OFX = "ofx"
    CSV = "csv"


class StatementError(Exception):
    """The file is not a statement of this format. The text says where, and what is expected there."""


@dataclass(frozen=True, slots=True)
class Credit:
    """Money that arrived on the merchant's bank account.

    `number` is the position of the transaction in the file, from 1; debits count too. If the texts have exactly one
    end-to-end id of a Pix (`E...`), `bank_id` is that id. Otherwise, it is the id that the bank gave. `words` are all
    words of the texts in upper case. `documents` are the keys of the valid tax documents in the texts.
    """

    number: int
    bank_id: str
    amount_cents: int
    occurred_at: datetime
    words: frozenset[str]
    documents: tuple[str, ...]

    @property
    def has_end_to_end_id(self) -> bool:
        return _END_TO_END.fullmatch(self.bank_id) is not None

    @property
    def occurred_on(self) -> date:
        return local_date(self.occurred_at)


@dataclass(frozen=True, slots=True)
class Statement:
    """The credits of a statement, and the number of its debits, which Fatura ignores."""

    credits: Sequence[Credit]
    debits: int


@dataclass(frozen=True, slots=True)
class _Transaction:
    """A transaction as the file has it. `kind` is the OFX type; a CSV file has it in one of the `texts`, if at all."""

    number: int
    date: str
    amount: str
    bank_id: str
    texts: tuple[str, ...]
    kind: str = ""

    @property
    def is_marked_as_debit(self) -> bool:
        return not _DEBITS.isdisjoint({self.kind.upper(), *(text.strip().upper() for text in self.texts)})


def read(text: str, format_: StatementFormat, *, now: datetime) -> Statement:
    """Read a statement.

    Raises StatementError, also for a credit of a later day than `now`, and for a credit without an id of the bank.
    """
    found = _ofx(text) if format_ is StatementFormat.OFX else _csv(text)
    read_credits: list[Credit] = []
    debits = 0
    for each in found:
        if each.number > MAX_TRANSACTIONS:
            raise StatementError(f"has more than {MAX_TRANSACTIONS} transactions; import shorter periods")
        amount_cents = _cents(each)
        if amount_cents <= 0:
            debits += 1
            continue
        if each.is_marked_as_debit:
            raise _wrong(each, "is marked as a debit, but its amount has no minus")
        if len(read_credits) == MAX_CREDITS:
            raise StatementError(f"has more than {MAX_CREDITS} credits; import shorter periods")
        read_credits.append(_credit(each, amount_cents, now=now))
    return Statement(read_credits, debits)


def _credit(found: _Transaction, amount_cents: int, *, now: datetime) -> Credit:
    text = "\n".join(found.texts)
    if len(text) > MAX_TEXT:
        raise _wrong(found, f"has texts of more than {MAX_TEXT} characters")
    end_to_end = set(_END_TO_END.findall(f"{found.bank_id}\n{text}"))
    bank_id = end_to_end.pop() if len(end_to_end) == 1 else found.bank_id
    if not 0 < len(bank_id) <= MAX_BANK_ID or not bank_id.isprintable() or unsafe_character(bank_id):
        raise _wrong(found, f"needs an id of the bank of 1 to {MAX_BANK_ID} visible characters")
    named = dict.fromkeys(_DOCUMENT.findall(text.upper()))
    documents = [each for each in named if tax_document.refusal(each) is None] if len(named) <= 20 else []
    return Credit(
        number=found.number,
        bank_id=bank_id,
        amount_cents=amount_cents,
        occurred_at=_instant(found, now=now),
        words=frozenset(_WORD.findall(text.upper())),
        documents=tuple(map(document_key, documents)) if len(documents) <= MAX_DOCUMENTS else (),
    )


def _ofx(text: str) -> Iterator[_Transaction]:
    """Yield the transactions of an OFX file, which may be XML, or SGML without end tags."""
    text = _CDATA.sub(lambda found: found[1].replace("<", " "), text)
    if not re.search(r"<OFX\s*>", text, re.IGNORECASE):
        raise StatementError("is not an OFX file: it has no <OFX>")
    if any(currency.strip().upper() not in {"", "BRL"} for currency in _CURRENCY.findall(text)):
        raise StatementError("has another currency than BRL")
    for number, block in enumerate(_BLOCK.findall(text), start=1):
        values: dict[str, str] = dict.fromkeys(_KEYS, "")
        texts: list[str] = []
        for name, value in _TAG.findall(block):
            tag = name.upper()
            if tag in _TEXTS:
                texts.append(value.strip())
            elif tag in values:
                if values[tag]:
                    raise StatementError(f"transaction {number} has more than one {tag}")
                values[tag] = value.strip()
        if values["CURSYM"].upper() not in {"", "BRL"}:
            raise StatementError(f"transaction {number} has another currency than BRL")
        yield _Transaction(
            number,
            date=values["DTPOSTED"],
            amount=values["TRNAMT"],
            bank_id=values["FITID"],
            texts=tuple(texts),
            kind=values["TRNTYPE"],
        )


def _csv(text: str) -> Iterator[_Transaction]:
    """Yield the rows of a CSV file. The first row names the columns, which commas or semicolons separate."""
    text = text.removeprefix("\ufeff")
    header = text.partition("\n")[0]
    delimiter = ";" if header.count(";") > header.count(",") else ","
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = [_plain_name(name) for name in next(rows, list[str]())]
        places = {column: _place(names, column) for column in COLUMNS}
        number = 0
        for row in rows:
            if not any(row):
                continue
            number += 1
            if len(row) != len(names):
                raise StatementError(f"transaction {number} has {len(row)} columns in place of {len(names)}")
            if any("\n" in cell or "\r" in cell for cell in row):
                raise StatementError(f"transaction {number} has a line end inside a quoted text")
            cells = dict(enumerate(row))
            taken = {column: cells.pop(place).strip() for column, place in places.items()}
            yield _Transaction(number, taken["date"], taken["amount"], taken["id"], tuple(cells.values()))
    except csv.Error as error:
        raise StatementError(f"is not a CSV file: {error}") from None


def _place(names: Sequence[str], column: str) -> int:
    """Return the index of a column that must exist once. Raises StatementError."""
    found = [place for place, name in enumerate(names) if name in COLUMNS[column]]
    if len(found) != 1:
        accepted = ", ".join(sorted(COLUMNS[column]))
        raise StatementError(
            f"needs a first row with the names of the columns, exactly one of them: {accepted}"
        )
    return found[0]


def _plain_name(name: str) -> str:
    parts = unicodedata.normalize("NFKD", name.strip().casefold())
    return "".join(each for each in parts if not unicodedata.combining(each))


def _cents(found: _Transaction) -> int:
    """Return the amount in cents. `99.9`, `99,90`, `1.234,56` and `1,234.56` are accepted, with a sign or `R$`."""
    match = _AMOUNT.fullmatch(found.amount)
    if match is None or (match["before"] and match["sign"]):
        raise _wrong(found, "has an amount that is not one such as 99.90 or 1.234,56")
    whole = (match["plain"] or match["points"] or match["commas"]).replace(".", "").replace(",", "")
    cents = (match["cents"] or match["cents1"] or match["cents2"] or "").ljust(2, "0")
    value = int(whole) * 100 + int(cents)
    if value > MAX_CENTS:
        raise _wrong(found, f"has an amount above {MAX_CENTS} cents")
    return -value if "-" in {match["before"], match["sign"]} else value


def _instant(found: _Transaction, *, now: datetime) -> datetime:
    """Return when the money arrived. If the statement gives a later time today, return `now`: some banks give all
    transactions of a day the same time.

    A date without a time stands for the first instant of its day in Sao Paulo.
    """
    try:
        instant = _parsed(found.date)
    except (ValueError, OverflowError):
        raise _wrong(found, "has a date that is not one such as 2026-11-28, 28/11/2026 or 20261128") from None
    if instant < EARLIEST_INSTANT or local_date(instant) > local_date(now):
        raise _wrong(found, "is dated before the year 2000 or in the future")
    return min(instant, now)


def _parsed(text: str) -> datetime:
    if match := _OFX_DATE.fullmatch(text):
        day, time, offset = match.groups()
        if time is None or time == "000000":
            return start_of_day(date.fromisoformat(day))
        zone = ZONE if offset is None else timezone(timedelta(hours=int(offset)))
        return datetime.fromisoformat(f"{day}T{time}").replace(tzinfo=zone).astimezone(UTC)
    if match := _BR_DATE.fullmatch(text):
        day, month, year = map(int, match.groups())
        return start_of_day(date(year, month, day))
    return start_of_day(date.fromisoformat(text))


def _wrong(found: _Transaction, message: str) -> StatementError:
    return StatementError(f"transaction {found.number} {message}")
