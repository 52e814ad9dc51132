"""Call the ASGI application without a socket."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def type(self) -> str:
        return self.json.get("type", "") if self.status >= 400 else ""


async def request(app: ASGIApp, method: str, path: str, *, headers: Mapping[str, str], body: bytes) -> Answer:
    target, _, query = path.partition("?")
    sent = {**headers, "Host": "fatura.test", "Content-Length": str(len(body))}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": target,
        "raw_path": target.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
        "client": ("127.0.0.1", 1),
        "server": ("fatura.test", 80),
        "state": {},
    }
    incoming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    outgoing: list[Message] = []

    async def receive() -> Message:
        if incoming:
            return incoming.pop()
        return await asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        outgoing.append(message)
        await asyncio.sleep(0)

    await app(scope, receive, send)
    status = next(each["status"] for each in outgoing if each["type"] == "http.response.start")
    whole = b"".join(each.get("body", b"") for each in outgoing if each["type"] == "http.response.body")
    return Answer(status, whole)
