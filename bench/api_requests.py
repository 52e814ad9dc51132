"""The requests that the measurements send to the API, and the database that the requests need."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from bench.one_lane import worked
from bench.open_calls import VARIABLE
from bench.prepared import prepare
from bench.servers import open_accounts, prepared, seen
from fatura.usecases.accounts.accounts import OpenedAccount

READ = "GET a subscription"
PAGE = "GET page 1 of the invoices"
ENROLL = "POST a subscription"
VALUE = "POST a manual value"
READ_IDS = 500
"""Number of different subscriptions that the GET requests read."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """An HTTP request. `key` is its Idempotency-Key, which is sent only with a body."""

    method: str
    target: str
    body: bytes = b""
    key: str = ""

    def headers(self, account: OpenedAccount) -> Mapping[str, str]:
        headers = {"Host": "fatura", "Authorization": f"Bearer {account.api_key}"}
        if self.body:
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(self.body))}
            headers |= {"Idempotency-Key": self.key}
        return headers

    def on_the_wire(self, account: OpenedAccount) -> bytes:
        head = "".join(f"{name}: {value}\r\n" for name, value in self.headers(account).items())
        return f"{self.method} {self.target} HTTP/1.1\r\n{head}\r\n".encode() + self.body


@dataclass(frozen=True, slots=True)
class Stage:
    """A filled database, its account, and the requests to send, by kind."""

    url: str
    account: OpenedAccount
    requests: Mapping[str, Sequence[ApiRequest]]


async def filled(server_url: str, name: str, *, writes: int) -> Stage:
    """Fill a database so that `writes` requests of each kind of POST can succeed. Each invoice has a pending item."""
    opened: list[OpenedAccount] = []

    async def fill(url: str) -> None:
        opened.extend(await open_accounts(url, 1))
        async with seen(url, opened[0].account_id) as connection:
            await prepare(connection, opened[0].account_id, due=max(writes, READ_IDS))
            for statement in VARIABLE:
                await connection.execute(statement, opened[0].account_id, "https://merchant.example/price")
        await worked(url, "generation", max(writes, READ_IDS))
        async with seen(url, opened[0].account_id) as connection:
            await connection.execute("VACUUM ANALYZE")

    url = await prepared(server_url, name, fill)
    return Stage(url, opened[0], await _requests(url, opened[0], writes=writes))


async def _requests(url: str, account: OpenedAccount, *, writes: int) -> Mapping[str, Sequence[ApiRequest]]:
    async with seen(url, account.account_id) as connection:
        subscriptions = await connection.fetch("SELECT subscription_id FROM subscription LIMIT $1", READ_IDS)
        plan_id = await connection.fetchval("SELECT plan_id FROM plan LIMIT 1")
        items = await connection.fetch(
            "SELECT invoice_id, item_id FROM invoice_item WHERE pricing_status = 'pending' LIMIT $1", writes
        )
    assert len(items) == writes, "each invoice has an item that awaits its value"
    return {
        READ: [ApiRequest("GET", f"/v1/subscriptions/{row['subscription_id']}") for row in subscriptions],
        PAGE: [ApiRequest("GET", "/v1/invoices")],
        ENROLL: [_enrollment(str(plan_id), number) for number in range(writes)],
        VALUE: [
            _posted(f"/v1/invoices/{row['invoice_id']}/items/{row['item_id']}/value", {"amount": 1250})
            for row in items
        ],
    }


def _enrollment(plan_id: str, number: int) -> ApiRequest:
    customer = {
        "externalRef": f"new-{number}",
        "name": f"Customer {number}",
        "email": f"new{number}@example.com",
    }
    return _posted("/v1/subscriptions", {"planId": plan_id, "customer": customer, "chargeDay": 10})


def _posted(target: str, body: object) -> ApiRequest:
    return ApiRequest("POST", target, json.dumps(body).encode(), str(uuid4()))
