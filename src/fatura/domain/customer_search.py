"""Keys for searching customers. Texts that a search treats as equal, such as Ana and ANA, have equal keys (D-130)."""

import unicodedata

MAX_NAME_KEY_CHARS = 200
"""Longer keys are truncated, because a decomposed name can exceed the size limit of an index entry."""


def name_key(name: str) -> str:
    """Return the key of a name: lower case, without accents, and with plain letters for forms such as the ligature fi.

    The key is never empty. To find names by their beginning, search for the keys that start with its key.
    """
    decomposed = unicodedata.normalize("NFKD", name.casefold())
    bare = "".join(char for char in decomposed if not unicodedata.combining(char)).casefold()
    return (bare or name)[:MAX_NAME_KEY_CHARS]


def email_key(email: str) -> str:
    return email.lower()


def document_key(document: str) -> str:
    """Return the letters and digits of a tax id, in lower case; a CNPJ may contain letters. The key is never empty."""
    folded = unicodedata.normalize("NFKC", document).casefold()
    return "".join(filter(str.isalnum, folded)) or document
