"""Remember in memory which API keys a look-up in the database recently accepted or refused (D-48, D-240)."""

import time
from collections.abc import Callable

ACCEPTED_SECONDS = 1
REFUSED_SECONDS = 60
WORKING_SECONDS = 3600
"""A key is exempt from the limit of failed look-ups for this time after the latest request that it authenticated."""
MOST_REMEMBERED = 20_000


class RememberedKeys:
    """A set of hashes of keys. Each hash leaves the set `seconds` after it was last added."""

    __slots__ = ("_clock", "_seconds", "_until")

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns the current time in seconds."""
        self._seconds = seconds
        self._clock = clock
        self._until: dict[bytes, float] = {}  # for each hash, when it leaves the set; earliest first

    def __contains__(self, secret_hash: bytes) -> bool:
        return self._until.get(secret_hash, float("-inf")) > self._clock()

    def add(self, secret_hash: bytes) -> None:
        now = self._clock()
        self._until.pop(secret_hash, None)
        self._until[secret_hash] = now + self._seconds
        while len(self._until) > MOST_REMEMBERED or next(iter(self._until.values())) <= now:
            del self._until[next(iter(self._until))]

    def discard(self, secret_hash: bytes) -> None:
        self._until.pop(secret_hash, None)
