"""Send own, foreign, unknown and malformed ids in every place where a route takes an id.

Own ids belong to the account that sends the request, foreign ids to other accounts, and unknown ids to no account. The
places come from the OpenAPI document, so new routes and fields are included automatically.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote
from uuid import UUID

from tests.faults import place
from tests.faults.digest import differences, digest
from tests.faults.probes.accounts import MALFORMED, fill_account
from tests.faults.probes.timing import compare_times
from tests.faults.report import Options, Report
from tests.support.account_resources import Owned, id_places, put, valid_bodies
from tests.support.populated import connected
from tests.support.world import Answer, Json, Merchant, World, open_world

KEYS = 20
REQUEST_ID = {"X-Request-Id": "the-same-for-all"}
SAME_ANSWERS = {
    "pricing-test": "the products of this run have fixed prices",
    "/gateways/": "the webhooks of this run are not signed",
}
"""Routes that respond to own and unknown ids alike in this run, with the reason.

Scenarios test these routes with variable products and with signed webhooks.
"""


@dataclass(frozen=True, slots=True)
class Probe:
    """A request in which one id is replaced. `name` is the id's name in the API.

    `where` is the part of the request that contains the id: path, query or body.
    """

    route: str
    where: str
    name: str
    method: str
    path: str
    body: Json
    steps: tuple[str | int, ...] = ()

    async def send(self, merchant: Merchant, sought: str, *, key: str | None = "fresh") -> Answer:
        body = put(self.body, self.steps, sought) if self.steps else self.body
        path = self.path.replace("{sought}", quote(sought, safe=""))
        return await merchant.call(self.method, path, body, headers=REQUEST_ID, key=key)


def probes(document: Json, own: Owned) -> Iterator[Probe]:
    """Yield a probe for each id in the path, query or body of a route. For each GET, also yield a HEAD."""
    bodies = valid_bodies(own)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            route = f"{method} {path}"
            body = bodies[route] if "requestBody" in operation else None
            for probe in _of_operation(route, path, operation, body=body, own=own):
                yield probe
                if method == "get":
                    yield replace(probe, method="HEAD")


def _of_operation(route: str, path: str, operation: Json, *, body: Json, own: Owned) -> Iterator[Probe]:
    parameters = [each for each in operation.get("parameters", []) if "name" in each]
    # in this path, `chargeId` is the engine's id of a charge; in others, it is the gateway's id
    path = path.replace(
        "/invoices/{invoiceId}/charges/{chargeId}", "/invoices/{invoiceId}/charges/{invoiceChargeId}"
    )
    named = re.findall(r"{(\w+)}", path)
    method = route.partition(" ")[0].upper()
    filled = path
    for name in named:
        others = path.replace(f"{{{name}}}", "{sought}")
        for other in named:
            others = others.replace(f"{{{other}}}", own.one(other))
        yield Probe(route, "path", name, method, others, body)
        filled = filled.replace(f"{{{name}}}", own.one(name))
    for each in parameters:
        if each["in"] == "query" and (each["name"] == "cursor" or "uuid" in str(each["schema"])):
            yield Probe(route, "query", each["name"], method, f"{path}?{each['name']}={{sought}}", body)
    for steps in id_places(body):
        yield Probe(route, "body", str(steps[-1]), method, filled, body, steps)


def masked(answer: Answer, sought: str) -> tuple[Any, ...]:
    """Return a response without its date header, and without the requested id if the body repeats it."""
    headers = [(name, value) for name, value in answer.headers.items() if name != "date"]
    body = answer.body.replace(sought.encode(), b"<the id>").replace(sought.lower().encode(), b"<the id>")
    return answer.status, headers, body


def unknown(name: str, chance: random.Random) -> str:
    made = UUID(int=chance.getrandbits(128), version=4)
    return f"sbx_{made.hex}" if name == "chargeId" else str(made)


def run(options: Options) -> Report:
    """Check that responses to foreign and unknown ids differ only in id and date, and that no other account changes."""
    report = Report("probes", options.seed)
    with place.server() as url:
        asyncio.run(_run(url, options, report))
    return report


async def _run(server_url: str, options: Options, report: Report) -> None:
    async with place.database(server_url) as url, open_world(url) as world:
        chance = random.Random(options.seed)  # noqa: S311 - repeatable by seed
        own = await fill_account(world, world)
        others = [
            await fill_account(world, await world.another()) for _ in range(options.pick(short=1, full=3))
        ]
        for other in others:
            await _use_keys(other.merchant)
        cursors = [await _cursors(other.merchant) for other in others]
        before = [await _digest(url, other) for other in others]
        tried = await _probe_foreign(world, own, others, options=options, chance=chance, report=report)
        await _keys_of_others(own.merchant, report=report)
        for each in cursors:
            await _cursors_of_others(world, each, report=report)
        after = [await _digest(url, other) for other in others]
        changed = [table for pair in zip(before, after, strict=True) for table in differences(*pair)]
        tried["own"] = await _own(world, own, chance=chance, report=report)
        for kind in ("own", "foreign", "random", "malformed"):
            report.count(f"probes with {kind} ids", tried[kind], at_least=50)
        report.count("probes", tried.total(), at_least=options.pick(short=500, full=2000))
        report.count("tables of the other accounts that changed", len(changed), at_most=0)
        # No worker runs, so due work remains, and the invariant on due work is not checked.
        broken = set(await world.broken()) - {"due_work_is_claimed_in_an_hour"}
        report.problems += [f"the invariant {name} is violated" for name in broken]
        if options.pick(short=0, full=1):
            await compare_times(world, others[0], chance=chance, report=report)


async def _digest(url: str, owned: Owned) -> Mapping[str, tuple[int, int]]:
    async with connected(url, owned.merchant.account_id) as connection:
        return await digest(connection, owned.merchant.account_id)


async def _probe_foreign(
    world: World,
    own: Owned,
    others: Sequence[Owned],
    *,
    options: Options,
    chance: random.Random,
    report: Report,
) -> Counter[str]:
    """Send foreign, unknown and malformed ids. Return the number of probes of each kind."""
    tried = Counter[str]()
    listed = list(probes((await world.get("/docs-json")).json, own))
    for place_, probe in enumerate(listed):
        if probe.name == "cursor":
            continue
        options.progress(place_, len(listed), probe.route)
        unknown_id = unknown(probe.name, chance)
        expected = {
            form: masked(await probe.send(world, form), form) for form in _id_forms(probe, unknown_id)
        }
        tried["random"] += len(expected)
        foreign = [each for other in others for each in other.ids[probe.name]]
        for sought in foreign if options.pick(short=0, full=1) else chance.sample(foreign, 1):
            for form, like in zip(_id_forms(probe, sought), expected.values(), strict=True):
                tried["foreign"] += 1
                if (found := masked(await probe.send(world, form), form)) != like:
                    report.problems.append(f"{probe} tells {form} from an unknown id: {found} is not {like}")
        for sought in MALFORMED if options.pick(short=0, full=1) else chance.sample(MALFORMED, 3):
            tried["malformed"] += 1
            answer = await probe.send(world, sought)
            wrong = (
                _not_as_unknown(answer, expected[unknown_id])
                if probe.where == "path"
                else answer.status != 400
            )
            if wrong:
                report.problems.append(f"{probe} with {sought!r}: {answer.status} {answer.body!r}")
    return tried


def _id_forms(probe: Probe, sought: str) -> list[str]:
    return [sought, sought.upper()] if probe.where == "path" and probe.method != "HEAD" else [sought]


def _not_as_unknown(answer: Answer, expected: tuple[Any, ...]) -> bool:
    """Return whether the responses to a malformed and an unknown id differ in more than the id."""
    status, headers, body = expected
    kept = {name: value for name, value in headers if name != "content-length"}
    found = {name: value for name, value in answer.headers.items() if name not in {"date", "content-length"}}
    if (answer.status, found) != (status, kept):
        return True
    if not body:
        return bool(answer.body)
    start = body.partition(b"<the id>")[0]
    return not answer.body.startswith(start)


async def _own(world: World, own: Owned, *, chance: random.Random, report: Report) -> int:
    """Send own ids, and return how many. Report each probe that gets the same response to own and unknown ids."""
    tried = 0
    listed = list(probes((await world.get("/docs-json")).json, own))
    # Probes with the id in the body come first, because other probes archive resources that the bodies need.
    for probe in sorted(listed, key=lambda each: each.where != "body"):
        if probe.name == "cursor" or any(mark in probe.path for mark in SAME_ANSWERS):
            continue
        unknown_id = unknown(probe.name, chance)
        expected = masked(await probe.send(world, unknown_id), unknown_id)
        differs = False
        ids = own.ids[probe.name]
        for sought in ids[1:2] if probe.method == "DELETE" else ids:
            tried += 1
            differs = masked(await probe.send(world, sought), sought) != expected or differs
        if not differs:
            report.problems.append(f"{probe} does not reach its resource:  {expected}")
    return tried


async def _use_keys(merchant: Merchant) -> list[Answer]:
    pricing = {"mode": "fixed", "monthlyPriceCents": 1}
    bodies = [{"name": f"Gym {number}", "pricing": pricing} for number in range(KEYS)]
    return [
        await merchant.post("/v1/products", body, key=f"key-{number}") for number, body in enumerate(bodies)
    ]


async def _keys_of_others(merchant: Merchant, *, report: Report) -> None:
    """Send requests with Idempotency-Keys that other accounts have used for the same requests."""
    for answer in await _use_keys(merchant):
        if answer.status != 201 or "Idempotent-Replayed" in answer.headers:
            report.problems.append(f"an Idempotency-Key of another account counts: {answer.body!r}")


async def _cursors(merchant: Merchant) -> list[str]:
    """Return the cursors after the merchant's first 1 to 10 events.

    The run reads them before it compares tables, because the merchant's requests change `api_key.last_used_at`.
    """
    pages = [(await merchant.get(f"/v1/events?limit={limit}")).json for limit in range(1, 11)]
    return [page["nextCursor"] for page in pages]


async def _cursors_of_others(world: World, cursors: Sequence[str], *, report: Report) -> None:
    """Send cursors of another account as account `world`.

    The API must treat these cursors as positions in the stream of `world`.
    """
    mine = [each["id"] for each in await world.events()]
    for number, cursor in enumerate(cursors, 1):
        shown = (await world.get(f"/v1/events?limit=200&cursor={cursor}")).json["data"]
        if [each["id"] for each in shown] != mine[number:]:
            report.problems.append(f"the cursor {cursor} of another account shows {shown}")
