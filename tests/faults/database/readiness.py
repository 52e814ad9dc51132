"""What a load balancer sees: `/health/ready` and `/health` asked ten times a second while faults go on."""

import asyncio
from dataclasses import dataclass, field
from time import monotonic

import httpx

EVERY_SECONDS = 0.1
PATIENCE_SECONDS = 5


@dataclass(slots=True, eq=False)
class Readiness:
    """All that was seen: when each question was asked and answered, and with what status."""

    url: str
    seen: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """The instant of each answer of `/health/ready`, and its status."""
    deaths: list[str] = field(default_factory=list[str])
    """What `/health` ever answered but 200."""

    async def watch(self) -> None:
        """Ask until canceled."""
        async with httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_SECONDS) as http:
            while True:
                await asyncio.gather(self._ready(http), self._alive(http), asyncio.sleep(EVERY_SECONDS))

    async def until(self, status: int, *, since: float, within_seconds: float) -> float | None:
        """Wait for a status after an instant, and return after how many seconds it came; None: it did not."""
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
            self.deaths.append(repr(error))
            return
        if status != 200:
            self.deaths.append(str(status))
