"""Writes amounts, dates and the line of a boleto as payers read them, and chooses the language."""

import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from enum import StrEnum

from fatura.domain.calendar import ZONE

_MINUTE = timedelta(minutes=1)
_NO_BREAK = "\N{NO-BREAK SPACE}"
_SYMBOLS = {"BRL": "R$"}
_MONTHS = {
    "pt-BR": (
        *("janeiro", "fevereiro", "março", "abril", "maio", "junho"),
        *("julho", "agosto", "setembro", "outubro", "novembro", "dezembro"),
    ),
    "en": (
        *("January", "February", "March", "April", "May", "June"),
        *("July", "August", "September", "October", "November", "December"),
    ),
}
_RANGE = re.compile(
    r"\s*([A-Za-z*]{1,8})(?:-[A-Za-z0-9-]*)?\s*(?:;\s*[Qq]=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\s*)?", re.ASCII
)
"""One language of Accept-Language, such as `pt-BR;q=0.9`."""
_MAX_RANGES = 20
_BOLETO = re.compile(r"(\d{5})(\d{5})(\d{5})(\d{6})(\d{5})(\d{6})(\d)(\d{14})", re.ASCII)
_COLLECTION = re.compile(r"(\d{11})(\d)" * 4, re.ASCII)
"""The line of a bill from a public utility or an authority."""


class Language(StrEnum):
    """A language of the page. The value is its tag in HTML."""

    PORTUGUESE = "pt-BR"
    ENGLISH = "en"

    @property
    def other(self) -> "Language":
        return Language.ENGLISH if self is Language.PORTUGUESE else Language.PORTUGUESE


def choose_language(asked: str | None, accepted: str) -> Language:
    """Return the language of the query parameter `lang`, else the best one of Accept-Language, else Portuguese."""
    for each in Language:
        if asked is not None and asked.lower() == each.lower():
            return each
    weights = list(_accepted(accepted))
    return max(weights, key=lambda pair: pair[1])[0] if weights else Language.PORTUGUESE


def _accepted(header: str) -> Iterator[tuple[Language, int]]:
    """Yield the languages in Accept-Language that the page has, in the header's order, with weights in thousandths."""
    by_name = {"pt": Language.PORTUGUESE, "en": Language.ENGLISH, "*": Language.PORTUGUESE}
    for text in header.split(",")[:_MAX_RANGES]:
        found = _RANGE.fullmatch(text)
        language = by_name.get(found[1].lower()) if found else None
        if found and language:
            weight = int(f"{(found[2] or '1').replace('.', ''):0<4}"[:4])
            if weight:
                yield language, weight


def money(cents: int, currency: str, *, language: Language) -> str:
    """Write an amount, such as `R$ 1.234,50` in Portuguese and `R$1,234.50` in English."""
    whole, part = f"{abs(cents) // 100:,}", f"{abs(cents) % 100:02}"
    symbol = f"{'-' if cents < 0 else ''}{_SYMBOLS.get(currency, currency)}"
    if language is Language.PORTUGUESE:
        return f"{symbol}{_NO_BREAK}{whole.replace(',', '.')},{part}"
    space = "" if currency in _SYMBOLS else _NO_BREAK
    return f"{symbol}{space}{whole}.{part}"


def day(of: date, language: Language) -> str:
    """Write a date in words, such as `10 de dezembro de 2026` and `10 December 2026`."""
    month = _MONTHS[language][of.month - 1]
    if language is Language.PORTUGUESE:
        return f"{'1º' if of.day == 1 else of.day} de {month} de {of.year}"
    return f"{of.day} {month} {of.year}"


def moment(at: datetime, language: Language) -> str:
    """Write the instant of a payment or refund. At midnight, write only the day: a bank statement has no times."""
    local = at.astimezone(ZONE)
    return day(local.date(), language) if local.time() == time.min else instant(at, language)


def instant(at: datetime, language: Language) -> str:
    """Write an instant with the time in Sao Paulo."""
    local = at.astimezone(ZONE)
    when = "às" if language is Language.PORTUGUESE else "at"
    return f"{day(local.date(), language)} {when} {local:%H:%M}"


def deadline(at: datetime, language: Language) -> str:
    """Write the instant of a deadline. Midnight becomes 23:59 of the day before, which is harder to misread."""
    is_midnight = at.astimezone(ZONE).time() == time.min
    return instant(at - _MINUTE if is_midnight else at, language)


def boleto_line(digits: str) -> str:
    """Write the digits of a boleto in the groups in which banks print them; leave any other text as it is."""
    if found := _BOLETO.fullmatch(digits):
        first, second, third, fourth, fifth, sixth, check, rest = found.groups()
        return f"{first}.{second} {third}.{fourth} {fifth}.{sixth} {check} {rest}"
    if found := _COLLECTION.fullmatch(digits):
        parts = found.groups()
        return " ".join(f"{parts[place]}-{parts[place + 1]}" for place in range(0, 8, 2))
    return digits
