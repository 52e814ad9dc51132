"""Run API processes and a worker on one database, and keep their logs."""

import asyncio
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from fatura import settings
from fatura.bootstrap import open_account
from fatura.domain.credentials import Mode
from fatura.usecases.accounts.accounts import OpenedAccount
from tests.faults import breaks
from tests.support.fatura_processes import Running, environment, free_port, running, serves
from tests.support.operator import OPERATOR
from tests.support.postgres_processes import until
from tests.support.unlimited import LOOPBACK, UNLIMITED


@dataclass(slots=True)
class Stack:
    """The running processes. `folder` contains the logs of all processes, including those that have ended."""

    url: str
    folder: Path
    variables: dict[str, str]
    ring: str
    apis: dict[int, tuple[Running, ExitStack]] = field(default_factory=dict[int, tuple[Running, ExitStack]])
    metrics_ports: dict[int, int] = field(default_factory=dict[int, int])
    """The port of the metrics of each API, by the API's own port."""
    worker: tuple[Running, ExitStack] | None = None
    _started: int = 0

    def environment(self) -> dict[str, str]:
        own = {**breaks.environment(), "FATURA_SECRET_KEYS": self.ring}
        return environment(self.url, **self.variables) | own

    def start_api(self, port: int) -> None:
        self.metrics_ports[port] = free_port()
        self.apis[port] = self._start(
            "api", "--port", str(port), "--metrics-port", str(self.metrics_ports[port])
        )
        until(lambda: serves(port), seconds=180)

    def start_worker(self) -> None:
        self.worker = self._start("worker")

    def restart_all(self) -> None:
        """Restart the processes one after another, with the current key ring."""
        for port in [*self.apis]:
            running_, stack = self.apis.pop(port)
            running_.stop()
            stack.close()
            self.start_api(port)
        assert self.worker is not None
        self.worker[0].stop()
        self.worker[1].close()
        self.start_worker()

    def logs(self) -> Iterator[tuple[str, str]]:
        for path in sorted(self.folder.glob("*.log")):
            for line in path.read_text(errors="replace").splitlines():
                yield path.name, line

    async def open_account(self) -> OpenedAccount:
        read = settings.read({"FATURA_SECRET_KEYS": self.ring})
        return await open_account(read, self.url, name="Test", mode=Mode.SANDBOX, opened_by=OPERATOR)

    def _start(self, *arguments: str) -> tuple[Running, ExitStack]:
        self._started += 1
        stack = ExitStack()
        output = self.folder / f"{self._started:02}-{arguments[0]}.log"
        started = running(*arguments, env=self.environment(), output=output, module="tests.faults.breakable")
        return stack.enter_context(started), stack


@contextmanager
def open_stack(url: str, folder: Path, *, ring: str, apis: int = 2, **variables: str) -> Generator[Stack]:
    """Run `apis` APIs and a worker during the block."""
    stack = Stack(url, folder, {**UNLIMITED, "FATURA_OUTBOUND_ALLOW": LOOPBACK, **variables}, ring)
    try:
        for _ in range(apis):
            stack.start_api(free_port())
        stack.start_worker()
        yield stack
    finally:
        for _, each in [*stack.apis.values(), *([stack.worker] if stack.worker else [])]:
            each.close()


class Client:
    """Sends each request to the next API process.

    If a request gets no response, the client repeats it at another API process.
    """

    def __init__(self, stack: Stack, api_key: str) -> None:
        self._stack = stack
        self._http = httpx.AsyncClient(timeout=30, limits=httpx.Limits(max_keepalive_connections=0))
        self.api_key = api_key
        self._next = 0
        self.answers: list[httpx.Response] = []

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """Send a request, and repeat it until an API process answers. All repeats have the same Idempotency-Key."""
        sent = {"Authorization": f"Bearer {self.api_key}"}
        if method == "POST":
            sent["Idempotency-Key"] = str(uuid4())
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        while True:
            ports: Sequence[int] = [*self._stack.apis] or [1]
            self._next += 1
            url = f"http://127.0.0.1:{ports[self._next % len(ports)]}{path}"
            try:
                answer = await self._http.request(method, url, json=body, headers=sent)
            except httpx.TransportError:
                await asyncio.sleep(0.05)  # try the other API while this one restarts
                continue
            self.answers.append(answer)
            return answer

    async def close(self) -> None:
        await self._http.aclose()
