"""Accounts know nothing of each other: another's ids answer like unknown ones, wherever the API takes an id.

The probes are made from the OpenAPI document, so a new route or field is probed without a word here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.account_resources import (
    Owned,
    everything_of,
    id_places,
    own_everything,
    put,
    valid_bodies,
)
from tests.world import Answer, Json, Merchant, World, subscription_body

REQUEST_ID = {"X-Request-Id": "the-same-for-all"}
MALFORMED = (
    "7",
    "null",
    "{01a1fa9d-5cc0-7928-8d93-50141b2fea5d}",
    "urn:uuid:01a1fa9d-5cc0-7928-8d93-50141b2fea5d",
    "01a1fa9d5cc079288d9350141b2fea5d",
    "01a1fa9d-5cc0-7928-8d93-50141b2fea5d%20",
    "01a1fa9d-5cc0-7928-8d93-50141b2fea5%EF%BC%91",
    "%00",
    "'%20OR%201=1--",
    "x" * 300,
)
"""Path ids that no resource can have."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A request with one id in it: `place` says where, `name` whose id the API takes there."""

    route: str
    place: str
    name: str
    method: str
    path: str
    body: Json

    async def send(self, merchant: Merchant, sought: str) -> Answer:
        """Send it with an id."""
        body = put(self.body, _path_of(self.place), sought) if self.place.startswith("body") else self.body
        path = self.path.replace("{sought}", sought)
        return await merchant.call(self.method, path, body, headers=REQUEST_ID)


def _path_of(place: str) -> tuple[str | int, ...]:
    steps = place.split(" ")[1:]
    return tuple(int(step) if step.isdigit() else step for step in steps)


def probes(document: Json, own: Owned) -> Iterator[Probe]:
    """Yield every place of every route where an id goes."""
    bodies = valid_bodies(own)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            route = f"{method} {path}"
            body = bodies[route] if "requestBody" in operation else None
            named = [each["name"] for each in operation.get("parameters", []) if each.get("in") == "path"]
            for name in named:
                filled = path.replace(f"{{{name}}}", "{sought}")
                for other in named:
                    filled = filled.replace(f"{{{other}}}", own.one(other))
                yield Probe(route, "path", name, method.upper(), filled, body)
            for each in operation.get("parameters", []):
                if each.get("in") == "query" and "uuid" in str(each["schema"]):
                    sought = f"{path}?{each['name']}={{sought}}"
                    yield Probe(route, "query", each["name"], method.upper(), sought, body)
            filled = path
            for name in named:
                filled = filled.replace(f"{{{name}}}", own.one(name))
            for place in id_places(body):
                at = " ".join(["body", *map(str, place)])
                yield Probe(route, at, str(place[-1]), method.upper(), filled, body)


def masked(answer: Answer, sought: str) -> tuple[Any, ...]:
    """Return an answer without the date and the id it echoes."""
    headers = [(name, value) for name, value in answer.headers.items() if name != "date"]
    return answer.status, headers, answer.body.replace(sought.encode(), b"<the id>")


@pytest.fixture
async def owned(world: World) -> tuple[Owned, Owned]:
    """Two accounts with one of everything."""
    return await own_everything(world, world), await own_everything(world, await world.another())


async def test_another_accounts_ids_answer_like_unknown_ones(
    world: World, owned: tuple[Owned, Owned]
) -> None:
    """Byte for byte, in path, query and body, whatever state the resource is in. [spec 5.4, spec 5.2, D-11]"""
    own, other = owned
    before = await everything_of(other.merchant)
    document = (await world.get("/docs-json")).json
    seen: set[str] = set()

    for probe in probes(document, own):
        unknown = f"sbx_{uuid4().hex}" if probe.name == "chargeId" else str(uuid4())
        expected = masked(await probe.send(world, unknown), unknown)
        for sought in other.ids[probe.name]:
            assert masked(await probe.send(world, sought), sought) == expected, probe
        status = expected[0]
        assert status == (404 if probe.name != "gatewayConnectionId" else 422) or probe.place == "query", (
            probe
        )
        seen.add(f"{probe.place.partition(' ')[0]} {probe.name}")

    assert seen >= {
        *(f"path {name}" for name in other.ids if name != "gatewayConnectionId"),
        "query invoiceId",
        "query planId",
        "query customerId",
        "query subscriptionId",
        "body planId",
        "body productId",
        "body connectionId",
        "body gatewayConnectionId",
    }
    assert await everything_of(other.merchant) == before
    assert await world.broken() == []


