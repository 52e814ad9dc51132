"""Follow an account's event stream by polling GET /v1/events (D-38)."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from fatura.cli.client import ApiError, ApiUnavailableError, Client

PAGE = 200
POLL_SECONDS = 0.5
RETRY_SECONDS = 1
"""Pause between two tries of a call while the API is unavailable."""


class StreamEvent(msgspec.Struct, frozen=True, rename={"event_id": "id"}):
    """One event; `body` is byte for byte what a webhook would deliver."""

    event_id: str
    sequence: int
    type: str
    body: bytes = b""

    def parsed(self) -> Any:
        return json.loads(self.body)


class _Page(msgspec.Struct, rename="camel"):
    data: list[msgspec.Raw]
    complete_from: int = 1


@dataclass(frozen=True, slots=True)
class _Events:
    """A part of the stream; `complete_from` is the number of the oldest event that is not deleted."""

    events: list[StreamEvent]
    complete_from: int


class Stream:
    """Reads one account's events, or only those of one type.

    While the API is unavailable, the stream retries each call. `print_note` gets one note when an outage begins, and
    another when it ends.
    """

    def __init__(
        self, client: Client, *, print_note: Callable[[str], None], type_: str | None = None
    ) -> None:
        self._client = client
        self._filter = "" if type_ is None else f"&type={type_}"
        self._print_note = print_note
        self._is_unavailable = False

    async def follow(self, after: int) -> AsyncGenerator[StreamEvent]:
        """Yield every event whose number is above `after`, then each new event, without end. Raises ApiError."""
        while True:
            events = (await self._page(after, limit=PAGE, query=self._filter)).events
            for event in events:
                yield event
                after = event.sequence
            if len(events) < PAGE:
                await asyncio.sleep(POLL_SECONDS)

    async def until(self, after: int, last: int) -> AsyncGenerator[StreamEvent]:
        """Yield the events whose numbers are above `after` and at most `last`. Raises ApiError."""
        while events := (await self._page(after, limit=PAGE, query=self._filter)).events:
            for event in events:
                if event.sequence > last:
                    return
                yield event
                after = event.sequence

    async def last_sequence(self) -> int:
        """Return the number of the newest event, 0 when there is none. Raises ApiError.

        Event numbers have no gaps (D-37), so a binary search finds the newest with a few dozen calls.
        """
        first = (await self._page(0, limit=1)).complete_from  # events with lower numbers are deleted
        low, step = first - 1, 1
        while (await self._page(low + step - 1, limit=1)).events:
            low, step = low + step, step * 2
        high = low + step
        while low + 1 < high:
            middle = (low + high) // 2
            if (await self._page(middle - 1, limit=1)).events:
                low = middle
            else:
                high = middle
        return low

    async def _page(self, after: int, *, limit: int, query: str = "") -> _Events:
        """Return up to `limit` events whose numbers are above `after`. The API takes an event's number as cursor."""
        while True:
            try:
                answer = await self._client.read("GET", f"/v1/events?cursor={after}&limit={limit}{query}")
            except ApiUnavailableError as error:
                if not self._is_unavailable:
                    self._print_note(f"{error}; waiting for it")
                self._is_unavailable = True
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if self._is_unavailable:
                self._print_note("the API answers again")
            self._is_unavailable = False
            return _events(answer)


def _events(answer: bytes) -> _Events:
    """Split a page into events without changing their bytes. Raises ApiError."""
    try:
        page = msgspec.json.decode(answer, type=_Page)
        raws = [bytes(raw) for raw in page.data]
        events = [replace(msgspec.json.decode(raw, type=StreamEvent), body=raw) for raw in raws]
        return _Events(events, page.complete_from)
    except msgspec.DecodeError as error:
        raise ApiError("the answer is not a page of events; is this the URL of a Fatura API?") from error
