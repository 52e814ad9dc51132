"""A connection with the Pix API of a simulated bank, from the API of Fatura to the bank (D-262)."""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from fatura.domain.credentials import Mode
from fatura.gateways.adapters.pix.adapter import POLLS_PER_MINUTE, PixGateway
from fatura.gateways.http import ProviderClient
from tests.contract.pix_provider import PixProvider, credentials_of
from tests.doubles.pix.book import Account
from tests.doubles.pix.server import PixDouble, open_double
from tests.support.databases import as_owner
from tests.support.expect import problem
from tests.support.pix_shop import CPF, Shop, txid
from tests.support.populated import connected
from tests.support.world import Merchant, World

CONNECTIONS = "/v1/integration/gateways"


@dataclass(slots=True)
class Bank:
    """A simulated bank, and a live account of a merchant who has an account there."""

    world: World
    merchant: Merchant
    double: PixDouble
    account: Account
    token: str

    async def connect(self, **credentials: str) -> Any:
        """Connect the merchant's account at the bank. Return the answer."""
        settings = {"bank": "efi", "pixKey": self.account.pix_key, "webhookToken": self.token}
        given = {**credentials_of(self.double, self.account), **credentials}
        return await self.merchant.post(
            CONNECTIONS, {"provider": "pix", "settings": settings, "credentials": given}
        )


@pytest.fixture
async def bank(world: World) -> AsyncGenerator[Bank]:
    async with open_double(lambda: datetime.now(UTC)) as double:
        client = ProviderClient(is_exempt=True, new_ssl_context=double.client_context)
        profile = PixProvider(double, client).bank()
        providers: Any = world.deps.providers
        factory = partial(PixGateway, client, banks={"efi": profile})
        providers["pix"] = replace(providers["pix"], factory=factory)
        merchant = await world.another(Mode.LIVE)
        yield Bank(world, merchant, double, double.open_account(), uuid4().hex)
        await client.close()


async def test_a_bank_is_connected_and_no_secret_is_shown(bank: Bank) -> None:
    """The stored credentials are checked. Another Pix key is another account. [D-43, D-59, D-259, D-262]"""
    answer = await bank.connect()
    assert answer.status == 201, answer.body
    connection = answer.json
    assert (connection["methods"], connection["refunds"]) == (["pix"], True)
    assert connection["settings"] == {"bank": "efi", "pixKey": bank.account.pix_key}
    for secret in (bank.account.client_secret, bank.token, "PRIVATE KEY", "CERTIFICATE"):
        assert secret.encode() not in answer.body

    path = f"{CONNECTIONS}/{connection['connectionId']}"
    checked = await bank.merchant.post(f"{path}/check", {})
    assert (checked.status, checked.json["error"]) == (200, None)
    other = bank.double.open_account("other@example.com")
    moved = {"settings": {"pixKey": other.pix_key}, "credentials": credentials_of(bank.double, other)}
    refused = await bank.merchant.patch(path, moved)
    assert problem(refused)[:2] == (409, "engine.gateway_account_changed")


async def test_a_connection_with_wrong_credentials_is_not_made(bank: Bank) -> None:
    """The answer names the field. [D-43, D-262]"""
    yesterday = datetime.now(UTC) - timedelta(days=1)
    expired = credentials_of(bank.double, bank.account, expires_at=yesterday)
    other = credentials_of(bank.double, bank.double.open_account())
    for wrong, field, words in (
        (expired, "credentials.certificate", f"expired on {yesterday.date()}"),
        ({"privateKey": other["privateKey"]}, "credentials.certificate", "private key"),
        ({"clientSecret": "wrong-secret"}, "credentials", "refused"),
    ):
        answer = await bank.connect(**wrong)
        assert answer.status == 400
        (named,) = [each for each in answer.json["meta"]["fields"] if each["path"] == field]
        assert words in named["message"]
    assert (await bank.merchant.get(CONNECTIONS)).json["data"] == []


