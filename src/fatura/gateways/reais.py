"""Convert between cents and amounts in reais, as several providers write them: JSON numbers, never floats."""

from decimal import ROUND_HALF_UP, Decimal

import msgspec

from fatura.gateways.answers import InvalidFieldError

_MAX_DIGITS = 15
"""Maximum number of digits of an amount in reais. Decimals such as 1E+999999 would fill the memory as integers."""


def cents(reais: Decimal) -> int:
    """Convert reais to cents. Raises InvalidFieldError if the amount has a fraction of a cent, or is too large."""
    if reais.is_finite() and reais.adjusted() < _MAX_DIGITS:
        scaled = reais.scaleb(2)
        if scaled == scaled.to_integral_value():
            return int(scaled)
    raise InvalidFieldError("an amount of the provider is not a number of cents")


def rounded_cents(reais: Decimal) -> int:
    """Convert reais to cents, and round a fraction of a cent. Raises InvalidFieldError if the amount is too large."""
    if reais.is_finite() and reais.adjusted() < _MAX_DIGITS:
        return int(reais.scaleb(2).to_integral_value(ROUND_HALF_UP))
    raise InvalidFieldError("an amount of the provider is not a number of cents")


def reais(amount_cents: int) -> msgspec.Raw:
    """Return the JSON number for an amount."""
    return msgspec.Raw(f"{amount_cents // 100}.{amount_cents % 100:02}".encode())
