"""Convert charges of the Pix API to charges of the port: ids, states, entries of the ledger, refunds (D-262)."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from uuid import UUID

import msgspec

from fatura.domain.charge import PayData
from fatura.domain.payments import EntryKind
from fatura.gateways import port
from fatura.gateways.adapters.pix.objects import Cobv, Devolucao, ListedId, Pix, cents, instant, last_instant
from fatura.gateways.br_code import br_code
from fatura.gateways.port import ChargeState, RefundState

CURRENCY = "BRL"
STATES: Mapping[str, ChargeState] = {
    "ATIVA": ChargeState.OPEN,
    "CONCLUIDA": ChargeState.PAID,
    "REMOVIDA_PELO_USUARIO_RECEBEDOR": ChargeState.CANCELED,
    "REMOVIDA_PELO_PSP": ChargeState.EXPIRED,
}
"""The state of a charge by its status. A charge past its last day of payment keeps the status ATIVA.

If the bank removed the charge, the merchant did not cancel the invoice. The charge is then closed like an expired one,
so that the invoice becomes overdue.
"""
_REFUND_STATES: Mapping[str, RefundState] = {
    "DEVOLVIDO": RefundState.DONE,
    "NAO_REALIZADO": RefundState.FAILED,
}
"""The state of a refund by its status. With any other status, no money has moved."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_ID_DIGITS = 25
_ATTEMPT_DIGITS = 3
_PREFIX = "fatura"
MAX_ATTEMPT = len(_DIGITS) ** _ATTEMPT_DIGITS - 1
_TXID = re.compile(f"{_PREFIX}([0-9a-z]{{{_ID_DIGITS}}})([0-9a-z]{{{_ATTEMPT_DIGITS}}})")
_REFUND_ID = re.compile(f"{_PREFIX}([0-9a-z]{{{_ID_DIGITS}}})")
END_TO_END_ID = re.compile("[A-Za-z0-9]{32}")
_PRINTABLE = re.compile("[^ -~]")


def txid_of(invoice_id: UUID, attempt: int) -> str:
    """Return the id of a charge, from which `reference_of` gets the invoice and the attempt back.

    The Pix API allows 26 to 35 letters and digits. This id has 34: `fatura`, and two numbers in base 36.
    Raises PermanentError for an attempt above MAX_ATTEMPT.
    """
    if not 0 <= attempt <= MAX_ATTEMPT:
        raise port.PermanentError("too_many_attempts", f"A charge has at most {MAX_ATTEMPT} attempts.")
    return _PREFIX + _base36(invoice_id.int, _ID_DIGITS) + _base36(attempt, _ATTEMPT_DIGITS)


def reference_of(txid: str) -> tuple[UUID, int] | None:
    """Return the invoice and the attempt of a charge, or None if the engine did not create the charge."""
    found = _TXID.fullmatch(txid)
    invoice_id = None if found is None else _uuid(found[1])
    return None if found is None or invoice_id is None else (invoice_id, int(found[2], 36))


def refund_id_of(refund_id: UUID) -> str:
    """Return the id of a refund at the bank: 31 of the 35 letters and digits that the Pix API allows."""
    return _PREFIX + _base36(refund_id.int, _ID_DIGITS)


def own_refund(charge: Cobv, refund_id: UUID) -> Devolucao | None:
    """Return the refund with the engine's id, if the charge has it."""
    name = refund_id_of(refund_id)
    return next((each for pix in charge.pix or () for each in pix.devolucoes or () if each.id == name), None)


def refundable(charge: Cobv, amount_cents: int) -> Pix | None:
    """Return the first payment of which at least this amount was neither refunded nor is being refunded."""
    for pix in charge.pix or ():
        refunds = (each for each in pix.devolucoes or () if _state(each) is not RefundState.FAILED)
        if 0 < amount_cents <= cents(pix.valor) - sum(cents(each.valor) for each in refunds):
            return pix
    return None


def with_refund(charge: Cobv, payment: Pix, *, refund: Devolucao) -> Cobv:
    """Return the charge with a refund that the bank's answer shows."""
    others = [each for each in payment.devolucoes or () if each.id != refund.id]
    changed = msgspec.structs.replace(payment, devolucoes=[*others, refund])
    pix = [changed if each is payment else each for each in charge.pix or ()]
    return msgspec.structs.replace(charge, pix=pix)


def cobv_of(raw: msgspec.Raw) -> Cobv | port.Charge | None:
    """Decode one charge of a list. Return None for a charge that the engine did not create.

    Return a charge that the engine's checks refuse if the charge cannot be read (D-50).
    """
    try:
        found = msgspec.json.decode(raw, type=Cobv)
        return None if reference_of(found.txid) is None else found
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    try:
        txid = msgspec.json.decode(raw, type=ListedId).txid
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return unreadable(None)
    return None if reference_of(txid) is None else unreadable(txid)


