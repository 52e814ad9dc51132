"""Banks' profiles, client certificates and tokens of the Pix API (D-262)."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from fatura.gateways.adapters.pix.adapter import PixGateway
from fatura.gateways.adapters.pix.banks import BANKS, ENVIRONMENTS, Bank, Secret, Urls
from fatura.gateways.http import ProviderClient, read_certificate
from fatura.gateways.port import (
    AuthFailedError,
    GatewayError,
    GatewaySettingsError,
    PermanentError,
    TransientError,
)
from tests.contract.pix_provider import CHARGE, PixProvider, config_of, credentials_of
from tests.contract.provider import NOW, charge_request
from tests.doubles.pix.server import API, open_double
from tests.doubles.server import Loss

TOKEN = ("POST", "/oauth/token")


@pytest.fixture
async def provider() -> AsyncGenerator[PixProvider]:
    async with open_double(lambda: NOW) as double:
        client = ProviderClient(is_exempt=True, new_ssl_context=double.client_context)
        yield PixProvider(double, client)
        await client.close()


@pytest.fixture
async def gateway(provider: PixProvider) -> PixGateway:
    return provider.gateway(provider.double.open_account())


def with_credentials(gateway: PixGateway, **changes: Any) -> PixGateway:
    config = config_of(gateway)
    given = {**config.credentials, **changes}
    return PixGateway(gateway._client, replace(config, credentials=given), banks=gateway._banks)


async def test_one_token_serves_many_calls(gateway: PixGateway, provider: PixProvider) -> None:
    """Concurrent first calls share the request for the token. Another connection has a token of its own. [D-262]"""
    await asyncio.gather(*(gateway.create_charge(charge_request()) for _ in range(20)))
    await gateway.check_credentials()
    assert provider.double.requests.count(TOKEN) == 1

    again = PixGateway(gateway._client, config_of(gateway), banks=gateway._banks)
    await again.check_credentials()
    assert provider.double.requests.count(TOKEN) == 1
    await provider.gateway(provider.account(gateway)).check_credentials()
    assert provider.double.requests.count(TOKEN) == 2


async def test_a_token_is_replaced_before_it_expires(gateway: PixGateway, provider: PixProvider) -> None:
    """A token of an hour is kept for 59 minutes, and a short one for half of its life. [D-262]"""
    now = [0.0]
    gateway._client.tokens.clock = lambda: now[0]
    for seconds, kept in ((3600, 3540), (60, 30)):
        provider.double.token_seconds = seconds
        now[0] += 10_000
        provider.double.requests.clear()
        await gateway.check_credentials()
        now[0] += kept - 1
        await gateway.check_credentials()
        assert provider.double.requests.count(TOKEN) == 1
        now[0] += 1
        await gateway.check_credentials()
        assert provider.double.requests.count(TOKEN) == 2


async def test_a_refused_token_is_replaced_once(gateway: PixGateway, provider: PixProvider) -> None:
    """A bank may end a token early. The call is repeated with a new one, and no charge is made twice. [D-262]"""
    await gateway.check_credentials()
    provider.double.tokens.clear()
    provider.double.requests.clear()
    charge = await gateway.create_charge(charge_request())

    call = ("PUT", f"/cobv/{charge.charge_id}")
    assert provider.double.requests == [call, TOKEN, call]
    assert list(provider.account(gateway).charges) == [charge.charge_id]


async def test_a_bank_that_refuses_every_token_is_asked_twice(
    gateway: PixGateway, provider: PixProvider
) -> None:
    """[D-262, D-34]"""

    def edit(answer: Any) -> None:
        if "access_token" in answer:
            answer["access_token"] = "wrong-token"

    provider.double.edit = edit
    with pytest.raises(AuthFailedError) as refusal:
        await gateway.create_charge(charge_request())
    assert [method for method, _ in provider.double.requests] == ["POST", "PUT", "POST", "PUT"]
    assert "wrong-token" not in str(refusal.value)


@pytest.mark.parametrize("loss", [Loss.ANSWER, Loss.ERROR_BEFORE, Loss.ERROR_AFTER, Loss.RATE, Loss.JUNK])
async def test_a_lost_token_is_no_charge(gateway: PixGateway, provider: PixProvider, loss: Loss) -> None:
    """The failure is transient, so the engine repeats the request. [D-262, D-34]"""
    provider.double.fail_next(*TOKEN, loss)
    with pytest.raises(TransientError):
        await gateway.create_charge(charge_request())
    assert provider.account(gateway).charges == {}
    await gateway.create_charge(charge_request())


@pytest.mark.parametrize(
    "token", [{}, {"access_token": 7}, {"access_token": "a\r\nX: b"}, {"access_token": ""}]
)
async def test_an_answer_without_a_token_is_transient(
    gateway: PixGateway, provider: PixProvider, token: dict[str, object]
) -> None:
    """[D-262]"""
    provider.double.edit = lambda answer: answer.clear() or answer.update(token)
    with pytest.raises(TransientError):
        await gateway.create_charge(charge_request())
    assert provider.double.requests == [TOKEN]


async def test_a_life_as_text_is_accepted(gateway: PixGateway, provider: PixProvider) -> None:
    """[D-262]"""
    provider.double.edit = lambda answer: answer.update(expires_in="3600") if "expires_in" in answer else None
    await gateway.check_credentials()
    await gateway.check_credentials()
    assert provider.double.requests.count(TOKEN) == 1


@pytest.mark.parametrize("name", ["clientId", "clientSecret"])
async def test_wrong_credentials_are_refused(gateway: PixGateway, name: str) -> None:
    """[D-262, D-34]"""
    wrong = with_credentials(gateway, **{name: "Client_wrong_text"})
    with pytest.raises(AuthFailedError) as refusal:
        await wrong.check_credentials()
    assert "Client_" not in str(refusal.value)
    with pytest.raises(AuthFailedError):
        await wrong.create_charge(charge_request())


async def test_the_certificate_of_another_account_is_refused(
    gateway: PixGateway, provider: PixProvider
) -> None:
    """Each connection presents its own certificate, although all share a pool of connections. [D-262]"""
    await gateway.check_credentials()
    other = credentials_of(provider.double, provider.double.open_account())
    borrowed = {name: other[name] for name in ("certificate", "privateKey")}
    with pytest.raises(AuthFailedError):
        await with_credentials(gateway, **borrowed).check_credentials()
    await gateway.check_credentials()


async def test_the_server_requires_a_certificate_that_it_trusts(
    gateway: PixGateway, provider: PixProvider
) -> None:
    """[D-262]"""
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"{provider.double.url}{API}/cobv", ssl=provider.double.client_context())
    stranger = trustme.CA().issue_cert(common_name=provider.account(gateway).client_id)
    unknown = with_credentials(
        gateway,
        certificate=stranger.cert_chain_pems[0].bytes().decode(),
        privateKey=stranger.private_key_pem.bytes().decode(),
    )
    with pytest.raises(GatewayError):
        await unknown.check_credentials()
    assert provider.double.requests == []


async def test_the_bank_must_prove_who_it_is(gateway: PixGateway, provider: PixProvider) -> None:
    """Nothing is sent to a server whose certificate is not trusted. [D-262]"""
    client = ProviderClient(is_exempt=True, new_ssl_context=ssl.create_default_context)
    distrusting = PixGateway(client, config_of(gateway), banks=gateway._banks)
    with pytest.raises(TransientError):
        await distrusting.create_charge(charge_request())
    await client.close()
    assert provider.double.requests == []


async def test_an_rsa_key_is_presented(provider: PixProvider) -> None:
    """[D-262]"""
    account = provider.double.open_account()
    changes = credentials_of(provider.double, account, key_type=trustme.KeyType.RSA)
    await with_credentials(provider.gateway(account), **changes).check_credentials()


async def test_an_expired_certificate_is_not_used(provider: PixProvider) -> None:
    """The error says which field to change. The capabilities stay, so that other work goes on. [D-262, D-34]"""
    account = provider.double.open_account()
    gateway = provider.gateway(account)
    expires_at = NOW + timedelta(seconds=1)
    last = with_credentials(gateway, **credentials_of(provider.double, account, expires_at=expires_at))
    config = config_of(last)
    expired = PixGateway(last._client, replace(config, now=expires_at), banks=last._banks)

    for call in (
        expired.check_credentials(),
        expired.create_charge(charge_request()),
        expired.get_charge(_txid()),
    ):
        with pytest.raises(AuthFailedError) as refusal:
            await call
        assert refusal.value.field == (
            "credentials.certificate",
            "expired on 2026-03-10; get a new one from the bank",
        )
    assert expired.capabilities() == last.capabilities()
    assert provider.double.requests == []


def _txid() -> str:
    return f"fatura{27 * '0'}1"


def pem(key: Any, **options: Any) -> str:
    encryption = options.get("encryption", NoEncryption())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


def test_a_certificate_belongs_to_its_key(provider: PixProvider) -> None:
    """The certificate may stand behind those of its issuers. [D-262]"""
    double = provider.double
    one, two = (credentials_of(double, double.open_account()) for _ in range(2))
    issuer = double.issuer.cert_pem.bytes().decode()
    found = read_certificate(issuer + one["certificate"], one["privateKey"])
    assert found.chain.decode().startswith(one["certificate"].strip()[:200])
    assert found.expires_at > datetime.now(UTC)

    weak = rsa.generate_private_key(65537, 1024)  # noqa: S505 - refused, because it is weak
    strong = rsa.generate_private_key(65537, 2048)
    numbers = strong.private_numbers()
    broken = pem(
        rsa.RSAPrivateNumbers(
            p=numbers.p,
            q=numbers.q,
            d=numbers.d,
            dmp1=numbers.dmp1,
            dmq1=numbers.dmq1,
            iqmp=numbers.iqmp + 2,
            public_numbers=numbers.public_numbers,
        ).private_key(unsafe_skip_rsa_key_validation=True)
    )
    for certificate, key, field in (
        (one["certificate"], two["privateKey"], "certificate"),
        ("", one["privateKey"], "certificate"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", one["privateKey"], "certificate"),
        ("\ud800", one["privateKey"], "certificate"),
        (70_000 * "x", one["privateKey"], "certificate"),
        (one["certificate"], "", "privateKey"),
        (one["certificate"], "\ud800", "privateKey"),
        (one["certificate"], one["certificate"], "privateKey"),
        (one["certificate"], pem(weak), "privateKey"),
        (one["certificate"], broken, "privateKey"),
        (one["certificate"], pem(strong, encryption=BestAvailableEncryption(b"x")), "privateKey"),
    ):
        account = double.open_account()
        gateway = with_credentials(provider.gateway(account), certificate=certificate, privateKey=key)
        with pytest.raises(GatewaySettingsError) as refusal:
            gateway.capabilities()
        assert [path for path, _ in refusal.value.fields] == [f"credentials.{field}"]
        assert "PRIVATE KEY-----\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "credentials", "fields"),
    [
        ({"bank": "nubank"}, {}, ["settings.bank"]),
        ({"bank": ["efi"]}, {}, ["settings.bank"]),
        ({"url": "https://evil.example"}, {}, ["settings.url"]),
        ({"environment": "https://evil.example"}, {}, ["settings.environment"]),
        ({"bank": "bb", "environment": "sandbox"}, {"appKey": "k"}, ["settings.environment"]),
        ({"bank": "bb"}, {}, ["credentials.appKey"]),
        ({"bank": "sicoob"}, {"clientSecret": None}, []),
        ({"bank": "efi"}, {"clientSecret": None}, ["credentials.clientSecret"]),
        ({}, {"clientId": "a\r\nX: 1"}, ["credentials.clientId"]),
        ({}, {"password": "x"}, ["credentials.password"]),
        ({}, {"certificate": None}, ["credentials.certificate"]),
        ({"pixKey": ""}, {}, ["settings.pixKey"]),
        ({"daysAfterDueDate": True}, {}, ["settings.daysAfterDueDate"]),
        ({"daysAfterDueDate": 366}, {}, ["settings.daysAfterDueDate"]),
        ({"webhookToken": 31 * "a"}, {}, ["settings.webhookToken"]),
        ({"webhookToken": 32 * "/"}, {}, ["settings.webhookToken"]),
    ],
)
async def test_wrong_settings_are_named(
    gateway: PixGateway, settings: dict[str, Any], credentials: dict[str, Any], fields: list[str]
) -> None:
    """[D-43, D-262]"""
    config = config_of(gateway)
    given = {**config.settings, "bank": "efi", **settings}
    changed = replace(config, settings=given, credentials={**config.credentials, **credentials})
    checked = PixGateway(gateway._client, changed)
    if not fields:
        assert checked.capabilities().issues_charges
        return
    with pytest.raises(GatewaySettingsError) as refusal:
        checked.capabilities()
    assert [path for path, _ in refusal.value.fields] == fields


@pytest.mark.parametrize("name", BANKS)
async def test_each_profile_speaks_to_the_double(provider: PixProvider, name: str) -> None:
    """Each call has what the profile says, also the request for the token. [D-262]"""
    bank: Bank = replace(BANKS[name], urls=provider.bank().urls)
    account = provider.double.open_account()
    if bank.secret is Secret.NONE:
        account.client_secret = ""
    gateway = provider.gateway(account, bank=bank)
    if bank.secret is Secret.NONE:
        gateway = with_credentials(gateway, clientSecret=None)
    if bank.app_key_parameter is not None:
        gateway = with_credentials(gateway, appKey="the-app-key")
    charge = await gateway.create_charge(charge_request())
    await provider.pay(gateway, charge)
    assert len((await gateway.get_charge(charge.charge_id)).entries) == 1

    seen = provider.double.last
    assert seen is not None
    assert seen.query.get(bank.app_key_parameter or "") == ("the-app-key" if bank.app_key_parameter else None)
    assert seen.headers.get(bank.client_id_header or "none") == (
        account.client_id if bank.client_id_header else None
    )
    assert (seen.headers.get(bank.call_id_header or "none") is None) is (bank.call_id_header is None)


def test_profiles_name_public_https_urls_only() -> None:
    """[D-262]"""
    for bank in BANKS.values():
        assert set(bank.urls) <= set(ENVIRONMENTS)
        assert "production" in bank.urls
        for urls in bank.urls.values():
            assert all(url.startswith("https://") and not url.endswith("/") for url in (urls.api, urls.token))


async def test_no_error_and_no_text_contains_a_secret(gateway: PixGateway, provider: PixProvider) -> None:
    """The bank repeats what it was sent. [D-262, D-260]"""
    await gateway.check_credentials()
    credentials, (token,) = config_of(gateway).credentials, provider.double.tokens
    echo = {"detail": f"{token} {credentials['clientSecret']}", "type": f"x/{token}"}
    provider.double.edit = lambda answer: answer.update(echo) if "type" in answer else None
    provider.account(gateway).pix_key = "another"
    with pytest.raises(PermanentError) as refusal:
        await gateway.create_charge(charge_request())

    calls, parsed = gateway._calls(), gateway._settings()
    texts = [
        str(refusal.value),
        *map(repr, (refusal.value, gateway, calls, parsed, calls._access, parsed.certificate)),
    ]
    texts += [repr(calls._access.tokens), repr(gateway._client.tokens), repr(Urls("a", "b"))]
    for secret in (token, credentials["clientSecret"], credentials["privateKey"][40:90], "BEGIN"):
        assert not any(secret in text for text in texts)
    provider.double.fail_next("GET", CHARGE, Loss.ERROR_BEFORE)
    with pytest.raises(TransientError) as failure:
        await gateway.get_charge(_txid())
    assert token not in str(failure.value)
