"""Say in plain words why a connection or a call failed. Names of exceptions mean nothing to most readers (D-253)."""

import errno
import re
import socket
import ssl


class OwnTextError(Exception):
    """An error whose text may appear in logs. Fatura wrote it, without data of customers, clients or providers."""

    @property
    def log_text(self) -> str:
        return str(self)


_CAUSES = {
    errno.ECONNRESET: "the connection was closed by the other side; try again",
    errno.EPIPE: "the connection was closed by the other side; try again",
    errno.EHOSTUNREACH: "there is no route to the host; check its address and the network",
    errno.ENETUNREACH: "the network cannot be reached; check the connection of this machine",
    errno.ENOENT: "the socket file does not exist; start the server, or correct the path",
}
_REFUSED = re.compile(r"Connect call failed \('([^']+)', (\d+)")
"""Finds host and port in asyncio's text for a refused connection, which names each address that asyncio tried."""
_NO_NAME = "the host name is unknown; check how it is spelt"
_TIMEOUT = "no answer in time; check that the server runs and that no firewall blocks it"
_OTHER = "the connection failed; try again"


def reason_of(error: BaseException) -> str:
    """Return what went wrong and, in most cases, what to do. The text contains no name of an exception."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its TLS certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {getattr(error, 'reason', None) or error.strerror}"
    if isinstance(error, socket.gaierror):
        return _NO_NAME
    if isinstance(error, OSError) and (refused := _REFUSED.search(str(error))):
        return f"nothing answers at {refused[1]} port {refused[2]}; start the server, or correct its host and port"
    if isinstance(error, OSError) and error.errno in _CAUSES:
        return _CAUSES[error.errno]
    if isinstance(error, TimeoutError):
        return _TIMEOUT
    return str(error) or _OTHER
