"""An account's events as they happen, read from the replay stream in order, each with its exact bytes (D-38)."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

import msgspec

from fatura.cli.client import ApiAwayError, ApiError, Client

PAGE = 200
POLL_SECONDS = 0.5
AWAY_SECONDS = 1
"""How long an API that does not answer is left in peace."""


@dataclass(frozen=True, slots=True)
class Event:
    """One element of the stream; `body` is it byte for byte, as push would send it."""

    event_id: str
    sequence: int
    type: str
    body: bytes


class _Page(msgspec.Struct):
    data: list[msgspec.Raw]


class _Element(msgspec.Struct):
    id: str
    sequence: int
    type: str


class Stream:
    """Reads one account's events; an API that is away is waited for, and `say` tells so once."""

    def __init__(self, client: Client, *, say: Callable[[str], None]) -> None:
        """Begin, believing that the API answers."""
        self._client = client
        self._say = say
        self._is_away = False

    async def follow(self, after: int) -> AsyncGenerator[Event]:
        """Yield every event after a number, for ever. Raises ApiError."""
        while True:
            events = await self._page(after, limit=PAGE)
            for event in events:
                yield event
                after = event.sequence
            if len(events) < PAGE:
                await asyncio.sleep(POLL_SECONDS)

    async def last_sequence(self) -> int:
        """Return the number of the newest event, 0 when there is none. Raises ApiError.

        Numbers have no gaps (D-37), so a few dozen looks find it, however long the stream is.
        """
        low, high = 0, 1
        while await self._page(high - 1, limit=1):
            low, high = high, high * 2
        while low + 1 < high:
            middle = (low + high) // 2
            if await self._page(middle - 1, limit=1):
                low = middle
            else:
                high = middle
        return low

    async def _page(self, after: int, *, limit: int) -> list[Event]:
        """Read what comes after an event; its number is the cursor that stands there."""
        while True:
            try:
                answer = await self._client.read("GET", f"/v1/events?cursor={after}&limit={limit}")
            except ApiAwayError as error:
                if not self._is_away:
                    self._say(f"{error}; waiting for it")
                self._is_away = True
                await asyncio.sleep(AWAY_SECONDS)
                continue
            if self._is_away:
                self._say("the API answers again")
            self._is_away = False
            return _events(answer)


def _events(answer: bytes) -> list[Event]:
    """Take a page apart; each element stays the bytes that it came as. Raises ApiError."""
    try:
        raws = [bytes(raw) for raw in msgspec.json.decode(answer, type=_Page).data]
        elements = [msgspec.json.decode(raw, type=_Element) for raw in raws]
    except msgspec.DecodeError as error:
        message = "the answer is no page of events; is that Fatura's API?"
        raise ApiError(message) from error
    return [
        Event(element.id, element.sequence, element.type, raw)
        for element, raw in zip(elements, raws, strict=True)
    ]
