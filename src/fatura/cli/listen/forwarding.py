"""Post events one after the other to a URL, signed like webhooks (D-39)."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count

import aiohttp

from fatura import __version__
from fatura.cli.client import Client, why_unanswered
from fatura.cli.event_stream import Stream, StreamEvent
from fatura.outbound.webhook import WebhookMessage, headers_of

SHOWN_BYTES = 1000
"""Maximum number of bytes of a response's body that are kept."""
BODY_SECONDS = 1
"""Maximum wait for the body after the headers. An event is delivered even if the body does not arrive (D-117)."""
DEADLINE_SECONDS = 10
"""Timeout of one request, the same as for webhooks (D-39)."""
RETRY_SECONDS = (0.5, 1, 2, 5)
"""Pauses between the attempts to deliver one event. Every further pause is 5 seconds."""


@dataclass(frozen=True, slots=True)
class Post:
    """The result of one request; without a response, `status` is None and `error` says why.

    `body` is the beginning of the response's body.
    """

    number: int
    status: int | None
    latency_ms: int
    error: str | None
    body: str = ""

    @property
    def is_delivered(self) -> bool:
        return self.status is not None and HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Where and how to post events; `report` is called for every attempt."""

    url: str
    secret: str
    skip_failures: bool
    report: Callable[[StreamEvent, Post], None]
    print_note: Callable[[str], None]


@dataclass(slots=True)
class Position:
    """`forward` posts events with numbers above `after`. If `after` is None, it posts only newer events."""

    after: int | None


async def forward(client: Client, position: Position, *, of: Forwarding) -> None:
    """Post every event after `position`, in order and without end. Retry failures unless `skip_failures` is set.

    Raises ApiError.
    """
    stream = Stream(client, print_note=of.print_note)
    if position.after is None:
        position.after = await stream.last_sequence()
    of.print_note(f"forwarding events after number {position.after} to {of.url}; press Ctrl-C to stop")
    timeout = aiohttp.ClientTimeout(total=DEADLINE_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        async for event in stream.follow(position.after):
            for number in count(1):
                post = await _post(session, event, number=number, of=of)
                of.report(event, post)
                if post.is_delivered or of.skip_failures:
                    break
                await asyncio.sleep(RETRY_SECONDS[min(number, len(RETRY_SECONDS)) - 1])
            position.after = event.sequence


async def _post(session: aiohttp.ClientSession, event: StreamEvent, *, number: int, of: Forwarding) -> Post:
    started = time.monotonic()
    message = WebhookMessage(event.event_id, event.type, number, event.body)
    signed = headers_of(message, secrets=[of.secret], timestamp=int(time.time()))
    headers = {"User-Agent": f"Fatura/{__version__}", **signed}
    try:
        async with session.post(of.url, data=event.body, headers=headers, allow_redirects=False) as response:
            status, error, body = response.status, None, await _beginning(response)
    except TimeoutError:
        status, error, body = None, f"no answer within {DEADLINE_SECONDS} seconds", ""
    except aiohttp.ClientError as failure:
        status, error, body = None, why_unanswered(failure), ""
    return Post(number, status, round((time.monotonic() - started) * 1000), error, body)


async def _beginning(response: aiohttp.ClientResponse) -> str:
    found = b""
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(BODY_SECONDS):
            while len(found) < SHOWN_BYTES and (
                more := await response.content.read(SHOWN_BYTES - len(found))
            ):
                found += more
    return found.decode("utf-8", "replace")
