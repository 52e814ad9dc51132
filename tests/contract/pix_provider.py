"""The test double of a bank in the contract suite: a server with mutual TLS (`tests.doubles.pix`)."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import trustme

from fatura.gateways.adapters.pix.adapter import PixGateway
from fatura.gateways.adapters.pix.banks import Bank, Secret, Urls
from fatura.gateways.http import ProviderClient
from fatura.gateways.port import Charge, ConnectionConfig, Gateway, Webhook
from tests.contract.provider import NOW
from tests.doubles.pix.book import REMOVED, Account
from tests.doubles.pix.server import API, PixDouble
from tests.doubles.server import Loss

CHARGE = "/cobv/[a-zA-Z0-9]+"


def credentials_of(
    double: PixDouble,
    account: Account,
    *,
    expires_at: datetime | None = None,
    key_type: trustme.KeyType = trustme.KeyType.ECDSA,
) -> dict[str, str]:
    """Issue a certificate, and return it with the account's other credentials."""
    issued = double.issuer.issue_cert(
        common_name=account.client_id,
        not_after=expires_at or datetime.now(UTC) + timedelta(days=3650),
        key_type=key_type,
    )
    return {
        "clientId": account.client_id,
        "clientSecret": account.client_secret,
        "certificate": "".join(each.bytes().decode() for each in issued.cert_chain_pems),
        "privateKey": issued.private_key_pem.bytes().decode(),
    }


def bank_at(url: str) -> Bank:
    """Return the profile of a simulated bank at this URL."""
    return Bank("Test", {"production": Urls(f"{url}{API}", f"{url}/oauth/token")}, Secret.HEADER)


@dataclass(slots=True)
class PixProvider:
    double: PixDouble
    client: ProviderClient
    signs_webhook_bodies: bool = False
    lists_canceled: bool = True
    shows_refusals: bool = True
    shows_lost_refunds: bool = True

    def bank(self) -> Bank:
        return bank_at(self.double.url)

    async def connect(self) -> Gateway:
        return self.gateway(self.double.open_account())

    def gateway(self, account: Account, *, bank: Bank | None = None, **settings: Any) -> PixGateway:
        given = {"bank": "test", "pixKey": account.pix_key, "webhookToken": uuid4().hex, **settings}
        config = ConnectionConfig(uuid4(), uuid4(), given, credentials_of(self.double, account), NOW)
        return PixGateway(self.client, config, banks={"test": bank or self.bank()})

    def account(self, gateway: Gateway) -> Account:
        return self.double.accounts[config_of(gateway).credentials["clientId"]]

    async def pay(self, gateway: Gateway, charge: Charge) -> None:
        self.account(gateway).pay(charge.charge_id)

    async def refuse(self, gateway: Gateway, charge: Charge) -> None:
        raise NotImplementedError("a bank refuses no Pix")

    async def cancel(self, gateway: Gateway, charge: Charge) -> None:
        self.account(gateway).revise(charge.charge_id, {"status": REMOVED})

    async def refund(self, gateway: Gateway, charge: Charge) -> None:
        """Refund the payment in the bank's app."""
        account = self.account(gateway)
        (payment,) = account.charge(charge.charge_id)["pix"]
        account.refund(payment["endToEndId"], "1", {"valor": payment["valor"]})

    async def lose_next_request(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("PUT", CHARGE, Loss.ERROR_BEFORE)

    async def lose_next_answer(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("PUT", CHARGE, Loss.ERROR_AFTER)

    async def lose_next_cancel(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("PATCH", CHARGE, Loss.ANSWER)

    async def lose_next_refund(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("PUT", "/pix/.*", Loss.ERROR_AFTER)

    async def limit_next_request(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("PUT", CHARGE, Loss.RATE)

    async def fail_next_read(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("GET", CHARGE, Loss.ERROR_BEFORE)

    async def fail_next_list(self, gateway: Gateway) -> None:  # noqa: ARG002 - part of the interface
        self.double.fail_next("GET", "/cobv", Loss.ERROR_BEFORE)

    def webhook(self, gateway: Gateway, charge: Charge) -> Webhook:
        """Return the webhook, to whose URL banks append /pix."""
        pix = {
            "endToEndId": 32 * "E",
            "txid": charge.charge_id,
            "valor": "1.00",
            "horario": "2026-03-10T12:00:00Z",
        }
        query = f"token={config_of(gateway).settings['webhookToken']}/pix"
        return Webhook({}, query, json.dumps({"pix": [pix]}).encode())

    async def catalog(self, gateway: Gateway) -> dict[str, str]:  # noqa: ARG002 - part of the interface
        return {}


def config_of(gateway: Gateway) -> ConnectionConfig:
    assert isinstance(gateway, PixGateway)
    return gateway._config
