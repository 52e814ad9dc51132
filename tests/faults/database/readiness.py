"""Poll `/health/ready` and `/health` ten times per second, as a load balancer does."""

import asyncio
from dataclasses import dataclass, field
from time import monotonic

import httpx

EVERY_SECONDS = 0.1
PATIENCE_SECONDS = 5


@dataclass(slots=True, eq=False)
class Readiness:
    url: str
    seen: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """Time and status of each response of `/health/ready`."""
    failures: list[str] = field(default_factory=list[str])
    """The status or exception of each request to `/health` that did not get a 200."""

    async def watch(self) -> None:
        async with httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_SECONDS) as http:
            while True:
                await asyncio.gather(self._ready(http), self._alive(http), asyncio.sleep(EVERY_SECONDS))

    async def until(self, status: int, *, since: float, within_seconds: float) -> float | None:
        """Wait for the first response after `since` that has `status`.

        Return the number of seconds from `since` to this response, or None if no such response arrives in time.
        """
        while monotonic() < since + within_seconds:
            came = [at for at, seen in self.seen if at >= since and seen == status]
            if came:
                return came[0] - since
            await asyncio.sleep(EVERY_SECONDS / 2)
        return None

    async def _ready(self, http: httpx.AsyncClient) -> None:
        try:
            status = (await http.get("/health/ready")).status_code
        except httpx.TransportError:
            status = 0
        self.seen.append((monotonic(), status))

    async def _alive(self, http: httpx.AsyncClient) -> None:
        try:
            status = (await http.get("/health")).status_code
        except httpx.TransportError as error:
            self.failures.append(repr(error))
            return
        if status != 200:
            self.failures.append(str(status))
