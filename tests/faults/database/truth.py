"""After the faults, compare the clients' journal with the lists of the API and with the tables."""

from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import asyncpg
import httpx

from tests.faults.database.client import Client, Write
from tests.faults.report import Report
from tests.support.world import Json

REPLAYED = 40
"""Number of acknowledged create requests that are repeated after the faults."""
_CHANGED_BY_BILLING = {"cycleCount", "nextDueDate", "nextPeriodStart", "commitment", "customer"}
"""Fields that `_fixed` omits. Billing changes all of them except `customer`, which is compared separately."""
_ROWS = {
    "product": "SELECT name FROM product WHERE name LIKE 'op-%'",
    "customer": "SELECT external_ref FROM customer WHERE external_ref LIKE 'op-%'",
    "subscription": "SELECT external_ref FROM subscription WHERE external_ref LIKE 'op-%'",
    "event": "SELECT data::json->'subscription'->>'externalRef' FROM event WHERE type = 'subscription.created'",
}


async def compare(report: Report, client: Client, owner_url: str) -> None:
    """Compare the journal with the API and the tables. The role in `owner_url` must be able to read all rows.

    Report acknowledged writes that are lost, changed or not replayed. Also report duplicate and incomplete rows, and
    rows that no client requested.
    """
    there = await _rows(owner_url)
    shown = {kind: await _shown(client, f"/v1/{kind}s") for kind in ("product", "subscription", "customer")}
    problems = [*_phantoms(client, there)]
    report.count("phantom, duplicate or partial writes", len(problems), at_most=0)
    lost = [*_lost(client, shown)]
    report.count("acknowledged writes lost or changed", len(lost), at_most=0)
    chance = Random(f"{client.seed} replays")  # noqa: S311 - not for security
    creates = [write for write in client.acknowledged if write.method == "POST"]
    asked = chance.sample(creates, min(REPLAYED, len(creates)))
    failed = [write.reference for write in asked if not await client.replay(write)]
    report.count("keys that do not replay the acknowledged answer", len(failed), at_most=0)
    report.problems += [*problems, *lost, *(f"{each} is not replayed" for each in failed)][:20]


def _phantoms(client: Client, there: Mapping[str, Counter[str]]) -> Iterator[str]:
    """Yield a problem for each row that no client requested, each duplicate, and each incomplete subscription."""
    asked = {kind: {write.reference for write in client.journal if write.kind == kind} for kind in _ROWS}
    asked["customer"] = asked["event"] = asked["subscription"]
    for kind, counted in there.items():
        for reference, count in counted.items():
            if count > 1:
                yield f"{kind} {reference} exists {count} times"
            if reference not in asked[kind]:
                yield f"{kind} {reference} exists without a request"
    for kind in ("customer", "event"):
        for reference in there[kind].keys() ^ there["subscription"].keys():
            yield f"only a part of the subscription {reference} exists"


def _lost(client: Client, shown: Mapping[str, Mapping[str, Json]]) -> Iterator[str]:
    """Yield a problem for each acknowledged write that is missing or differs from its response."""
    last: dict[str, Write] = {}
    for write in client.acknowledged:
        if write.kind == "change":
            last[write.answer["id"]] = write
            continue
        found = shown[write.kind].get(write.answer["id"])
        if found is None:
            yield f"{write.kind} {write.reference} was acknowledged and does not exist"
        elif _fixed(found) != _fixed(write.answer):
            yield f"{write.kind} {write.reference} was acknowledged as {write.answer}, and is {found}"
    for customer_id, write in last.items():
        if shown["customer"].get(customer_id) != write.answer:
            yield f"the change {write.reference} was acknowledged and undone"


def _fixed(shape: Json) -> Json:
    return {name: value for name, value in shape.items() if name not in _CHANGED_BY_BILLING}


async def _shown(client: Client, path: str) -> Mapping[str, Json]:
    records: dict[str, Json] = {}
    headers = {"Authorization": f"Bearer {client.api_key}"}
    async with httpx.AsyncClient(base_url=client.url, headers=headers, timeout=60) as http:
        page = pages = 1
        while page <= pages:
            response = await http.get(path, params={"page": page, "pageSize": 100})
            answer = response.raise_for_status().json()
            records |= {record["id"]: record for record in answer["data"]}
            page, pages = page + 1, answer["pagination"]["totalPages"]
    return records


async def _rows(owner_url: str) -> Mapping[str, Counter[str]]:
    connection: Any = await asyncpg.connect(owner_url)
    try:
        return {kind: Counter(row[0] for row in await connection.fetch(sql)) for kind, sql in _ROWS.items()}
    finally:
        await connection.close()
