"""Limits of the connections that one server holds open: for all clients, and for each network and address (D-200).

A connection either serves a request or waits for its client: the client is idle, sends a request, or reads an answer.
Connections that wait cannot keep other clients out: if too many connections are open, the server closes the connection
that has waited longest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Protocol

from fatura.domain.errors import RATE_LIMITED, UNAVAILABLE, EngineError

MAX_REQUESTS = 2000
"""Maximum number of requests that a server serves at the same time (D-175)."""
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Most:
    """Limits of a group of connections: requests in progress, open connections, and held bytes.

    Held bytes are the bytes of unfinished bodies and unread answers. A group may have more connections than requests,
    so that the server can read a further request and refuse it.
    """

    requests: int
    connections: int
    held_bytes: int


IN_ALL = Most(MAX_REQUESTS, connections=2200, held_bytes=256 * MEBIBYTE)
OF_NETWORK = Most(1000, connections=1100, held_bytes=128 * MEBIBYTE)
OF_ADDRESS = Most(500, connections=550, held_bytes=64 * MEBIBYTE)
_NETWORK_BITS = {4: 24, 6: 48}
_ADDRESS_BITS = {4: 32, 6: 64}
"""Prefix lengths by IP version. One client often has all addresses of an IPv6 /64."""


class Connection(Protocol):
    def abort(self) -> None:
        """Close the connection, and discard the answers that its client has not read."""
        ...


@dataclass(slots=True, eq=False)
class _Group:
    """Connections with common limits.

    `waiting` has the connections that wait for their clients; the first has waited longest. `network` is empty for the
    group of all connections.
    """

    network: str
    most: Most
    refusal: EngineError
    connections: int = 0
    held_bytes: int = 0
    waiting: dict[Connection, None] = field(default_factory=dict[Connection, None])


@dataclass(slots=True)
class _Entry:
    """The groups of a connection, the widest first, and the number of bytes that the server holds for its client."""

    groups: Sequence[_Group]
    held_bytes: int = 0


class Connections:
    """The open connections of one server."""

    __slots__ = ("_all", "_by_network", "_entries", "_held_up", "_limits_addresses")

    def __init__(self, *, limits_addresses: bool) -> None:
        """Behind a proxy, `limits_addresses` must be false, because all clients then have the proxy's address."""
        self._limits_addresses = limits_addresses
        busy = EngineError(
            UNAVAILABLE, "This server serves too many requests now; try again.", retry_after_seconds=1
        )
        self._all = _Group("", IN_ALL, busy)
        self._by_network: dict[str, _Group] = {}
        self._entries: dict[Connection, _Entry] = {}
        self._held_up: set[Connection] = set()

    def add(self, connection: Connection, *, peer: str) -> None:
        """Add a new connection, which waits for its client. `peer` is the client's IP address, or empty.

        If one of the connection's groups is full, close the connection of this group that has waited longest.
        """
        entry = self._entries[connection] = _Entry([self._all, *self._groups_of(peer)])
        for group in entry.groups:
            group.connections += 1
        # Check the narrowest group first: then a client with too many connections loses one of its own connections.
        for group in reversed(entry.groups):
            if group.connections > group.most.connections and group.waiting:
                self._abort(next(iter(group.waiting)))
        self.wait(connection)

    def remove(self, connection: Connection) -> None:
        """Remove a closed connection; do nothing if it was removed before."""
        self._held_up.discard(connection)
        entry = self._entries.pop(connection, None)
        if entry is None:
            return
        for group in entry.groups:
            group.connections -= 1
            group.held_bytes -= entry.held_bytes
            group.waiting.pop(connection, None)
            if group.network and not group.connections:
                del self._by_network[group.network]

    def refusal(self, connection: Connection, *, requests: int) -> EngineError | None:
        """Return the error for a new request of a connection, or None if the request may be served.

        `requests` counts all unfinished requests of the server, including those of slow and disconnected clients.
        """
        if requests - len(self._held_up) >= self._all.most.requests:
            return self._all.refusal
        for group in self._groups(connection):
            others = group.connections - len(group.waiting) - (connection not in group.waiting)
            if others >= group.most.requests:
                return group.refusal
        return None

    def serve(self, connection: Connection) -> None:
        """Note that a connection has a request in progress."""
        self._held_up.discard(connection)
        self._hold(connection, 0)
        for group in self._groups(connection):
            group.waiting.pop(connection, None)

    def wait(self, connection: Connection, *, has_request: bool = False, held_bytes: int = 0) -> None:
        """Note that a connection waits for its client. A connection that already waits keeps its place in the queue.

        `has_request` is true if the connection has an unfinished request: the rest of its body has not arrived, or the
        client does not read the answers. `held_bytes` counts the received part of the body, or the unread part of the
        answers.
        """
        if has_request and connection in self._entries:
            self._held_up.add(connection)
        else:
            self._held_up.discard(connection)
        for group in self._groups(connection):
            group.waiting.setdefault(connection)
        self._hold(connection, held_bytes)

    def _hold(self, connection: Connection, held_bytes: int) -> None:
        """Note the bytes that the server holds for a connection.

        While one of the connection's groups has too many held bytes, close connections of this group that have held
        bytes. The connection that has waited longest is closed first.
        """
        entry = self._entries.get(connection)
        if entry is None or entry.held_bytes == held_bytes:
            return
        for group in entry.groups:
            group.held_bytes += held_bytes - entry.held_bytes
        entry.held_bytes = held_bytes
        for group in reversed(entry.groups):
            while group.held_bytes > group.most.held_bytes:
                self._abort(next(each for each in group.waiting if self._entries[each].held_bytes))

    def _abort(self, connection: Connection) -> None:
        self.remove(connection)
        connection.abort()

    def _groups(self, connection: Connection) -> Sequence[_Group]:
        entry = self._entries.get(connection)
        return () if entry is None else entry.groups

    def _groups_of(self, peer: str) -> list[_Group]:
        if not self._limits_addresses:
            return []
        return [
            self._by_network.setdefault(network, _Group(network, most, _too_many(most)))
            for network, most in zip(_networks(peer), (OF_NETWORK, OF_ADDRESS), strict=False)
        ]


def _too_many(most: Most) -> EngineError:
    detail = f"More than {most.requests} requests from your network are in progress; try again."
    return EngineError(RATE_LIMITED, detail, retry_after_seconds=1)


@lru_cache(maxsize=1024)
def _networks(peer: str) -> tuple[str, ...]:
    """Return the two networks that contain `peer`: with the prefix lengths `_NETWORK_BITS` and `_ADDRESS_BITS`.

    Return none if `peer` is no IP address.
    """
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return ()
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return tuple(
        str(ip_network((address, bits[address.version]), strict=False))
        for bits in (_NETWORK_BITS, _ADDRESS_BITS)
    )
