"""Check the check digits of Brazilian tax documents: CPF of people, CNPJ of companies (D-251)."""

import re
from collections.abc import Sequence
from operator import mul

CPF_DIGITS = 11
CNPJ_CHARS = 14
_SEPARATORS = re.compile(r"[.\-/ ]")
_DIGITS = re.compile(r"[0-9]+")
_CNPJ = re.compile(
    r"[0-9A-Z]{12}[0-9]{2}|[0-9A-Z]{2}\.[0-9A-Z]{3}\.[0-9A-Z]{3}/[0-9A-Z]{4}-[0-9]{2}", re.IGNORECASE
)
"""Since July 2026, the first twelve characters of a CNPJ may be letters."""
_IN_TEXT = re.compile(
    r"(?<![0-9A-Z])(?:[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}|[0-9]{11}|[0-9A-Z]{12}[0-9]{2}"
    r"|[0-9A-Z]{2}\.[0-9A-Z]{3}\.[0-9A-Z]{3}(?:/|\\/|%2F)[0-9A-Z]{4}-[0-9]{2})(?![0-9A-Z])",
    re.IGNORECASE,
)
"""What may be a CPF or CNPJ in a JSON text or a URL, where a slash may be escaped."""
_ESCAPED_SLASH = re.compile(r"\\/|%2F", re.IGNORECASE)
_CPF_WEIGHTS = (11, 10, 9, 8, 7, 6, 5, 4, 3, 2)
_CNPJ_WEIGHTS = (6, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2)
_MODULUS = 11


def refusal(document: str) -> str | None:
    """Return why a tax document is refused, or None. Text that looks like neither a CPF nor a CNPJ is accepted."""
    plain = _SEPARATORS.sub("", document)
    has_only_digits = _DIGITS.fullmatch(plain) is not None
    if has_only_digits and len(plain) == CPF_DIGITS:
        return None if _is_valid(plain, _CPF_WEIGHTS) else _wrong("CPF")
    if (has_only_digits and len(plain) == CNPJ_CHARS) or _CNPJ.fullmatch(document):
        return None if _is_valid(plain.upper(), _CNPJ_WEIGHTS) else _wrong("CNPJ")
    return None


def without_documents(text: str) -> str:
    """Return a JSON text or a URL with `***` for each valid CPF and CNPJ."""
    return _IN_TEXT.sub(_hidden, text)


def _hidden(found: re.Match[str]) -> str:
    plain = _SEPARATORS.sub("", _ESCAPED_SLASH.sub("", found[0])).upper()
    return (
        "***" if _is_valid(plain, _CPF_WEIGHTS if len(plain) == CPF_DIGITS else _CNPJ_WEIGHTS) else found[0]
    )


def _is_valid(plain: str, weights: Sequence[int]) -> bool:
    """Return whether the two check digits of a document are correct, and the document does not repeat one digit.

    `weights` are those of the second check digit; the first uses `weights[1:]`. A document that repeats one digit has
    correct check digits, but was never issued.
    """
    values = [ord(character) - ord("0") for character in plain]
    first, second = values[-2:]
    return (
        len(set(plain)) > 1
        and first == _check_digit(values[:-2], weights[1:])
        and second == _check_digit(values[:-1], weights)
    )


def _check_digit(values: Sequence[int], weights: Sequence[int]) -> int:
    rest = sum(map(mul, values, weights)) % _MODULUS
    return 0 if rest < 2 else _MODULUS - rest


def _wrong(kind: str) -> str:
    return (
        f"must be a valid {kind}: its check digits are wrong. Write a tax id of another country with the code of the "
        "country and a space, such as `AR 20-12345678-9`"
    )
