"""Search keys of customers, which omit the differences that a search ignores (D-130)."""

import unicodedata

MAX_NAME_KEY_CHARS = 200
"""Longer keys are truncated, because a decomposed name can exceed the size limit of an index entry."""


def name_key(name: str) -> str:
    """Return a name without upper case, accents and compatibility forms. It is never empty.

    The key of a prefix of a name is a prefix of the name's key, so that names can be searched by prefix.
    """
    decomposed = unicodedata.normalize("NFKD", name.casefold())
    bare = "".join(char for char in decomposed if not unicodedata.combining(char)).casefold()
    return (bare or name)[:MAX_NAME_KEY_CHARS]


def email_key(email: str) -> str:
    return email.lower()


def document_key(document: str) -> str:
    """Return the letters and digits of a tax id; a CNPJ may contain letters. The key is never empty."""
    folded = unicodedata.normalize("NFKC", document).casefold()
    return "".join(char for char in folded if char.isalnum()) or document
