"""Revoke an API key while requests use it. After the API has answered the revocation, no process may accept the key."""

import asyncio
from typing import TYPE_CHECKING

from tests.faults.report import Report
from tests.faults.stack import Client

if TYPE_CHECKING:
    from tests.faults.secrets.canaries import Canaries

REQUESTS_A_SECOND = 50


async def revoke(client: Client, canaries: "Canaries", *, report: Report, requests: int) -> None:
    """Send 50 requests per second to all APIs, revoke the key while requests continue, and check the responses."""
    made = (await client.ask("POST", "/v1/integration/api-keys", {"name": "to be revoked"})).json()
    key = canaries.add("api key", made["key"])
    before: list[int] = []
    meanwhile: list[int] = []
    after: list[int] = []
    revoked = asyncio.Event()

    async def one(statuses: list[int]) -> None:
        answer = await client.ask("GET", "/v1/integration", Authorization=f"Bearer {key}")
        statuses.append(answer.status_code)

    async def revoke_it() -> None:
        await client.ask("DELETE", f"/v1/integration/api-keys/{made['id']}")
        revoked.set()

    async with asyncio.TaskGroup() as group:
        for statuses in [before] * requests:
            group.create_task(one(statuses))
            await asyncio.sleep(1 / REQUESTS_A_SECOND)
        group.create_task(revoke_it())
        while not revoked.is_set():
            group.create_task(one(meanwhile))
            await asyncio.sleep(1 / REQUESTS_A_SECOND)
        for statuses in [after] * requests:
            group.create_task(one(statuses))
            await asyncio.sleep(1 / REQUESTS_A_SECOND)
    report.count("requests accepted before the revocation", before.count(200), at_least=1)
    report.count("requests sent after the answer to the revocation", len(after), at_least=requests)
    report.count("requests accepted after the revocation", len(after) - after.count(401), at_most=0)
