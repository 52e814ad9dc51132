"""Remember in memory which API keys a look-up in the database recently accepted or refused (D-48, D-240)."""

import time
from collections.abc import Callable

from fatura.domain.credentials import ParsedKey

ACCEPTED_SECONDS = 1
REFUSED_SECONDS = 60
WORKING_SECONDS = 3600
"""A key is exempt from the limit of failed look-ups for this time after the latest request that it authenticated."""
MOST_REMEMBERED = 20_000
_NEVER: tuple[float, None] = (float("-inf"), None)


class RememberedKeys:
    """A set of keys. Each key leaves the set `seconds` after it was last added."""

    __slots__ = ("_clock", "_seconds", "_until")

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns the current time in seconds."""
        self._seconds = seconds
        self._clock = clock
        # for each hash of a key, when the key leaves the set, and the parts of the key; earliest first
        self._until: dict[bytes, tuple[float, ParsedKey]] = {}

    def find(self, secret_hash: bytes) -> ParsedKey | None:
        """Return the parts of the key with this hash, or None if the set does not have the key."""
        until, parsed = self._until.get(secret_hash, _NEVER)
        return parsed if until > self._clock() else None

    def __contains__(self, parsed: ParsedKey) -> bool:
        return self.find(parsed.secret_hash) is not None

    def add(self, parsed: ParsedKey) -> None:
        now = self._clock()
        self._until.pop(parsed.secret_hash, None)
        self._until[parsed.secret_hash] = now + self._seconds, parsed
        while len(self._until) > MOST_REMEMBERED or next(iter(self._until.values()))[0] <= now:
            del self._until[next(iter(self._until))]

    def discard(self, parsed: ParsedKey) -> None:
        self._until.pop(parsed.secret_hash, None)