async def test_the_merchant_is_told_before_a_certificate_expires(bank: Bank) -> None:
    """The event comes from 30 days before the end, once for each certificate. [D-262, D-268]"""
    merchant, now = bank.merchant, datetime.now(UTC).replace(microsecond=0)
    ends = [now + timedelta(days=days) for days in (31, 29, 28)]
    made = await bank.connect(**credentials_of(bank.double, bank.account, expires_at=ends[0]))
    path, told = f"{CONNECTIONS}/{made.json['connectionId']}", list[str]()
    for end, is_told in zip(ends, (False, True, True), strict=True):
        credentials = credentials_of(bank.double, bank.account, expires_at=end)
        changed = (await merchant.patch(path, {"credentials": credentials})).json
        assert changed["credentialsExpireAt"] == f"{end:%Y-%m-%dT%H:%M:%S}.000Z"
        told += [changed["credentialsExpireAt"]] * is_told
        for _ in range(2):
            async with connected(as_owner(bank.world.database_url), merchant.account_id) as connection:
                await connection.execute("UPDATE connection_sweep SET next_sweep_at = '2026-01-01'")
            await bank.world.run("sweep")
        events = await merchant.events("connection.credentials_expiring")
        assert [each["data"]["connection"]["credentialsExpireAt"] for each in events] == told


async def test_the_health_names_an_expired_certificate(bank: Bank) -> None:
    """[D-262]"""
    soon = datetime.now(UTC) + timedelta(seconds=2)
    answer = await bank.connect(**credentials_of(bank.double, bank.account, expires_at=soon))
    assert answer.status == 201, answer.body
    path = f"{CONNECTIONS}/{answer.json['connectionId']}/check"
    while (found := (await bank.merchant.post(path, {})).json)["error"] is None:
        assert datetime.now(UTC) < soon + timedelta(seconds=5)
    assert found["error"]["code"] == "credentials_refused"
    assert "credentials.certificate expired on" in found["error"]["detail"]
    assert found["connection"]["health"]["error"] == found["error"]


async def test_a_payment_reaches_the_invoice_through_the_webhook(bank: Bank) -> None:
    """The bank appends /pix to the path or to the query. A wrong token gets 404. [D-35 webhook, D-262]"""
    connection = (await bank.connect()).json
    shop = Shop(bank.world, bank.merchant, connection["connectionId"])
    invoice = await shop.bill(document=CPF)
    charge_id = txid(invoice)
    assert invoice["payment"]["pixCode"] == bank.account.charge(charge_id)["pixCopiaECola"]
    assert list(bank.account.charges) == [charge_id]
    url = f"/gateways/{bank.merchant.account_id}/{shop.connection_id}/webhook"
    body = {"pix": [{"endToEndId": 32 * "E", "txid": charge_id, "valor": "0.01"}]}
    for path in (f"{url}/pix", f"{url}/pix?token={uuid4().hex}", f"{url}?token="):
        assert (await bank.merchant.post(path, body)).status == 404

    for path in (f"{url}/pix?token={bank.token}", f"{url}?token={bank.token}/pix"):
        assert (await bank.merchant.post(path, body)).status == 200
    await bank.world.run()
    assert (await shop.read(invoice))["status"] == "issued", "a webhook is not believed"
    bank.account.pay(charge_id)
    notice = {"pix": bank.account.charge(charge_id)["pix"]}
    assert (await bank.merchant.post(f"{url}/pix?token={bank.token}", notice)).status == 200
    began = time.monotonic()
    while (paid := await shop.read(invoice))["status"] == "issued" and time.monotonic() < began + 20:
        await asyncio.sleep(60 / POLLS_PER_MINUTE)  # the budget of the connection delays the second poll
        await bank.world.run()
    assert (paid["status"], paid["paidCents"]) == ("paid", invoice["totalCents"])
    assert paid["payments"][0]["reference"] == bank.account.charge(charge_id)["pix"][0]["endToEndId"]
    assert await bank.world.broken() == []


async def test_an_invoice_without_a_document_is_not_issued(bank: Bank) -> None:
    """[D-262, D-34]"""
    shop = Shop(bank.world, bank.merchant, (await bank.connect()).json["connectionId"])
    invoice = await shop.bill()
    assert invoice["status"] == "ready"
    assert invoice["charges"][0]["error"]["code"] == "document_required"
    assert bank.account.charges == {}
