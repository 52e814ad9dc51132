"""The tokens in the links of pay pages: each names one invoice, and only the engine can make one (ADR 0020).

A token is the encrypted ids of an account and of an invoice, with the number of times that the link was replaced.
Reading a token needs no query, so a guessed token costs no transaction.
"""

import base64
import re
from dataclasses import dataclass
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_KEY_BYTES = 64
"""AES-SIV uses one half of the key for the tag, and the other half to encrypt."""
_PURPOSE = b"fatura pay link"
_ID_BYTES = 16
_VERSION_BYTES = 6
"""With six bytes, a token has 54 bytes: a multiple of three, so each token has exactly one text in base64."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]{72}")


@dataclass(frozen=True, slots=True)
class PayLink:
    """A link to an invoice's pay page. `version` is the number of times that the invoice's link was replaced."""

    account_id: UUID
    invoice_id: UUID
    version: int


class PayLinks:
    """Makes and reads tokens. All processes of one database have the same key."""

    __slots__ = ("_cipher",)

    def __init__(self, tag_key: bytes) -> None:
        derived = HKDF(SHA256(), _KEY_BYTES, salt=None, info=_PURPOSE).derive(tag_key)
        self._cipher = AESSIV(derived)

    def token(self, link: PayLink) -> str:
        """Return the token of a link. The same link always has the same token."""
        plain = link.account_id.bytes + link.invoice_id.bytes + link.version.to_bytes(_VERSION_BYTES)
        return base64.urlsafe_b64encode(self._cipher.encrypt(plain, None)).decode()

    def read(self, token: str) -> PayLink | None:
        """Return the link that a token names, or None if the engine has not made this token."""
        if not _TOKEN.fullmatch(token):
            return None
        try:
            plain = self._cipher.decrypt(base64.urlsafe_b64decode(token), None)
        except InvalidTag:
            return None
        return PayLink(
            UUID(bytes=plain[:_ID_BYTES]),
            UUID(bytes=plain[_ID_BYTES : 2 * _ID_BYTES]),
            int.from_bytes(plain[2 * _ID_BYTES :]),
        )
