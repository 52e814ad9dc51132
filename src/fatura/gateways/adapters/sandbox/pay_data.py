"""The pay data of sandbox charges: a link, a Pix code or the line of a boleto, with valid check digits (D-49)."""

from datetime import date, timedelta

from fatura.domain.calendar import start_of_day
from fatura.domain.charge import PayData
from fatura.domain.charging import last_payment_day
from fatura.domain.offer import PaymentMethod
from fatura.domain.sandbox import SandboxCharge
from fatura.gateways.br_code import br_code

_BANK, _REAL = "999", "9"
_DUE_DATES_FROM = date(2025, 2, 22)
"""The due date that a boleto encodes as the number 1000. Each later day has the next number."""
_FIRST_FACTOR, _FACTORS = 1000, 9000


def pay_data(charge: SandboxCharge) -> PayData:
    last_day = last_payment_day(charge.due_date, charge.method)
    return PayData(
        url=f"https://sandbox.invalid/pay/{charge.charge_id}",
        pix_code=_pix_code(charge) if charge.method is PaymentMethod.PIX else None,
        boleto_line=_boleto_line(charge) if charge.method is PaymentMethod.BOLETO else None,
        expires_at=start_of_day(last_day + timedelta(days=1)),
    )


def _pix_code(charge: SandboxCharge) -> str:
    return br_code(
        "url",
        f"sandbox.invalid/qr/{charge.charge_id}",
        amount_cents=charge.amount_cents,
        merchant_name="Fatura Sandbox",
        merchant_city="Sao Paulo",
    )


def _boleto_line(charge: SandboxCharge) -> str:
    """Return the 47 digits of a boleto: three fields with a check digit each, the main check digit, date and amount."""
    free = f"{int(charge.charge_id[-20:], 16):025}"[-25:]
    days = max((charge.due_date - _DUE_DATES_FROM).days, 0)
    tail = f"{_FIRST_FACTOR + days % _FACTORS}{charge.amount_cents % 10**10:010}"
    main = _modulo_11(_BANK + _REAL + tail + free)
    fields = (_BANK + _REAL + free[:5], free[5:15], free[15:])
    return "".join(field + _modulo_10(field) for field in fields) + main + tail


def _modulo_10(digits: str) -> str:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        product = int(digit) * (2 if place % 2 == 0 else 1)
        total += product // 10 + product % 10
    return str(-total % 10)


def _modulo_11(digits: str) -> str:
    total = sum(int(digit) * (2 + place % 8) for place, digit in enumerate(reversed(digits)))
    check = 11 - total % 11
    return str(check if check <= 9 else 1)