def unreadable(charge_id: str | None) -> port.Charge:
    """Return a charge that the engine's checks refuse, in place of one that cannot be read (D-50)."""
    none = cast("Any", None)
    return port.Charge(charge_id or none, none, none, none, none)


def charge_of(cobv: Cobv) -> port.Charge:
    """Convert a charge. For an unknown status, the charge has this status, which the engine's checks refuse (D-50).

    Raises NotFoundError if the engine did not create the charge, and InvalidFieldError.
    """
    reference = reference_of(cobv.txid)
    if reference is None:
        raise port.NotFoundError("the charge has no reference of Fatura")
    created_at = cobv.calendario.criacao
    return port.Charge(
        charge_id=cobv.txid,
        invoice_id=reference[0],
        attempt=reference[1],
        state=STATES.get(cobv.status, cast("Any", cobv.status)),
        amount_cents=cents(cobv.valor.original),
        due_date=cobv.calendario.data_de_vencimento,
        pay=_pay_data(cobv),
        entries=tuple(_entries(cobv.pix or ())),
        refunds=tuple(_refunds(cobv.pix or ())),
        created_at=None if created_at is None else instant(created_at),
    )


def _base36(number: int, length: int) -> str:
    digits = list[str]()
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


def _uuid(digits: str) -> UUID | None:
    number = int(digits, 36)
    return None if number >> 128 else UUID(int=number)


def _pay_data(cobv: Cobv) -> PayData:
    due, days = cobv.calendario.data_de_vencimento, cobv.calendario.validade_apos_vencimento
    expires_at = None if due is None or days is None else last_instant(due, days)
    return PayData(pix_code=cobv.pix_copia_e_cola or _code_of_location(cobv), expires_at=expires_at)


def _code_of_location(cobv: Cobv) -> str | None:
    """Return the Pix code for the URL at which the bank describes the charge, if the bank returned only this URL."""
    location = cobv.location or (cobv.loc.location if cobv.loc is not None else None)
    if location is None:
        return None
    receiver = cobv.recebedor
    name, city = (receiver.nome, receiver.cidade) if receiver is not None else (None, None)
    try:
        return br_code(
            "url",
            location.removeprefix("https://"),
            amount_cents=None,
            merchant_name=_ascii(name, 25),
            merchant_city=_ascii(city, 15),
        )
    except ValueError:
        return None


def _ascii(text: str | None, most: int) -> str:
    parts = unicodedata.normalize("NFKD", text or "")
    plain = _PRINTABLE.sub("", "".join(each for each in parts if not unicodedata.combining(each)))
    return plain[:most].strip() or "PIX"


def _entries(payments: Sequence[Pix]) -> Iterator[port.ChargeEntry]:
    """Yield the payments, and the refunds that moved money."""
    for pix in payments:
        amount = cents(pix.valor)
        yield port.ChargeEntry(EntryKind.PAYMENT, pix.end_to_end_id, amount, CURRENCY, instant(pix.horario))
    for pix in payments:
        for refund in pix.devolucoes or ():
            if _state(refund) is RefundState.DONE:
                settled = refund.horario.liquidacao or refund.horario.solicitacao
                occurred_at = instant(pix.horario if settled is None else settled)
                name, amount = _entry_name(pix, refund), cents(refund.valor)
                yield port.ChargeEntry(EntryKind.REFUND, name, amount, CURRENCY, occurred_at)


def _refunds(payments: Sequence[Pix]) -> Iterator[port.Refund]:
    """Yield the refunds that the engine asked for."""
    for pix in payments:
        for refund in pix.devolucoes or ():
            named, state = _REFUND_ID.fullmatch(refund.id), _state(refund)
            refund_id = None if named is None else _uuid(named[1])
            if refund_id is not None:
                done = _entry_name(pix, refund) if state is RefundState.DONE else None
                why = (
                    (refund.motivo or "The bank did not make the refund.")
                    if state is RefundState.FAILED
                    else None
                )
                yield port.Refund(refund_id, state, done, why)


def _entry_name(pix: Pix, refund: Devolucao) -> str:
    """Return the reference of a refund's entry. The refund's own id is unique among the refunds of the payment only."""
    return f"{pix.end_to_end_id} {refund.id}"


def _state(refund: Devolucao) -> RefundState:
    return _REFUND_STATES.get(refund.status, RefundState.PENDING)
