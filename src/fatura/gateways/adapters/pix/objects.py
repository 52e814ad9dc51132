"""The parts of the Pix API's JSON objects that the adapter reads. Decoding ignores all other fields.

Amounts are texts such as "123.45". They are converted digit by digit, never as a float.
"""

import re
from datetime import UTC, date, datetime, time, timedelta

import msgspec

from fatura.domain.calendar import ZONE
from fatura.gateways.answers import InvalidFieldError

MAX_CENTS = 10**12 - 1
"""The highest amount of the Pix API: ten digits before the point."""
_AMOUNT = re.compile(r"([0-9]{1,10})\.([0-9]{2})")


class Calendar(msgspec.Struct, rename="camel", frozen=True):
    """The dates of a charge. `validade_apos_vencimento` counts the days after the due date on which it can be paid."""

    criacao: str | None = None
    data_de_vencimento: date | None = None
    validade_apos_vencimento: int | None = None


class Value(msgspec.Struct, frozen=True):
    original: str


class Times(msgspec.Struct, frozen=True):
    solicitacao: str | None = None
    liquidacao: str | None = None


class Devolucao(msgspec.Struct, frozen=True):
    """A refund of a payment. Its `id` is unique among the refunds of the payment."""

    id: str
    valor: str
    status: str
    horario: Times = Times()
    motivo: str | None = None


class Pix(msgspec.Struct, rename="camel", frozen=True):
    """A payment."""

    end_to_end_id: str
    valor: str
    horario: str
    devolucoes: list[Devolucao] | None = None


class Location(msgspec.Struct, frozen=True):
    location: str | None = None


class Receiver(msgspec.Struct, frozen=True):
    nome: str | None = None
    cidade: str | None = None


class Cobv(msgspec.Struct, rename="camel", frozen=True):
    """A charge with a due date."""

    txid: str
    status: str
    calendario: Calendar
    valor: Value
    pix_copia_e_cola: str | None = None
    location: str | None = None
    loc: Location | None = None
    recebedor: Receiver | None = None
    pix: list[Pix] | None = None


class Pagination(msgspec.Struct, rename="camel", frozen=True):
    quantidade_de_paginas: int


class Parameters(msgspec.Struct, frozen=True):
    paginacao: Pagination


class Page(msgspec.Struct, frozen=True):
    """A page of a list. Each object is decoded on its own, so that one invalid object does not hide the others."""

    parametros: Parameters
    cobs: list[msgspec.Raw]


class ListedId(msgspec.Struct, frozen=True):
    txid: str


class NamedPix(msgspec.Struct, frozen=True):
    """A payment in a webhook. A payment to the Pix key itself has no `txid`."""

    txid: str | None = None


class WebhookBody(msgspec.Struct, frozen=True):
    pix: list[NamedPix] = []


class Violation(msgspec.Struct, frozen=True):
    razao: str | None = None
    propriedade: str | None = None


class Problem(msgspec.Struct, frozen=True):
    """An error (RFC 7807). Efí answers some errors with `nome` and `mensagem` instead."""

    type: str | None = None
    title: str | None = None
    detail: str | None = None
    violacoes: list[Violation] | None = None
    nome: str | None = None
    mensagem: str | None = None


def cents(text: str) -> int:
    """Convert an amount such as "123.45" to cents. Raises InvalidFieldError."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise InvalidFieldError("an amount of the Pix API has not the form 123.45")
    return int(found[1] + found[2])


def reais(amount_cents: int) -> str:
    return f"{amount_cents // 100}.{amount_cents % 100:02}"


def instant(text: str) -> datetime:
    """Convert a date and time. A bank that leaves out the zone means the time in Sao Paulo.

    Raises InvalidFieldError.
    """
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=ZONE)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidFieldError("a date and time of the Pix API cannot be read") from None


def timestamp(instant: datetime) -> str:
    """Return an instant in the form of RFC 3339, without fractions of a second."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def last_instant(due: date, days: int) -> datetime:
    """Return the end of the last day on which a charge can be paid. Raises InvalidFieldError."""
    try:
        return datetime.combine(due + timedelta(days=days), time(23, 59, 59), ZONE).astimezone(UTC)
    except (OverflowError, ValueError):
        raise InvalidFieldError("a due date of the Pix API is not possible") from None


def refusal(body: bytes) -> tuple[str, str] | None:
    """Read the code and the text of an error. The code is the last part of the `type`, which is a URI."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    code = (problem.type or "").rstrip("/").rpartition("/")[2] or problem.nome or ""
    violations = [f"{each.propriedade or ''} {each.razao or ''}".strip() for each in problem.violacoes or ()]
    text = problem.detail or problem.mensagem or problem.title or ""
    return code, "; ".join(each for each in (text, *violations) if each)
