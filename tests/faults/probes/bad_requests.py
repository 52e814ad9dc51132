"""Send generated bad requests. No request may cause a 5xx or reveal secrets, and no refused request may change data."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import Any

import uvloop

from fatura.domain.errors import INVOICE_NOT_CANCELABLE, INVOICE_NOT_PAYABLE, INVOICE_NOT_REISSUABLE
from fatura.observability import configure_logs
from tests.faults import place
from tests.faults.digest import differences, digest
from tests.faults.probes import bad_bytes
from tests.faults.probes.judge import Answer, Judge
from tests.faults.probes.mutations import Mutator, Wire
from tests.faults.probes.watched import ask, open_watched
from tests.faults.report import Options, Report
from tests.support.account_resources import Owned, own_everything, valid_bodies
from tests.support.populated import connected
from tests.support.world import Json, Merchant, World, plan_body

PROCESSES = 2
SENT_AGAIN = 500
"""How many of the most recent refused requests are repeated at the end, to check that they change no row."""
MOST_REPEATS = 5
CANCELS_CHARGES = {
    "post /v1/invoices/{invoiceId}/cancel": INVOICE_NOT_CANCELABLE,
    "post /v1/invoices/{invoiceId}/reissue": INVOICE_NOT_REISSUABLE,
    "post /v1/invoices/{invoiceId}/payments": INVOICE_NOT_PAYABLE,
}
"""Routes that cancel a charge at the gateway, each with the problem that the API returns if the gateway refuses."""
ADVANCE = "post /v1/test-clock/advance"
CALLS_OUT = ("pricing-test", "retry-pricing")
"""Routes that call a merchant's endpoint. The run skips these routes: their rate limit would refuse most requests."""


@dataclass(slots=True)
class Found:
    asked: int = 0
    refused: Counter[int] = field(default_factory=Counter[int])
    accepted: int = 0
    asked_after: int = 0
    problems: list[str] = field(default_factory=list[str])


