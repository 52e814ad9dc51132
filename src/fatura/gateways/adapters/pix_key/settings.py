"""The settings of a connection with a Pix key: who receives the payments."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fatura.domain import tax_document
from fatura.domain.provider_field import ProviderField
from fatura.domain.text import unsafe_character
from fatura.gateways.port import GatewaySettingsError

MAX_NAME = 25
"""Maximum number of characters of the receiver's name in a Pix code."""
MAX_CITY = 15
"""Maximum number of characters of the receiver's city in a Pix code."""
MAX_EMAIL = 77
MAX_INSTRUCTIONS = 300

_DOCUMENT = re.compile(r"[0-9]{11}|[0-9A-Z]{12}[0-9]{2}")
_PHONE = re.compile(r"\+[1-9][0-9]{7,14}")
_EMAIL = re.compile(r"[a-z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-z0-9-]+(\.[a-z0-9-]+)+")
_RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PRINTABLE = re.compile("[ -~]+")
_KEY_FORMS = (
    "must be a Pix key as the bank shows it: a CPF or CNPJ without punctuation, a telephone number such as "
    "+5511987654321, an e-mail address in lower case, or a random key"
)
_NO_DOCUMENT = (
    "looks like a CPF or CNPJ, but its check digits are wrong; a telephone number begins with a plus and the country, "
    "such as +5511987654321"
)

FIELDS = (
    ProviderField("pixKey", "your Pix key, as your bank shows it", is_required=True),
    ProviderField("merchantName", f"your name, at most {MAX_NAME} characters", is_required=True),
    ProviderField("merchantCity", f"your city, at most {MAX_CITY} characters", is_required=True),
    ProviderField("instructions", f"text of the pay page, at most {MAX_INSTRUCTIONS} characters"),
)


@dataclass(frozen=True, slots=True)
class PixKeySettings:
    """`merchant_name` and `merchant_city` are ASCII, as Pix codes need them."""

    pix_key: str
    merchant_name: str
    merchant_city: str


def parse(settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> PixKeySettings:
    """Validate the settings. Only `instructions` is optional. `credentials` must be empty.

    Raises GatewaySettingsError, which lists every invalid field.
    """
    known = {field.name for field in FIELDS}
    wrong = [(f"settings.{key}", "is not a setting of a Pix key") for key in settings if key not in known]
    wrong += [(f"credentials.{key}", "a Pix key takes no credentials") for key in credentials]
    key, name, city = settings.get("pixKey"), settings.get("merchantName"), settings.get("merchantCity")
    wrong += [("settings.pixKey", fault) for fault in [_fault_of_key(key)] if fault]
    for field, value, most in (("merchantName", name, MAX_NAME), ("merchantCity", city, MAX_CITY)):
        if _ascii(value, most) is None:
            wrong.append(
                (f"settings.{field}", f"must have 1 to {most} ASCII characters; accents are removed")
            )
    if not _is_text(settings.get("instructions")):
        wrong.append(
            ("settings.instructions", f"must be null or 1 to {MAX_INSTRUCTIONS} characters on one line")
        )
    if wrong:
        raise GatewaySettingsError(tuple(wrong))
    return PixKeySettings(str(key), _ascii(name, MAX_NAME) or "", _ascii(city, MAX_CITY) or "")


def _is_text(value: object) -> bool:
    """Return whether a value is None, or a text that a page can show on one line."""
    if not isinstance(value, str):
        return value is None
    return value.strip() != "" and len(value) <= MAX_INSTRUCTIONS and unsafe_character(value) is None


def _fault_of_key(key: object) -> str | None:
    if not isinstance(key, str):
        return _KEY_FORMS
    if _DOCUMENT.fullmatch(key):
        return _NO_DOCUMENT if tax_document.refusal(key) else None
    is_email = len(key) <= MAX_EMAIL and _EMAIL.fullmatch(key)
    return None if is_email or _PHONE.fullmatch(key) or _RANDOM.fullmatch(key) else _KEY_FORMS


def _ascii(value: object, most: int) -> str | None:
    """Return a text without its accents.

    Return None if `value` is no text, or if the result is blank, too long or not ASCII.
    """
    if not isinstance(value, str):
        return None
    parts = unicodedata.normalize("NFKD", value)
    plain = "".join(each for each in parts if not unicodedata.combining(each)).strip()
    return plain if _PRINTABLE.fullmatch(plain) and len(plain) <= most else None
