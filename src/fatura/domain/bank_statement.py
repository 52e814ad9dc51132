"""Read the credits of a bank statement from an OFX or CSV file (D-257)."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from enum import StrEnum

from fatura.domain import debit_marks, tax_document
from fatura.domain.calendar import EARLIEST_INSTANT, ZONE, local_date, start_of_day
from fatura.domain.customer_search import document_key
from fatura.domain.debit_marks import folded
from fatura.domain.money import MAX_CENTS
from fatura.domain.text import unsafe_character

MAX_CREDITS = 500
"""Maximum number of credits in a statement."""
MAX_TRANSACTIONS = 2000
"""Maximum number of credits and debits in a statement."""
MAX_TEXT = 600
"""Maximum number of characters in the texts of a transaction."""
MAX_DOCUMENTS = 3
"""If a transaction names more tax documents, none of them is used."""
_MAX_CANDIDATES = 8
"""If a transaction has more texts in the form of a tax document, Fatura checks none of them."""
MAX_BANK_ID = 255

COLUMNS: Mapping[str, frozenset[str]] = {
    "date": frozenset({"date", "data", "data lancamento", "data do lancamento"}),
    "amount": frozenset({"amount", "valor", "valor (r$)"}),
    "id": frozenset({"id", "identificador"}),
}
"""The names of the columns of a CSV file that must exist, in lower case and without accents."""
_MAX_COLUMNS = 100
_MAX_NAME = 30
_MAX_END = 1000
"""The file may end with line ends after `</OFX>`."""
_KEYS = ("DTPOSTED", "TRNAMT", "FITID", "TRNTYPE", "CURSYM")
_TEXTS = frozenset({"NAME", "EXTDNAME", "MEMO", "CHECKNUM", "REFNUM"})

_OFX_START = re.compile(r"\ufeff?\s*(?:OFXHEADER\s*:[^<]*)?(?:<\?[^<>]*\?>\s*)*<OFX\s*>", re.IGNORECASE)
"""The start of an OFX file: nothing but headers before `<OFX>`."""
_OFX_END = re.compile(r"</OFX\s*>\s*\Z", re.IGNORECASE)
_LIMIT = re.compile(r"</?STMTTRN\s*>|</BANKTRANLIST\s*>", re.IGNORECASE)
_TRANSACTION_IN_TEXT = re.compile(
    rf"(?:(?:^|\r)[^\S\r\n]*<(?:{'|'.join(sorted(_TEXTS))})\s*>[^\r\n]*?|<(?:{'|'.join(sorted(_TEXTS))})\s*>[^<\r\n]*)"
    r"<STMTTRN\s*>",
    re.IGNORECASE | re.MULTILINE,
)
"""A start of a transaction after a text on the same line, where a payer's message could have written it.