def run(options: Options) -> Report:
    report = Report("bad-requests", options.seed)
    count = options.pick(short=3_000, full=100_000)
    processes = options.pick(short=1, full=PROCESSES)
    with place.server() as url:
        seeds = range(options.seed * 1000, options.seed * 1000 + processes)
        shares = [(url, seed, count // processes) for seed in seeds]
        if processes == 1:
            found = [_share(shares[0])]
        else:
            with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
                found = list(pool.map(_share, shares))
        by_socket = bad_bytes.send_all(url, options)
    refused = sum((each.refused for each in found), Counter[int]())
    report.count("bad requests", sum(each.asked for each in found), at_least=count)
    for status, number in sorted(refused.items()):
        report.count(f"refused with {status}", number)
    report.count("refused", refused.total(), at_least=count // 2)
    report.count("accepted, because the mutation was still valid", sum(each.accepted for each in found))
    report.count("cancels that the gateway refused", sum(each.asked_after for each in found))
    report.count("raw requests over a socket", by_socket.asked, at_least=options.pick(short=100, full=1000))
    for each in (*found, by_socket):
        report.problems += each.problems
    return report


def _share(share: tuple[str, int, int]) -> Found:
    url, seed, count = share
    configure_logs(level="error")
    return uvloop.run(_send(url, seed, count))


async def _send(server_url: str, seed: int, count: int) -> Found:
    found = Found()
    async with place.database(server_url) as url, open_watched(url) as (world, app):
        chance = random.Random(seed)  # noqa: S311 - repeatable by seed
        own, other = await own_everything(world, world), await own_everything(world, await world.another())
        clock = await _advancing_clock(world)
        await world.sql("UPDATE api_key SET last_used_at = '2100-01-01'")
        document = (await world.get("/docs-json")).json
        judge = Judge(document, _secrets(world, other), await _names(world))
        bad = Mutator(chance, _answered_fields(document))
        valid = [*_valid_requests(document, own, clock)]
        last: list[Wire] = []
        for number in range(count):
            wire = bad.make(chance.choice(valid))
            answer, changes = await ask(app, wire)
            found.asked += 1
            faults = judge.faults(wire, answer)
            if answer.status < 400:
                found.accepted += 1
            else:
                found.refused[answer.status] += 1
                if changes and _schedules_poll(wire, answer):
                    found.asked_after += 1
                else:
                    last = [*last[1 - SENT_AGAIN :], wire]
                    faults += [f"refused with {answer.status} but changed something"] if changes else []
            found.problems += [
                f"seed {seed}, request {number} ({wire.route} {wire.method}, {wire.done}): {each}"
                for each in faults
            ]
        found.problems += await _resend(world, app, last)
    return found


def _schedules_poll(wire: Wire, answer: Answer) -> bool:
    """Return whether an answer may mean that the gateway refused to cancel a charge.

    After such a refusal, the engine schedules a poll of the charge (D-27).
    """
    problem = CANCELS_CHARGES.get(wire.route or "")
    return answer.status == 409 and problem is not None and problem.type.encode() in answer.body


async def _advancing_clock(world: World) -> Merchant:
    """Return an account whose test clock is advancing. The API refuses even valid requests to advance this clock."""
    merchant = await world.another()
    async with connected(world.database_url, merchant.account_id) as connection:
        await connection.execute("UPDATE test_clock SET status = 'advancing', target_at = '2050-01-01'")
        await connection.execute("UPDATE api_key SET last_used_at = '2100-01-01'")
    return merchant


async def _resend(world: World, app: Any, refused: Sequence[Wire]) -> list[str]:
    """Repeat refused requests until all are refused again. Then report whether a row of the account has changed.

    A repeated request may be accepted, because another request has changed its resource. The next repeat omits the
    accepted requests. Give up after MOST_REPEATS repeats.
    """
    async with connected(world.database_url, world.account_id) as connection:
        for _ in range(MOST_REPEATS):
            before = await digest(connection, world.account_id)
            answers = [await ask(app, wire) for wire in refused]
            changed = differences(before, await digest(connection, world.account_id))
            again = [wire for wire, (answer, _) in zip(refused, answers, strict=True) if answer.status >= 400]
            if len(again) == len(refused):
                return [f"refused requests changed {changed}"] if changed else []
            refused = again
    return [f"in each of {MOST_REPEATS} repeats, a request was accepted that had been refused before"]


def _valid_requests(document: Json, own: Owned, clock: Merchant) -> Iterator[Wire]:
    """Yield a valid request per operation, or one per form if the body has several forms. Skip the routes CALLS_OUT."""
    bodies = valid_bodies(own)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            route = f"{method} {path}"
            if path.endswith(CALLS_OUT):
                continue
            merchant = clock if route == ADVANCE else own.merchant
            body = bodies[route] if "requestBody" in operation else None
            for each in _body_forms(route, body, own):
                yield _wire(route, _filled(path, own), each, merchant=merchant)


def _body_forms(route: str, body: Json, own: Owned) -> list[Json]:
    match route:
        case "post /v1/products":
            endpoint = {"mode": "endpoint", "url": "https://merchant.example/price", "capCents": 1000}
            full = {"name": "Usage", "description": "x", "externalRef": "p-1", "pricing": endpoint}
            return [body, full]
        case "post /v1/plans" | "put /v1/plans/{planId}":
            discounts = [{"percent": 20, "fromCycle": 1, "toCycle": 3}, {"percent": 5, "fromCycle": 4}]
            item = {"productId": own.one("productId"), "position": 0, "discounts": discounts}
            full = plan_body(item, defaultPaymentMethod="card", maxInstallments=3, commitmentCycles=12)
            return [body, full]
        case "post /v1/subscriptions":
            customer = {**body["customer"], "document": "529.982.247-25"}
            fields = {"externalRef": "s-1", "chargeDay": 10, "paymentMethod": "card"}
            return [body, {**body, **fields, "customer": customer, "firstChargeDate": "2034-01-10"}]
        case "patch /v1/customers/{customerId}":
            return [body, {"name": "Ana", "email": "ana@example.com", "document": None}]
        case "patch /v1/integration/gateways/{connectionId}":
            return [
                body,
                {"label": "x", "settings": {"behaviour": "never_pay", "methods": ["pix"]}, "active": True},
            ]
        case _:
            return [body]


def _filled(path: str, own: Owned) -> str:
    for name, ids in own.ids.items():
        path = path.replace(f"{{{name}}}", ids[0])
    return path


def _wire(route: str, path: str, body: Json, *, merchant: Merchant) -> Wire:
    method = route.partition(" ")[0].upper()
    wire = Wire(route, method, path, headers=(("Authorization", f"Bearer {merchant.api_key}"),))
    if method == "POST":
        wire = wire.having("Idempotency-Key", "the-key-of-all")
    if body is None:
        return wire
    return replace(wire, body=json.dumps(body).encode()).having("Content-Type", "application/json")


def _answered_fields(document: Json) -> Mapping[str, Json]:
    """Return every field name in the OpenAPI document's schemas, with a value of the field's type."""
    samples = {"string": "x", "integer": 1, "boolean": True, "array": [], "object": {}, "number": 1}
    return {
        name: samples.get(schema.get("type", ""))
        for each in document["components"]["schemas"].values()
        for name, schema in each.get("properties", {}).items()
    }


def _secrets(world: World, other: Owned) -> list[bytes]:
    """Return the texts that no response may contain: both accounts' keys and the other account's ids."""
    ids = [each for name, found in other.ids.items() if name != "accountId" for each in found]
    return [each.encode() for each in (world.api_key, other.merchant.api_key, *ids)]


async def _names(world: World) -> list[bytes]:
    """Return the names of constraints, tables, indexes and functions that contain `_`.

    Other names, such as `plan`, are also words of the API.
    """
    rows = await world.sql(
        """
        SELECT conname::text AS name FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        UNION SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
        UNION SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
        """
    )
    return [row["name"].encode() for row in rows if "_" in row["name"]]
