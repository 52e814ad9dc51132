"""A small API with the engine's HTTP layer, a few routes and two API keys, without a database."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Self, cast
from uuid import UUID

import httpx
import msgspec
from fastapi import FastAPI
from pydantic import Field, model_validator
from starlette.responses import Response

from fatura import bootstrap, settings
from fatura.api.app import create_app
from fatura.api.http.declare import Routes
from fatura.api.http.fields import Cents, Count, ExternalRef, Flag, Id, IntRange, Text, refusals
from fatura.api.http.forms import Body, Paging, unsent
from fatura.api.http.replies import answer
from fatura.api.http.route import Call, KeyPolicy, PathId, read_text_id
from fatura.domain.account import Account, Caller
from fatura.domain.credentials import ALL_SCOPES, Mode
from fatura.domain.errors import GATEWAY_CHOICE_REQUIRED, UNAUTHORIZED, EngineError
from fatura.store.db import DatabaseUnavailableError, DeadlockError, LockTimeoutError
from fatura.usecases.database_clock import DatabaseClock
from fatura.usecases.deps import Deps
from fatura.views.health import AliveView
from tests.support.unlimited import UNLIMITED

KEY, OTHER_KEY = "rk_test_one", "rk_test_other"
CALLERS = {
    KEY: Caller(
        Account(UUID(int=1), Mode.SANDBOX, "BRL", timedelta(0)), UUID(int=11), "checkout", ALL_SCOPES
    ),
    OTHER_KEY: Caller(
        Account(UUID(int=2), Mode.LIVE, "BRL", timedelta(0)), UUID(int=12), "other", ALL_SCOPES
    ),
}
LARGE_BYTES = 20 * 1024 * 1024
PAUSE_SECONDS = 0.3
UNKNOWN_ID = "019a0000-0000-7000-8000-000000000000"
SECRET = "password of the database in /etc/passwd"
FAILURES: dict[str, Callable[[], Exception]] = {
    "bug": lambda: KeyError(SECRET),
    "database": lambda: DatabaseUnavailableError(SECRET),
    "deadlock": lambda: DeadlockError(SECRET),
    "lock": lambda: LockTimeoutError(SECRET),
    "choice": lambda: EngineError(GATEWAY_CHOICE_REQUIRED, "Name one.", meta={"options": []}),
}
routes = Routes("Things", "Things to try.")
ThingId = Annotated[UUID, PathId("thing")]


class ByTable(Body):
    mode: Literal["fixed"]
    cents: Cents


class ByEndpoint(Body):
    mode: Literal["endpoint"]
    cap: Cents


class Discount(Body):
    percent: Annotated[int, IntRange(1, 100)]
    first: Count
    last: Count | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.last is not None and self.last < self.first:
            raise refusals(("last", "must be at least first"))
        return self


class Item(Body):
    product: Id
    discounts: Annotated[tuple[Discount, ...], Field(max_length=2)] = ()


class NewThing(Body):
    name: Annotated[str, Text(1, 120)]
    ref: ExternalRef | None = None
    pricing: Annotated[ByTable | ByEndpoint, Field(discriminator="mode")] | None = None
    items: Annotated[tuple[Item, ...], Field(max_length=2)] = ()
    method: Literal["card", "pix", "boleto"] = "card"
    free: dict[str, Any] = Field(default_factory=dict[str, Any])


class ThingPatch(Body):
    name: Annotated[str, Text(1, 120)] = unsent()
    note: Annotated[str, Text(0, 500)] | None = unsent()


class ThingQuery(Paging):
    archived: Flag | None = None
    plan: Id | None = None


def shown(value: dict[str, Any], *, status: int = 200) -> Response:
    return answer(msgspec.json.encode(value), status=status)


def sent_once(call: Call) -> dict[str, Any]:
    request = call.request
    return {"key": None} if request is None else {"key": request.key, "value": request.body}


@routes.post("/v1/things", "Do it", status=201, answers=AliveView, audit=None, key=KeyPolicy.REQUIRED)
async def create_thing(call: Call, body: NewThing) -> Response:
    """Create a thing."""
    return shown(
        {
            "got": body.name,
            **sent_once(call),
            "target": call.request and call.request.route,
            "account": str(call.account.mode),
            "caller": [call.caller.key_name, call.address],
        },
        status=201,
    )


@routes.get("/v1/things", "Do it", answers=AliveView)
async def list_things(call: Call, query: ThingQuery) -> Response:
    """List things."""
    return shown(
        {"page": query.page, "pageSize": query.page_size, "archived": query.archived, "of": str(query.plan)}
    )


@routes.get("/v1/things/{thingId}", "Do it", answers=AliveView)
async def read_thing(call: Call, thing_id: ThingId) -> Response:
    """Read a thing."""
    return shown({"got": str(thing_id), "onlyReads": call.only_reads})


@routes.patch("/v1/things/{thingId}", "Do it", answers=AliveView, audit=None)
async def patch_thing(call: Call, thing_id: ThingId, body: ThingPatch) -> Response:
    """Change a thing."""
    return shown(body.sent())


@routes.post("/v1/things/{thingId}/archive", "Do it", answers=AliveView, audit=None)
async def archive_thing(call: Call, thing_id: ThingId) -> Response:
    """Archive a thing. The route takes no body."""
    return shown(sent_once(call))


@routes.post("/v1/things/{thingId}/poke", "Do it", answers=AliveView, audit=None, key=KeyPolicy.IGNORED)
async def poke_thing(call: Call, thing_id: Annotated[str, PathId("thing", read_text_id)]) -> Response:
    """Return the id from the path, which may be any text."""
    return shown({"got": thing_id, **sent_once(call)})


@routes.get("/v1/failures/{failure}", "Do it", answers=AliveView)
async def fail(call: Call, failure: Annotated[str, PathId("failure", read_text_id)]) -> Response:
    """Raise one of FAILURES."""
    failed = FAILURES[failure]()
    raise failed


@routes.get("/v1/large", "Do it", answers=AliveView)
async def read_large(call: Call) -> Response:
    """Answer with more bytes than the buffers of the operating system hold."""
    return Response(bytes(LARGE_BYTES))


@routes.get("/v1/waits", "Do it", answers=AliveView)
async def wait(call: Call) -> Response:
    """Answer after a minute."""
    await asyncio.sleep(60)
    return shown({})


@routes.get("/v1/pause", "Do it", answers=AliveView)
async def pause(call: Call) -> Response:
    """Answer after PAUSE_SECONDS."""
    await asyncio.sleep(PAUSE_SECONDS)
    return shown({})


async def authenticate(_deps: Deps, key: str | None, count: Callable[[UUID], None]) -> Caller:
    if key not in CALLERS:
        raise EngineError(UNAUTHORIZED, "Send a valid API key.")
    count(CALLERS[key].account.account_id)
    return CALLERS[key]


def tiny_api(**environ: str) -> FastAPI:
    """Return the application. The keyword arguments are settings, such as FATURA_RATE_LIMIT="2"."""
    nowhere, read = cast("Any", None), settings.read({**UNLIMITED, **environ})
    deps = Deps(
        settings=read,
        db=nowhere,
        vault=nowhere,
        tagger=nowhere,
        providers={},
        url_rules=bootstrap.url_rules(read),
        provider_client=nowhere,
        merchants=nowhere,
        clock=DatabaseClock(lambda: datetime.now(UTC)),
        notify=lambda _lane: None,
    )
    return create_app(deps, resources=[routes], authenticate=authenticate)


def client_of(app: FastAPI, key: str | None = KEY) -> httpx.AsyncClient:
    """Return a client that calls an application in this process."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api", headers=headers)


def fields_of(response: httpx.Response) -> list[tuple[str, str]]:
    """Return the path and message of each invalid field that a 400 response lists."""
    assert response.status_code == 400, response.text
    return [(field["path"], field["message"]) for field in response.json()["meta"]["fields"]]
