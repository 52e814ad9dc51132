"""Simulate hosts by network namespaces, each connected to the machine by a veth pair. This needs root and `ip`."""

import subprocess
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

FIRST_NETWORK = 210
"""The third byte of the first host's addresses, 10.77.x.0/30."""


class NoNamespacesError(Exception):
    """Network namespaces cannot be created here. The message says why."""


@dataclass(frozen=True, slots=True)
class Host:
    """One host. `within` is the command prefix that runs a program on the host.

    `gateway` is the address at which programs on the host reach the machine.
    """

    within: Sequence[str]
    gateway: str


@contextmanager
def hosts(count: int) -> Generator[Sequence[Host]]:
    """Create hosts, yield them, and remove them. Raises NoNamespacesError."""
    with ExitStack() as made:
        yield [made.enter_context(_host(number)) for number in range(count)]


@contextmanager
def _host(number: int) -> Generator[Host]:
    name, here, there = f"fatura-bench-{number}", f"fbench{number}", f"fbench{number}p"
    network = f"10.77.{FIRST_NETWORK + number}"
    with suppress(NoNamespacesError):  # a killed run may have left the namespace behind
        _ip("netns", "del", name)
    _ip("netns", "add", name)
    try:
        _ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
        _ip("addr", "add", f"{network}.1/30", "dev", here)
        _ip("link", "set", here, "up")
        _ip("-n", name, "addr", "add", f"{network}.2/30", "dev", there)
        _ip("-n", name, "link", "set", there, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield Host(("ip", "netns", "exec", name), f"{network}.1")
    finally:
        _ip("netns", "del", name)


def _ip(*words: str) -> None:
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)  # noqa: S607 - the system's `ip`
    except FileNotFoundError as error:
        message = "`ip` is not installed"
        raise NoNamespacesError(message) from error
    if done.returncode:
        message = f"`ip {' '.join(words)}`: {done.stderr.strip()}"
        raise NoNamespacesError(message)
