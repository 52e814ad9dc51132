"""Events posted one after the other to an address of the person's own, signed as a push is (D-39)."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count

import aiohttp

from fatura import __version__
from fatura.cli.client import Client
from fatura.cli.following import Event, Stream
from fatura.outbound.webhook import WebhookMessage, headers_of

DEADLINE_SECONDS = 10
"""As for a push (D-39)."""
RETRY_SECONDS = (0.5, 1, 2, 5)
"""Between the attempts at one event; the last one for ever."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one post ended: `status` is null when no answer came, and then `error` says why."""

    number: int
    status: int | None
    latency_ms: int
    error: str | None

    @property
    def is_delivered(self) -> bool:
        """Say whether the receiver took the event: any 2xx, as for a push (D-39)."""
        return self.status is not None and HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Where events go, signed with what, and who is told."""

    url: str
    secret: str
    skip_failures: bool
    report: Callable[[Event, Attempt], None]
    say: Callable[[str], None]


@dataclass(slots=True)
class Place:
    """How far the forwarding is: after which event's number, None until that of now is known."""

    after: int | None


async def forward(client: Client, place: Place, *, of: Forwarding) -> None:
    """Post every event after a place, in order, for ever; one that is refused holds up the next. Raises ApiError."""
    stream = Stream(client, say=of.say)
    if place.after is None:
        place.after = await stream.last_sequence()
    of.say(f"forwarding what comes after event {place.after} to {of.url}; Ctrl-C stops")
    timeout = aiohttp.ClientTimeout(total=DEADLINE_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        async for event in stream.follow(place.after):
            for number in count(1):
                attempt = await _post(session, event, number=number, of=of)
                of.report(event, attempt)
                if attempt.is_delivered or of.skip_failures:
                    break
                await asyncio.sleep(RETRY_SECONDS[min(number, len(RETRY_SECONDS)) - 1])
            place.after = event.sequence


async def _post(session: aiohttp.ClientSession, event: Event, *, number: int, of: Forwarding) -> Attempt:
    started = time.monotonic()
    message = WebhookMessage(event.event_id, event.type, number, event.body)
    signed = headers_of(message, secrets=[of.secret], timestamp=int(time.time()))
    headers = {"User-Agent": f"Fatura/{__version__}", **signed}
    try:
        async with session.post(of.url, data=event.body, headers=headers, allow_redirects=False) as response:
            status, error = response.status, None
    except TimeoutError:
        status, error = None, f"no answer within {DEADLINE_SECONDS} seconds"
    except aiohttp.ClientError as failure:
        status, error = None, str(failure) or type(failure).__name__
    return Attempt(number, status, round((time.monotonic() - started) * 1000), error)
