"""Connect to a merchant's server: resolve the host, check every address, connect to one of them (D-47)."""

import asyncio
import errno
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any

import aiodns

from fatura.domain.endpoint_url import Target
from fatura.domain.public_address import may_call
from fatura.observability import log
from fatura.outbound.http.connection import Connection
from fatura.outbound.http.exchange import DEADLINE_SECONDS, OutOfResourcesError

Resolver = Callable[[str], Awaitable[Sequence[str]]]
"""Returns a host's addresses; raises OSError if the host has none."""

LOOKUP_SECONDS = 5
"""Deadline of a lookup including its retries."""
LOOKUP_REPEAT_SECONDS = 1.5
LOOKUP_TRIES = 3
MAX_ADDRESSES = 4
"""Maximum number of a host's addresses that are tried, one after another."""
ATTEMPT_SECONDS = 3
"""Connect timeout of each address. Only the last address that is tried has another timeout, DEADLINE_SECONDS."""
KERNEL_BUFFER_BYTES = 64 * 1024
"""Size of a socket's receive buffer; by default it can grow to megabytes."""
CONNECTS_A_TURN = 16
"""Maximum number of connections started in one iteration of the event loop; thousands at once would block the loop."""


class NoConnectionError(Exception):
    """No connection was made. The message is for the operator's log only; the merchant gets UNREACHABLE."""


_LOCAL_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENETDOWN})
"""Errors caused by this machine's limits or its network interface, not by the merchant."""
LOG_EVERY_SECONDS = 60
"""Minimum time between two log lines that say that this process cannot open connections."""
UNREACHABLE = (
    "could not connect: check the host's name, that its addresses are public, its port and its certificate"
)
"""The error that a merchant sees for every failed connection: one text, to hide which ports are open (D-215)."""


def trusting_context() -> ssl.SSLContext:
    """Return a TLS context that requires TLS 1.2 or newer and verifies certificates with the system's authorities."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


class AresResolver:
    """Resolves hosts with c-ares, which also reads the hosts file. A slow name server does not block a thread."""

    def __init__(self, *, nameservers: Sequence[str] | None = None) -> None:
        """By default, use the system's name servers. The first lookup needs a running event loop."""
        self._nameservers = nameservers
        self._opened: aiodns.DNSResolver | None = None

    async def __call__(self, host: str) -> Sequence[str]:
        """Return the IPv4 and IPv6 addresses. Raises OSError."""
        if self._opened is None:
            self._opened = aiodns.DNSResolver(
                self._nameservers, timeout=LOOKUP_REPEAT_SECONDS, tries=LOOKUP_TRIES
            )
        try:
            found: Any = await self._opened.getaddrinfo(host, type=socket.SOCK_STREAM)
        except aiodns.error.DNSError as error:
            raise OSError(str(error)) from error
        addresses: list[str | bytes] = [node.addr[0] for node in found.nodes]
        return [each.decode() if isinstance(each, bytes) else each for each in addresses]

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None


def _reason(error: OSError) -> str:
    return str(error) or type(error).__name__


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class Dialer:
    """Opens connections for all sessions of a process."""

    def __init__(
        self,
        *,
        resolver: Resolver | None,
        ssl_context: ssl.SSLContext | None,
        denied: Collection[IPv4Network | IPv6Network],
    ) -> None:
        """`denied` are networks that are never called, not even for a target with `is_exempt`."""
        self._denied = denied
        self._ares = AresResolver()
        self._resolver = resolver or self._ares
        self._ssl_context = ssl_context
        self._turns = asyncio.Semaphore(CONNECTS_A_TURN)
        self._log_again_at = time.monotonic()

    async def look_up(self, host: str) -> Sequence[str]:
        """Return the addresses of a host, or the host itself if it is an IP address.

        Raises NoConnectionError, OutOfResourcesError.
        """
        if _is_address(host):
            return [host]
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                return await self._resolver(host)
        except OSError as error:  # this includes TimeoutError
            self._check_descriptors()  # the resolver's error does not say whether the resolver could open a socket
            raise NoConnectionError(f"no address: {_reason(error)}") from error

    def candidates(self, target: Target, addresses: Sequence[str]) -> Sequence[str]:
        """Return the addresses that `dial` tries, IPv4 first.

        Raises NoConnectionError if `addresses` is empty, or if one of them must not be called.
        """
        refused = [each for each in addresses if not self._may_call(target, each)]
        if refused or not addresses:
            raise NoConnectionError(
                f"addresses that may not be called: {', '.join(refused) or 'none was found'}"
            )
        return sorted(addresses, key=lambda address: ":" in address)[:MAX_ADDRESSES]

    def _may_call(self, target: Target, address: str) -> bool:
        return may_call(address, is_exempt=target.is_exempt, denied=self._denied)

    def _check_descriptors(self) -> None:
        """Check that this process can open a socket. Raises OutOfResourcesError."""
        try:
            socket.socket().close()
        except OSError as error:
            raise self._out_of_resources(error) from error

    def _out_of_resources(self, error: OSError) -> OutOfResourcesError:
        now = time.monotonic()
        if now >= self._log_again_at:
            self._log_again_at = now + LOG_EVERY_SECONDS
            advice = "raise the limits of open files and memory of this process, and check the host's network"
            log.error("outbound.out_of_resources", reason=error, advice=advice)
        return OutOfResourcesError(str(error))

    async def dial(self, target: Target, candidates: Sequence[str]) -> Connection:
        """Connect to the first address that accepts the connection. Raises NoConnectionError, OutOfResourcesError."""
        async with self._turns:
            await asyncio.sleep(0)
        failures: list[str] = []
        for place, address in enumerate(candidates, 1):
            seconds = ATTEMPT_SECONDS if place < len(candidates) else DEADLINE_SECONDS
            try:
                async with asyncio.timeout(seconds):
                    return await self._connect(target, address)
            except OSError as error:  # this includes TimeoutError and ssl.SSLError
                if error.errno in _LOCAL_ERRORS and not isinstance(error, ssl.SSLError):
                    raise self._out_of_resources(error) from error
                failures.append(f"{address}: {_reason(error)}")
                if isinstance(error, ssl.SSLError):
                    break
        raise NoConnectionError("; ".join(failures))

    async def _connect(self, target: Target, address: str) -> Connection:
        """Connect to a checked address. The host is not resolved again: a new answer could be a private address."""
        if not self._may_call(target, address):
            raise NoConnectionError(f"{address} may not be called")
        loop = asyncio.get_running_loop()
        tls = self._tls() if target.scheme == "https" else None
        opened = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            opened.settimeout(0)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER_BYTES)
            await loop.sock_connect(opened, (address, target.port))
        except BaseException:
            opened.close()
            raise
        _, connection = await loop.create_connection(
            partial(Connection, address),
            sock=opened,
            ssl=tls,
            server_hostname=target.host if tls else None,
            ssl_handshake_timeout=DEADLINE_SECONDS if tls else None,
            ssl_shutdown_timeout=1 if tls else None,
        )
        return connection

    async def close(self) -> None:
        await self._ares.close()

    def _tls(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            # without a free descriptor, the kept context would lack the certificate authorities for all later calls
            self._check_descriptors()
            self._ssl_context = trusting_context()
        return self._ssl_context