If the line begins with the text, end tags between them do not matter, because a message could contain them too.
"""
_TAG = re.compile(r"<([A-Z0-9.]+)\s*>([^<\r\n]*)", re.IGNORECASE)
_BEFORE_CDATA = re.compile(r"<[A-Z0-9.]{1,40}>[ \t]*", re.IGNORECASE)
_NOT_IN_CDATA = re.compile(rf"[\r\n]|</?(?:STMTTRN|{'|'.join((*_KEYS, *sorted(_TEXTS)))})\s*>", re.IGNORECASE)
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
_AMOUNT_SIGNS = str.maketrans("\u00a0\u202f\u2212", "  -")
"""Some programs write a space that does not break after `R$`, and a minus that is no hyphen."""
_BR_DATE = re.compile(r"(\d{2})/(\d{2})/(\d{4})", re.ASCII)
_END_TO_END = re.compile(r"(?<![0-9A-Za-z])[Ee]\d{20}[0-9A-Za-z]{11}(?![0-9A-Za-z])", re.ASCII)
_WORD = re.compile(r"[0-9A-Z]{20,}", re.ASCII)
"""A word that may be the txid of a charge. Shorter words would only take time."""
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


def is_end_to_end_id(text: str) -> bool:
    """Return whether this is the id that all banks give to a Pix, and to no other payment."""
    return _END_TO_END.fullmatch(text) is not None


def same_id(text: str) -> str:
    """Return a text that is the same for all forms of an id. Some banks write end-to-end ids in upper case only."""
    return text.upper() if is_end_to_end_id(text) else text


@dataclass(frozen=True, slots=True)
class Credit:
    """Money that arrived on the merchant's bank account.

    `number` is the position of the transaction in the file, from 1; debits count too. If the transaction contains
    exactly one end-to-end id of a Pix (`E...`), `bank_id` is that id. Otherwise, `bank_id` is the id that the bank
    gave. `words` are the long words of the transaction's texts, in upper case. `documents` are the keys of the valid
    tax documents in these texts.
    """

    number: int
    bank_id: str
    amount_cents: int
    occurred_at: datetime
    words: frozenset[str]
    documents: tuple[str, ...]

    @property
    def same_id(self) -> str:
        """The `bank_id` in the form that `same_id` gives it, for comparisons."""
        return same_id(self.bank_id)

    @property
    def has_end_to_end_id(self) -> bool:
        return is_end_to_end_id(self.bank_id)

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
    """A transaction as the file has it, before it is known whether it is a credit."""

    number: int
    date: str
    amount: str
    bank_id: str
    texts: Sequence[str]
    is_marked_as_debit: bool
    currency: str = "BRL"


def read(text: str, format_: StatementFormat, *, now: datetime) -> Statement:
    """Read a statement.

    Raises StatementError if a transaction is not valid, for example a credit without a bank id, or a credit whose day
    is later than the day of `now`.
    """
    found = _ofx(text) if format_ is StatementFormat.OFX else _csv(text)
    read_credits: list[Credit] = []
    debits = 0
    for each in found:
        if each.number > MAX_TRANSACTIONS:
            raise _too_many()
        amount_cents = _cents(each)
        if amount_cents <= 0:
            debits += 1
            continue
        if each.is_marked_as_debit:
            raise _wrong(each, "is marked as a debit, but its amount has no minus")
        if each.currency != "BRL":
            raise _wrong(each, "has another currency than BRL")
        if len(read_credits) == MAX_CREDITS:
            raise StatementError(f"has more than {MAX_CREDITS} credits; import shorter periods")
        read_credits.append(_credit(each, amount_cents, now=now))
    return Statement(read_credits, debits)


def _credit(found: _Transaction, amount_cents: int, *, now: datetime) -> Credit:
    text = "\n".join(found.texts)
    if len(text) > MAX_TEXT:
        raise _wrong(found, f"has texts of more than {MAX_TEXT} characters")
    end_to_end = {same_id(each): each for each in reversed(_END_TO_END.findall(f"{found.bank_id}\n{text}"))}
    bank_id = next(iter(end_to_end.values())) if len(end_to_end) == 1 else found.bank_id
    if not 0 < len(bank_id) <= MAX_BANK_ID or not bank_id.isprintable() or unsafe_character(bank_id):
        raise _wrong(found, f"needs an id of the bank of 1 to {MAX_BANK_ID} visible characters")
    upper = text.upper()
    named = dict.fromkeys(_DOCUMENT.findall(upper))
    few = named if len(named) <= _MAX_CANDIDATES else ()
    documents = [each for each in few if tax_document.refusal(each) is None]
    return Credit(
        number=found.number,
        bank_id=bank_id,
        amount_cents=amount_cents,
        occurred_at=_instant(found, now=now),
        words=frozenset(_WORD.findall(upper)),
        documents=tuple(map(document_key, documents)) if len(documents) <= MAX_DOCUMENTS else (),
    )


def _ofx(text: str) -> Iterator[_Transaction]:
    """Yield the transactions of an OFX file, which may be XML, or SGML without end tags."""
    if not _OFX_START.match(text):
        raise StatementError("is not an OFX file: it must begin with a header of OFX or XML, or with <OFX>")
    if not _OFX_END.search(text, max(0, len(text) - _MAX_END)):
        raise StatementError("is not a whole OFX file: it must end with </OFX>")
    text = _without_cdata(text)
    if any(currency.strip().upper() not in {"", "BRL"} for currency in _CURRENCY.findall(text)):
        raise StatementError("has another currency than BRL")
    if _TRANSACTION_IN_TEXT.search(text):
        raise StatementError(
            "has a text with a <STMTTRN> behind it on the same line, which a payer may have written"
        )
    for number, block in enumerate(_blocks(text), start=1):
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
        yield _Transaction(
            number,
            date=values["DTPOSTED"],
            amount=values["TRNAMT"],
            bank_id=values["FITID"],
            texts=texts,
            is_marked_as_debit=debit_marks.is_debit_type(values["TRNTYPE"]),
            currency=values["CURSYM"].upper() or "BRL",
        )


def _without_cdata(text: str) -> str:
    """Replace each CDATA section by its text, with spaces for `<`. A section without an end stays as it is.

    Raises StatementError if the messages of two payers may have made the section from everything between them.
    """
    parts: list[str] = []
    place = 0
    while (start := text.find("<![CDATA[", place)) >= 0 and (end := text.find("]]>", start)) >= 0:
        tag = text.rfind("<", place, start)
        section = text[start + 9 : end]
        if tag < 0 or not _BEFORE_CDATA.fullmatch(text, tag, start) or _NOT_IN_CDATA.search(section):
            raise StatementError(
                "has a CDATA section that is not the text of one tag; a payer may have written it"
            )
        parts += text[place:start], section.replace("<", " ")
        place = end + 3
    return "".join((*parts, text[place:]))


def _blocks(text: str) -> Iterator[str]:
    """Yield the text of each transaction, without its tags `<STMTTRN>` and `</STMTTRN>`.

    If the end tag is missing, the text ends at the next start tag or at the end of the list.
    """
    start: int | None = None
    for limit in _LIMIT.finditer(text):
        if start is not None:
            yield text[start : limit.start()]
        start = None if limit[0].startswith("</") else limit.end()
    if start is not None:
        yield text[start:]


def _csv(text: str) -> Iterator[_Transaction]:
    """Yield the rows of a CSV file. The first row names the columns, which commas or semicolons separate."""
    text = text.removeprefix("\ufeff")
    header = text.partition("\n")[0]
    delimiter = ";" if header.count(";") > header.count(",") else ","
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = next(rows, list[str]())
        if len(names) > _MAX_COLUMNS:
            raise StatementError(f"has more than {_MAX_COLUMNS} columns")
        names = [folded(name) if len(name) <= _MAX_NAME else "" for name in names]
        places = [_place(names, column) for column in ("date", "amount", "id")]
        found = list(_rows(rows, width=len(names)))
        kinds = debit_marks.places(names, found)
        for number, row in enumerate(found, start=1):
            yield _Transaction(
                number,
                *(row[place].strip() for place in places),
                texts=[cell for place, cell in enumerate(row) if place not in places],
                is_marked_as_debit=debit_marks.is_debit_row(row, kinds),
            )
    except csv.Error as error:
        raise StatementError(f"is not a CSV file: {error}") from None


def _rows(rows: Iterator[list[str]], *, width: int) -> Iterator[list[str]]:
    """Yield the rows that are not empty. Raises StatementError if a row is malformed, or if there are too many."""
    number = 0
    for row in rows:
        if not any(row):
            continue
        number += 1
        if number > MAX_TRANSACTIONS:
            raise _too_many()
        if len(row) != width:
            raise StatementError(f"transaction {number} has {len(row)} columns in place of {width}")
        joined = "".join(row)
        if "\n" in joined or "\r" in joined:
            raise StatementError(f"transaction {number} has a line end inside a quoted text")
        yield row


def _place(names: Sequence[str], column: str) -> int:
    """Return the index of a column that must exist once. Raises StatementError."""
    found = [place for place, name in enumerate(names) if name in COLUMNS[column]]
    if len(found) == 1:
        return found[0]
    accepted = " or ".join(sorted(COLUMNS[column]))
    wrong = "several columns" if found else "no column"
    raise StatementError(
        f"was read as CSV, and its first row names {wrong} for the {column}; name exactly one {accepted}"
    )


def _cents(found: _Transaction) -> int:
    """Return the amount in cents. `99.9`, `99,90`, `1.234,56` and `1,234.56` are accepted, with a sign or `R$`."""
    match = _AMOUNT.fullmatch(found.amount.translate(_AMOUNT_SIGNS))
    if match is None or (match["before"] and match["sign"]):
        raise _wrong(found, "has an amount that is not one such as 99.90 or 1.234,56")
    whole = (match["plain"] or match["points"] or match["commas"]).replace(".", "").replace(",", "")
    cents = (match["cents"] or match["cents1"] or match["cents2"] or "").ljust(2, "0")
    value = int(whole) * 100 + int(cents)
    if value > MAX_CENTS:
        raise _wrong(found, f"has an amount above {MAX_CENTS} cents")
    return -value if "-" in {match["before"], match["sign"]} else value


def _instant(found: _Transaction, *, now: datetime) -> datetime:
    """Return when the money arrived, or `now` if the statement gives a later time of today.

    Some banks give all transactions of a day the same time, which may be later than `now`. A date without a time
    stands for the first instant of its day in Sao Paulo.
    """
    try:
        instant = _parsed(found.date)
    except (ValueError, OverflowError):
        text = found.date
        shown = text[:_MAX_NAME] if text.isprintable() else ""
        raise _wrong(
            found, f"has the date {shown!r}, which is not one such as 2026-11-28, 28/11/2026 or 20261128"
        ) from None
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


def _too_many() -> StatementError:
    return StatementError(f"has more than {MAX_TRANSACTIONS} transactions; import shorter periods")


def _wrong(found: _Transaction, message: str) -> StatementError:
    return StatementError(f"transaction {found.number} {message}")
