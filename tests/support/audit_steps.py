"""Compare the requests of a test with the account's audit log."""

import re
from dataclasses import dataclass, field

import httpx

from fatura.api.http.route import ApiRoute
from fatura.api.v1 import RESOURCES
from tests.support.world import Json, Merchant

ROUTES: dict[tuple[str, str], ApiRoute] = {
    (method, route.path): route
    for each in RESOURCES
    for route in each.routes
    for method in route.methods or ()
}


@dataclass(frozen=True, slots=True)
class Sent:
    """A request. `ids` has its path parameters, query and answer, which may contain the changed resource's id."""

    route: ApiRoute
    ids: tuple[str, ...]
    request_id: str
    owes_entry: bool


@dataclass(slots=True)
class Recorder:
    """Records the requests to authenticated routes, except GETs. `note` is a response hook of httpx."""

    sent: list[Sent] = field(default_factory=list)

    async def note(self, response: httpx.Response) -> None:
        method, path = response.request.method, response.request.url.path
        for (known, template), route in ROUTES.items():
            found = re.fullmatch(re.sub(r"\{\w+\}", "([^/]+)", template), path)
            if known == method != "GET" and found:
                answered = await response.aread()
                is_dry = b'"dryRun": true' in response.request.content
                is_repeat = "idempotent-replayed" in response.headers
                owes = response.is_success and not is_dry and not is_repeat and route.audit is not None
                ids = (*found.groups(), response.request.url.query.decode(), answered.decode())
                self.sent.append(Sent(route, ids, response.headers["x-request-id"], owes))
                return

    async def check(self, merchant: Merchant, *, earlier: int) -> None:
        """Compare the recorded requests with the audit log, without the log's `earlier` oldest entries.

        Each successful change must have exactly one entry. Repeats, dry runs and refused requests must have none.
        """
        entries = (await merchant.audit())[earlier:]
        by_request: dict[str, list[Json]] = {}
        for entry in entries:
            by_request.setdefault(entry["requestId"], []).append(entry)
        keys = (await merchant.get("/v1/integration/api-keys?pageSize=100")).json["data"]
        own = next(each for each in keys if merchant.api_key.startswith(each["prefix"]))
        for each in self.sent:
            found = by_request.pop(each.request_id, [])
            assert len(found) == each.owes_entry, (each, found)
            for entry in found:
                action = each.route.audit
                assert action is not None
                assert (entry["action"], entry["resource"]["type"]) == (action.name, action.resource.type)
                assert entry["actor"] == {"kind": "api_key", "id": own["id"], "name": own["name"]}
                assert entry["address"] == "127.0.0.1"
                known = [*each.ids, str(merchant.account_id)]
                assert any(entry["resource"]["id"] in text for text in known), entry
        assert by_request == {}
