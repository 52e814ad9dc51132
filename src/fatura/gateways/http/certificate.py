"""The client certificate of a gateway connection, for providers that require mutual TLS (D-262)."""

import asyncio
import hashlib
import os
import secrets
import ssl
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from math import lcm

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from fatura.gateways.port import TransientError

MAX_PEM_CHARS = 64 * 1024
MAX_CONTEXTS = 64
"""Maximum number of kept TLS contexts. Each takes almost 1 MiB of memory."""
_RSA_BITS = range(2048, 8193)


class CertificateError(ValueError):
    """The certificate (`is_key` is false) or the key cannot be used. The message has no part of either."""

    def __init__(self, message: str, *, is_key: bool = False) -> None:
        super().__init__(message)
        self.is_key = is_key


@dataclass(frozen=True, slots=True, repr=False)
class ClientCertificate:
    """A certificate with its chain, and the private key, both as PEM."""

    chain: bytes
    key: bytes
    expires_at: datetime

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.chain + b"\0" + self.key).digest()


def read_certificate(certificate: str, key: str) -> ClientCertificate:
    """Read a certificate and its private key. An expired certificate is read too; compare `expires_at`.

    `certificate` may also contain the certificates of its issuers. Raises CertificateError.
    """
    if max(len(certificate), len(key)) > MAX_PEM_CHARS:
        raise CertificateError(f"must have at most {MAX_PEM_CHARS} characters")
    try:
        found = x509.load_pem_x509_certificates(certificate.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateError("must be a certificate in PEM format: -----BEGIN CERTIFICATE-----") from None
    private = _private_key(key)
    public = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    own = [each for each in found if _public(each) == public]
    if not own:
        raise CertificateError("must be the certificate of the private key")
    chain = [own[0], *(each for each in found if each != own[0])]  # TLS sends the own certificate first
    return ClientCertificate(
        b"".join(each.public_bytes(Encoding.PEM) for each in chain),
        key.encode(),
        own[0].not_valid_after_utc,
    )


class Certificates:
    """The TLS contexts of a process that present client certificates. `new` returns a context without one."""

    def __init__(self, new: Callable[[], ssl.SSLContext]) -> None:
        self._new = new
        self._contexts = OrderedDict[bytes, asyncio.Future[ssl.SSLContext]]()

    async def context(self, certificate: ClientCertificate) -> ssl.SSLContext:
        """Return the TLS context of a certificate. A thread makes it, because this takes about 0.1 s.

        Raises TransientError.
        """
        key = certificate.digest
        if key not in self._contexts:
            self._contexts[key] = asyncio.ensure_future(
                asyncio.to_thread(_client_context, certificate, self._new)
            )
            if len(self._contexts) > MAX_CONTEXTS:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(key)
        try:
            return await asyncio.shield(self._contexts[key])
        except (CertificateError, OSError):
            self._contexts.pop(key, None)
            raise TransientError("the certificate cannot be used; send a new one") from None


def _client_context(certificate: ClientCertificate, new: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """Return a TLS context from `new` that also presents the certificate.

    OpenSSL reads the key from a file only. So the key is encrypted with a password that is used once, and the file is
    deleted at once.
    """
    password = secrets.token_bytes(32).hex().encode()
    key = _private_key(certificate.key.decode()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password)
    )
    context = new()
    handle, path = tempfile.mkstemp(prefix="fatura-", suffix=".pem")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(certificate.chain + key)
        context.load_cert_chain(path, password=password)
    finally:
        os.unlink(path)  # noqa: PTH108 - as `mkstemp` returned it
    return context


def _private_key(key: str) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey:
    """Read a private key. Raises CertificateError.

    The check of an RSA key by OpenSSL takes up to a second, so `_fits` checks its numbers instead.
    """
    try:
        found = load_pem_private_key(key.encode(), None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        message = "must be a private key in PEM format without a password: -----BEGIN PRIVATE KEY-----"
        raise CertificateError(message, is_key=True) from None
    if isinstance(found, rsa.RSAPrivateKey) and not (found.key_size in _RSA_BITS and _fits(found)):
        message = f"must be a valid RSA key of {_RSA_BITS[0]} to {_RSA_BITS[-1]} bits"
        raise CertificateError(message, is_key=True)
    if not isinstance(found, (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey)):
        raise CertificateError("must be an RSA or an elliptic-curve key", is_key=True)
    return found


def _fits(key: rsa.RSAPrivateKey) -> bool:
    """Return whether the numbers of an RSA key fit together. It is not checked whether its primes are prime."""
    numbers = key.private_numbers()
    p, q, d, public = numbers.p, numbers.q, numbers.d, numbers.public_numbers
    return (
        min(p, q) > 1
        and p * q == public.n
        and d * public.e % lcm(p - 1, q - 1) == 1
        and (numbers.dmp1, numbers.dmq1) == (d % (p - 1), d % (q - 1))
        and numbers.iqmp * q % p == 1
    )


def _public(certificate: x509.Certificate) -> bytes:
    try:
        return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, UnsupportedAlgorithm):
        return b""
