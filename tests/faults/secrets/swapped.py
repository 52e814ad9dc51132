"""Move ciphertexts to other rows with SQL. No moved ciphertext may decrypt.

If work needs a secret whose ciphertext was moved, the work must wait until a client replaces the secret.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from fatura.store import sealed_columns
from fatura.store.vault import KeyRingError
from tests.faults.report import Report
from tests.support.populated import connected
from tests.support.receiver import open_receiver
from tests.support.world import Json, Merchant, World, subscription_body

DOCUMENTS = ("529.982.247-25", "111.444.777-35")


async def swap_all(world: World, report: Report) -> None:
    """Swap the ciphertexts of different rows, and let the API and the lanes use the swapped ciphertexts."""
    other = await world.another()
    for merchant in (world, other):
        await _fill(merchant)
    await _nothing_opens_elsewhere(world, other, report=report)
    await _documents(world, report)
    await _credentials(world, report)
    await _signing_secrets(world, report)
    await _stored_answers(world, report)


async def _fill(merchant: Merchant) -> None:
    for document in DOCUMENTS:
        await enroll(merchant, document)
    await merchant.connect(webhookSecret="w" * 16, issuesCharges=False)
    for number in range(2):
        await merchant.post("/v1/integration/secret/rotate", key=f"rotation-{number}")
        await merchant.post("/v1/integration/api-keys", {"name": "x"}, key=f"key-{number}")


async def enroll(merchant: Merchant, document: str) -> Json:
    body = subscription_body(await merchant.plan())
    body["customer"]["document"] = document
    return await merchant.made("/v1/subscriptions", body)


async def _nothing_opens_elsewhere(world: World, other: Merchant, *, report: Report) -> None:
    """Try to decrypt each ciphertext of two accounts as if it were stored in the place of every other ciphertext."""
    values: list[tuple[str, Any, str, bytes]] = []
    for account_id in (world.account_id, other.account_id):
        async with world.deps.db.transaction(account_id) as tx:
            for column in sealed_columns.COLUMNS:
                found = await sealed_columns.page(
                    tx, column, after=column.first, sealing_id=b"none", limit=100
                )
                values += [(column.place, account_id, str(row_id), value) for row_id, value in found]
    tried = opened = 0
    for home in values:
        for place, account_id, row_id, _ in values:
            if home[:3] != (place, account_id, row_id):
                tried += 1
                opened += _opens(world, home[3], place=place, account_id=account_id, row_id=row_id)
    report.count("ciphertexts tried in the place of others", tried, at_least=300)
    report.count("ciphertexts that opened in the wrong place", opened, at_most=0)


def _opens(world: World, value: bytes, *, place: str, account_id: Any, row_id: str) -> bool:
    try:
        world.deps.vault.open(value, place=place, account_id=account_id, row_id=row_id)
    except KeyRingError:
        return False
    return True


@asynccontextmanager
async def _by_hand(world: World) -> AsyncGenerator[asyncpg.Connection]:
    async with connected(world.database_url, world.account_id) as connection:
        yield connection


async def _documents(world: World, report: Report) -> None:
    """Check that only the invoices of customers with swapped tax documents wait. Other invoices must be issued."""
    async with _by_hand(world) as connection:
        await connection.execute(
            """
            UPDATE customer c SET document_sealed = o.document_sealed, document_hash = o.document_hash FROM customer o
            WHERE c.document_sealed IS NOT NULL AND o.document_sealed IS NOT NULL AND o.customer_id <> c.customer_id
            """
        )
    open_normally = await world.enroll(await world.plan())
    await world.run()
    waiting = [each for each in await world.invoices() if each["status"] == "ready"]
    _expect(report, len(waiting) == 2, f"invoices with swapped documents are {await world.invoices()}")
    (invoice,) = await world.invoices(open_normally)
    _expect(report, invoice["status"] in {"issued", "paid"}, "a swapped document delays other invoices")
    await world.advance(days=1)
    events = await world.events("invoice.issue_delayed")
    _expect(
        report, bool(events) and "document cannot be decrypted" in str(events), "no event about the document"
    )
    for customer in (await world.get("/v1/customers")).json["data"]:
        if customer["hasDocument"]:
            await world.patch(f"/v1/customers/{customer['id']}", {"document": DOCUMENTS[0]})
    await world.advance(days=1)
    still = [each for each in await world.invoices() if each["status"] == "ready"]
    _expect(report, not still, f"sending the document again does not repair {still}")


async def _credentials(world: World, report: Report) -> None:
    """Check that invoices of a connection with swapped credentials wait until the credentials are sent again."""
    async with _by_hand(world) as connection:
        await connection.execute(
            """
            UPDATE gateway_connection c SET credentials_sealed = o.credentials_sealed FROM gateway_connection o
            WHERE o.connection_id <> c.connection_id
            """
        )
    connections = (await world.get("/v1/integration/gateways")).json["data"]
    subscription = await world.enroll(await world.plan(), gatewayConnectionId=connections[0]["connectionId"])
    await world.run()
    (invoice,) = await world.invoices(subscription)
    _expect(report, invoice["status"] == "ready", f"issued with another's credentials: {invoice}")
    path = f"/v1/integration/gateways/{connections[0]['connectionId']}"
    refused = await world.patch(path, {"settings": {"behaviour": "never_pay"}})
    _expect(report, refused.status == 400, f"swapped credentials were sealed again: {refused.body!r}")
    await world.patch(path, {"credentials": {}})
    await world.run()
    (invoice,) = await world.invoices(subscription)
    _expect(
        report, invoice["status"] in {"issued", "paid"}, f"credentials sent again do not repair: {invoice}"
    )


async def _signing_secrets(world: World, report: Report) -> None:
    """Check that an account with a swapped signing secret delivers no event until the secret is rotated."""
    async with open_receiver() as receiver:
        await world.put("/v1/integration/webhook", {"url": receiver.url})
        async with _by_hand(world) as connection:
            await connection.execute(
                """
                UPDATE integration_secret s SET sealed = o.sealed FROM integration_secret o
                WHERE s.valid_until IS NULL AND o.valid_until IS NOT NULL
                """
            )
        await world.enroll(await world.plan())
        await world.run("push")
        _expect(report, not receiver.received, "an event was sent without a secret to sign it")
        rotated = await world.post("/v1/integration/secret/rotate")
        _expect(
            report, rotated.status == 200, f"a secret that does not open cannot be rotated: {rotated.body!r}"
        )
        await world.run("push")
        _expect(report, bool(receiver.received), "a rotation does not repair pushes")


async def _stored_answers(world: World, report: Report) -> None:
    """Check that a response that was stored for one Idempotency-Key is never returned for another key."""
    for column in ("answer", "body_hash"):
        async with _by_hand(world) as connection:
            swap = """
                UPDATE idempotency_key i SET COLUMN = o.COLUMN FROM idempotency_key o
                WHERE i.is_sealed AND o.is_sealed AND i.key <> o.key
            """
            await connection.execute(swap.replace("COLUMN", column))
        answer = await world.post("/v1/integration/api-keys", {"name": "x"}, key="key-0")
        _expect(
            report,
            answer.status == 500 and b"rk_test" not in answer.body and b"whsec" not in answer.body,
            f"a swapped {column} is answered: {answer.status} {answer.body!r}",
        )


def _expect(report: Report, holds: object, problem: str) -> None:
    if not holds:
        report.problems.append(problem)
