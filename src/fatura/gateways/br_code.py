"""Pix codes: the text that a payer copies into a bank's app, or that the app reads from a QR code.

The Central Bank calls this format BR Code. A code consists of EMV fields: a tag, the length of the value, and the
value. The last field is a CRC.
"""

import binascii
from typing import Literal

_FROM_CRC = 0xFFFF
_MAX_LENGTH = 99


def br_code(
    account: Literal["key", "url"],
    value: str,
    *,
    amount_cents: int | None,
    merchant_name: str,
    merchant_city: str,
    txid: str = "***",
) -> str:
    """Return a Pix code for a payment in BRL.

    `value` is the receiver's Pix key or, if `account` is `url`, the URL at which the receiver's bank describes the
    payment. If no amount is given, the payer enters the amount. `txid` identifies the payment in the receiver's bank
    statement; `***` means none.
    Raises ValueError if a value is not ASCII, or is too long for its field.
    """
    receiver = _field("00", "br.gov.bcb.pix") + _field({"key": "01", "url": "25"}[account], value)
    amount = "" if amount_cents is None else _field("54", f"{amount_cents // 100}.{amount_cents % 100:02}")
    text = "".join(
        (
            _field("00", "01"),
            _field("26", receiver),
            _field("52", "0000"),
            _field("53", "986"),
            amount,
            _field("58", "BR"),
            _field("59", merchant_name),
            _field("60", merchant_city),
            _field("62", _field("05", txid)),
            "6304",
        )
    )
    return f"{text}{binascii.crc_hqx(text.encode(), _FROM_CRC):04X}"


def _field(tag: str, value: str) -> str:
    if not value.isascii() or len(value) > _MAX_LENGTH:
        raise ValueError(f"the field {tag} of a Pix code must be at most {_MAX_LENGTH} ASCII characters")
    return f"{tag}{len(value):02}{value}"
