"""The HTTP server of a simulated provider. Any request to it can fail before, during or after its work."""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web

from tests.doubles.contract import Contract, Exchange

Json = dict[str, Any]
_ENCODER = msgspec.json.Encoder(decimal_format="number")


class Loss(StrEnum):
    """How a simulated request fails."""

    REQUEST = "request"
    """The connection breaks before the provider does anything."""
    ANSWER = "answer"
    """The provider does the work, but the connection breaks before the answer."""
    SLOW = "slow"
    """The provider does the work, and answers much too late."""
    RATE = "rate"
    """The provider limits the rate: 429."""
    ERROR_BEFORE = "error_before"
    """503, and the provider did nothing."""
    ERROR_AFTER = "error_after"
    """502, although the provider did the work."""
    JUNK = "junk"
    """200 with a body that is not JSON, although the provider did the work."""


@dataclass(slots=True)
class Fault:
    """The next request with this method, whose path matches, fails. `skip` such requests succeed before it."""

    method: str
    path: str
    loss: Loss
    skip: int = 0


@dataclass(slots=True, kw_only=True)
class Double:
    """The state of the server. `fails` decides about each request for which no fault is queued.

    A subclass says in `answered` what the provider does. The paths that tests name lack the `prefix`.
    """

    prefix: ClassVar[str] = ""
    error_type: ClassVar[str] = "application/json"
    contract: Contract | None = None
    url: str = ""
    faults: list[Fault] = field(default_factory=list[Fault])
    fails: Callable[[str, str], Loss | None] = lambda _method, _path: None
    pause_seconds: Callable[[], float] = lambda: 0
    """Returns how long the server waits before it does the work of a request, and again before it answers."""
    requests: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    last: web.Request | None = None
    violations: list[str] = field(default_factory=list[str])
    edit: Callable[[Any], None] = lambda _answer: None
    """Changes each answer before it is sent, for example to add a field."""

    def answered(self, request: web.Request, path: str, sent: bytes) -> tuple[int, Any]:
        """Do the work of a request, and return the status and the JSON of the answer."""
        raise NotImplementedError

    def documented_path(self, request: web.Request, status: int) -> str | None:
        """Return the path of a request in the provider's document, or None if the exchange is not checked."""
        _ = status
        return request.path

    def fail_next(self, method: str, path: str, loss: Loss) -> None:
        self.faults.append(Fault(method, path, loss))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path, sent = request.path.removeprefix(self.prefix), await request.read()
        self.requests.append((request.method, path))
        self.last = request
        loss = self._loss_of(request.method, path)
        if loss is Loss.REQUEST:
            return _broken(request)
        if loss is Loss.RATE:
            return web.Response(status=429, body=b"{}", content_type="application/json")
        if loss is Loss.ERROR_BEFORE:
            return web.Response(status=503, text="<html>Service Unavailable</html>")
        await asyncio.sleep(self.pause_seconds())
        if request.transport is None:
            return web.Response()  # the client died before the provider did anything
        status, answer = self.answered(request, path, sent)
        await asyncio.sleep(self.pause_seconds())
        if loss is Loss.ANSWER:
            return _broken(request)
        if loss is Loss.ERROR_AFTER:
            return web.Response(status=502, text="<html>Bad Gateway</html>")
        if loss is Loss.JUNK:
            return web.Response(text="<html>OK</html>")
        if loss is Loss.SLOW:
            await asyncio.sleep(3600)
        return self._reply(request, sent, status, answer)

    def _reply(self, request: web.Request, sent: bytes, status: int, answer: Any) -> web.Response:
        answer = json.loads(_ENCODER.encode(answer), parse_float=Decimal)
        self.edit(answer)
        encoded = _ENCODER.encode(answer)
        path = self.documented_path(request, status)
        if self.contract is not None and path is not None:
            exchange = Exchange(request.method, path, query_of(request), sent, status, encoded)
            self.violations += self.contract.violations(exchange)
        kind = self.error_type if status >= 400 else "application/json"
        return web.Response(status=status, body=encoded, content_type=kind)

    def _loss_of(self, method: str, path: str) -> Loss | None:
        for fault in self.faults:
            if fault.method == method and re.fullmatch(fault.path, path):
                if not fault.skip:
                    self.faults.remove(fault)
                    return fault.loss
                fault.skip -= 1
        return self.fails(method, path)


def query_of(request: web.Request) -> Json:
    return dict(parse_qsl(request.query_string))


def _broken(request: web.Request) -> web.Response:
    """Break the connection of a request, so that no answer arrives."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@asynccontextmanager
async def served(double: Double, context: ssl.SSLContext | None = None) -> AsyncGenerator[None]:
    """Run the server on a free port of localhost, with TLS if there is a `context`. Set the double's `url`."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", double.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        origin = "http://127.0.0.1" if context is None else "https://localhost"
        double.url = f"{origin}:{runner.addresses[0][1]}"
        yield
    finally:
        await runner.cleanup()
        await asyncio.sleep(0)
