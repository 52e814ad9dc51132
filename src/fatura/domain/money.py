"""Amounts in integer cents."""

MAX_CENTS = 999_999_999_999
"""Largest amount accepted in any input, in cents (D-8)."""


def item_amount_cents(monthly_price_cents: int, *, months: int, discount_percent: int) -> int:
    """Return an item's amount for one cycle, in cents, rounded half up (spec 2.3, D-7)."""
    if not 0 <= discount_percent <= 100:
        raise ValueError(f"a discount of {discount_percent} % is not from 0 to 100 %")
    hundredths = months * monthly_price_cents * (100 - discount_percent)
    return (hundredths + 50) // 100