async def test_the_probes_reach_what_they_seek(world: World, owned: tuple[Owned, Owned]) -> None:
    """With the account's own id the same request is not refused as unknown: the probes prove something."""
    own, _ = owned
    document = (await world.get("/docs-json")).json

    for probe in probes(document, own):
        if probe.path.startswith("/gateways/"):
            continue  # what its provider did not sign is never let in: tests/scenarios/test_gateway_webhook.py
        if probe.path.endswith("/pricing-test"):
            continue  # the products here have prices of their own: tests/scenarios/test_price_pull.py
        answer = await probe.send(world, own.ids[probe.name][-1 if probe.method == "DELETE" else 0])
        assert answer.status < 400 or answer.status == 409, (probe, answer.body)


async def test_malformed_path_ids_answer_like_unknown_ones(world: World, owned: tuple[Owned, Owned]) -> None:
    """The same problem, of the same words: nothing tells that the form was wrong. [D-11, spec 5.4]"""
    own, _ = owned
    document = (await world.get("/docs-json")).json

    for probe in probes(document, own):
        if probe.place != "path":
            continue
        unknown = str(uuid4())
        expected = (await probe.send(world, unknown)).json
        del expected["detail"]
        for sought in MALFORMED:
            answer = await probe.send(world, sought)
            found = answer.json
            assert found.pop("detail").startswith("No "), probe
            assert (answer.status, found) == (404, expected), (probe, sought)
            assert answer.headers["content-type"] == "application/problem+json"


async def test_lists_and_streams_show_the_own_account_only(world: World, owned: tuple[Owned, Owned]) -> None:
    """No id of the other account stands anywhere in what an account can read. [spec 5.2]"""
    own, other = owned
    visible = str(await everything_of(world))

    foreign = [each for ids in other.ids.values() for each in ids]
    assert [each for each in foreign if each in visible] == []
    assert own.one("invoiceId") in visible


async def test_a_cursor_of_another_account_shows_the_own_events(
    world: World, owned: tuple[Owned, Owned]
) -> None:
    """A cursor is a place in the own stream, whoever it came from. [spec 5.2, D-38]"""
    _, other = owned
    theirs = (await other.merchant.get("/v1/events?limit=3")).json["nextCursor"]

    found = (await world.get(f"/v1/events?cursor={theirs}&limit=1")).json["data"]

    assert found == (await world.events())[3:4]


async def test_references_of_clients_are_their_own(world: World) -> None:
    """One customer reference in two accounts is two customers, one Idempotency-Key two requests. [spec 5.2, D-14]"""
    other = await world.another()
    found: list[Json] = []
    for merchant in (world, other):
        plan = await merchant.plan()
        body = subscription_body(plan)
        body["customer"]["externalRef"] = "customer-1"
        answer = await merchant.post("/v1/subscriptions", body, key="one-key-for-all")
        assert (answer.status, answer.headers.get("Idempotent-Replayed")) == (201, None)
        found.append(answer.json)

    assert found[0]["customer"]["id"] != found[1]["customer"]["id"]
    assert found[0]["id"] != found[1]["id"]


async def test_a_key_of_one_account_opens_no_other(world: World) -> None:
    """A key whose account part is swapped for another's is no key. [spec 5.2, spec 5.3]"""
    other = await world.another()
    mine, theirs = world.api_key.split("_"), other.api_key.split("_")
    forged = "_".join([*mine[:2], theirs[2], *mine[3:]])

    answer = await world.get("/v1/integration", headers={"Authorization": f"Bearer {forged}"})

    assert (answer.status, answer.type) == (401, "engine.unauthorized")
