"""The contract suite against Asaas, and tests of what only this adapter does (D-261)."""

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from fatura.domain.calendar import start_of_day
from fatura.domain.offer import PaymentMethod
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.http import client
from fatura.gateways.port import (
    AuthFailedError,
    Charge,
    ChargeState,
    Gateway,
    GatewaySettingsError,
    NotFoundError,
    PermanentError,
    TransientError,
    UnknownOutcomeError,
    Webhook,
)
from tests.contract.asaas_provider import TODAY, AsaasProvider, opened_provider
from tests.contract.gateway_contract import GatewayContract
from tests.contract.provider import NOW, charge_request, charges_listed, refund_request
from tests.contract.refund_contract import RefundContract
from tests.doubles.server import Loss


@pytest.fixture
async def provider() -> AsyncGenerator[AsaasProvider]:
    async with opened_provider() as opened:
        yield opened


@pytest.fixture
async def gateway(provider: AsaasProvider) -> Gateway:
    return await provider.connect()


class TestAsaas(GatewayContract):
    """[D-261, D-33]"""


class TestAsaasRefunds(RefundContract):
    """[D-261, D-53]"""


async def test_the_payer_gets_a_link_and_a_code(gateway: Gateway) -> None:
    """[D-261, D-49]"""
    card = (await gateway.create_charge(charge_request(PaymentMethod.CARD))).pay
    pix = (await gateway.create_charge(charge_request(PaymentMethod.PIX))).pay
    boleto = (await gateway.create_charge(charge_request(PaymentMethod.BOLETO))).pay

    assert all(each.url and each.url.startswith("https://") for each in (card, pix, boleto))
    assert (card.pix_code, card.boleto_line, pix.boleto_line, boleto.pix_code) == (None, None, None, None)
    assert pix.pix_code is not None
    assert pix.pix_code.startswith("000201")
    assert pix.expires_at == datetime(2027, 3, 16, 2, 59, 59, tzinfo=UTC), "23:59:59 in Sao Paulo"
    assert boleto.boleto_line is not None


async def test_a_customer_is_created_once_and_kept_up_to_date(
    gateway: Gateway, provider: AsaasProvider
) -> None:
    """Asaas sends no messages to the payer. [D-261]"""
    first = charge_request()
    await gateway.create_charge(first)
    await gateway.create_charge(replace(charge_request(), payer=first.payer))
    renamed = replace(first.payer, name="Ana Lima", document="529.982.247-25")
    await gateway.create_charge(replace(charge_request(), payer=renamed))

    (customer,) = provider.account(gateway).customers.values()
    assert (customer["name"], customer["cpfCnpj"]) == ("Ana Lima", "52998224725")
    assert customer["externalReference"] == str(first.payer.customer_id)
    assert customer["notificationDisabled"] is True


@pytest.mark.parametrize(
    "fault",
    [
        ("GET", "/customers", Loss.ERROR_BEFORE),
        ("GET", "/customers", Loss.JUNK),
        ("POST", "/customers", Loss.REQUEST),
        ("POST", "/customers", Loss.ANSWER),
        ("POST", "/customers", Loss.ERROR_AFTER),
        ("POST", "/customers", Loss.JUNK),
    ],
)
async def test_a_lost_customer_is_no_charge(
    gateway: Gateway, provider: AsaasProvider, fault: tuple[str, str, Loss]
) -> None:
    """The failure is transient, so the engine repeats the request at once. [D-261, D-34]"""
    request = charge_request()
    provider.double.fail_next(*fault)

    with pytest.raises(TransientError):
        await gateway.create_charge(request)
    assert provider.account(gateway).payments == {}
    await gateway.create_charge(request)
    assert len(provider.account(gateway).payments) == 1
    assert len(provider.account(gateway).customers) == 1


@pytest.mark.parametrize("loss", [Loss.ANSWER, Loss.ERROR_AFTER, Loss.JUNK])
async def test_a_charge_that_may_exist_is_looked_up(
    gateway: Gateway, provider: AsaasProvider, loss: Loss
) -> None:
    """[D-33, D-261]"""
    request = charge_request()
    provider.double.fail_next("POST", "/payments", loss)

    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(request)
    (found,) = await gateway.find_charges(request.invoice_id, 1)
    assert found.pay.pix_code is not None


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.RATE, Loss.ERROR_BEFORE, Loss.JUNK])
async def test_a_charge_without_its_code_is_looked_up(
    gateway: Gateway, provider: AsaasProvider, loss: Loss
) -> None:
    """The charge exists, so the failure of a later step must not count as transient. [D-33, D-261]"""
    request = charge_request()
    for _ in range(2):  # the HTTP library repeats a GET once if a kept connection breaks
        provider.double.fail_next("GET", r"/payments/\w+/pixQrCode", loss)

    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(request)
    provider.double.faults.clear()
    (found,) = await gateway.find_charges(request.invoice_id, 1)
    assert found.pay.pix_code is not None


@pytest.mark.parametrize("loss", [Loss.JUNK, Loss.ERROR_BEFORE])
async def test_a_code_that_cannot_be_read_does_not_hide_the_charge(
    gateway: Gateway, provider: AsaasProvider, loss: Loss
) -> None:
    """Otherwise the engine would never know the charge. The payer uses the link. [D-50, D-261]"""
    created = await gateway.create_charge(charge_request())
    provider.double.fail_next("GET", r"/payments/\w+/pixQrCode", loss)

    (found,) = await gateway.find_charges(created.invoice_id, 1)
    assert found == replace(created, pay=replace(created.pay, pix_code=None, expires_at=None))
    provider.double.fail_next("GET", r"/payments/\w+/pixQrCode", Loss.RATE)
    with pytest.raises(TransientError):
        await gateway.find_charges(created.invoice_id, 1)
    assert await gateway.find_charges(created.invoice_id, 1) == [created]


async def test_a_customer_of_another_program_is_not_used(gateway: Gateway, provider: AsaasProvider) -> None:
    """Asaas might ignore the filter of the list. [D-261]"""
    account = provider.account(gateway)
    other = account.create_customer({"name": "Bia", "cpfCnpj": "52998224725", "externalReference": "erp-1"})
    provider.double.edit = lambda answer: answer.update(data=[other]) if answer.get("data") == [] else None
    created = await gateway.create_charge(charge_request())

    assert account.payments[created.charge_id]["customer"] != other["id"]
    assert other["name"] == "Bia"


@pytest.mark.parametrize(
    ("minutes", "error"), [(-1, TransientError), (-30, PermanentError), (1, PermanentError)]
)
async def test_a_due_date_that_just_passed_is_a_transient_failure(
    provider: AsaasProvider, minutes: int, error: type[Exception]
) -> None:
    """The engine built the request `minutes` after midnight, and Asaas got it on the new day. [D-34, D-261]"""
    gateway = provider.gateway(provider.double.open_account())
    midnight = start_of_day(TODAY)
    gateway._config = replace(gateway._config, now=midnight + timedelta(minutes=minutes))
    with pytest.raises(error):
        await gateway.create_charge(replace(charge_request(), due_date=TODAY - timedelta(days=1)))
    assert provider.account(gateway).payments == {}


async def test_amounts_are_exact(gateway: Gateway, provider: AsaasProvider) -> None:
    """[D-261, D-8]"""
    for amount_cents in (501, 999, 1001, 10_010, 123_456_789, 99_999_999_999):
        request = replace(charge_request(), amount_cents=amount_cents)
        charge = await gateway.create_charge(request)
        await provider.pay(gateway, charge)
        paid = await gateway.get_charge(charge.charge_id)
        assert (paid.amount_cents, paid.entries[0].amount_cents) == (amount_cents, amount_cents)
        assert paid.entries[0].fee_cents == 199


async def test_installments_are_one_charge(gateway: Gateway, provider: AsaasProvider) -> None:
    """The last installment has the remaining cents. Each installment is an entry of its own. [D-261, D-49]"""
    request = replace(charge_request(PaymentMethod.CARD), amount_cents=35_000, installments=12)
    created = await gateway.create_charge(request)

    assert (created.amount_cents, created.state) == (35_000, ChargeState.OPEN)
    assert created.due_date == request.due_date
    assert await gateway.find_charges(request.invoice_id, 1) == [created]
    assert await charges_listed(gateway, NOW) == [created]
    await provider.pay(gateway, created)
    paid = await gateway.get_charge(created.charge_id)
    assert paid.state is ChargeState.PAID
    assert [entry.amount_cents for entry in paid.entries] == 11 * [2916] + [2924]
    assert gateway.read_webhook(provider.webhook(gateway, paid)).charge_ids == (created.charge_id,)
    part = provider.account(gateway).parts(created.charge_id)[1]["id"]
    with pytest.raises(NotFoundError):
        await gateway.get_charge(part)
    with pytest.raises(PermanentError):
        await gateway.refund_charge(refund_request(created, 100))


async def test_installments_are_canceled_together(gateway: Gateway, provider: AsaasProvider) -> None:
    """[D-261, D-27]"""
    request = replace(charge_request(PaymentMethod.CARD), installments=3)
    created = await gateway.create_charge(request)

    assert await gateway.cancel_charge(created.charge_id) == replace(created, state=ChargeState.CANCELED)
    assert all(each["deleted"] for each in provider.account(gateway).parts(created.charge_id))
    assert await gateway.find_charges(request.invoice_id, 1) == []


async def test_a_payment_of_somebody_else_is_never_touched(gateway: Gateway, provider: AsaasProvider) -> None:
    """[D-261]"""
    account = provider.account(gateway)
    customer = account.create_customer({"name": "Bia", "cpfCnpj": "52998224725"})
    body = {"customer": customer["id"], "billingType": "PIX", "value": 10, "dueDate": "2026-03-20"}
    own = [
        account.create_payment({**body, "externalReference": text})["id"]
        for text in ("", "056984", f"{uuid4()}")
    ]

    for payment_id in own:
        for call in (gateway.get_charge, gateway.cancel_charge):
            with pytest.raises(NotFoundError):
                await call(payment_id)
        account.pay(payment_id)
        with pytest.raises(NotFoundError):
            await gateway.refund_charge(replace(refund_request(_some_charge(), 100), charge_id=payment_id))
    assert await charges_listed(gateway, NOW) == []
    assert not any(each["refunds"] or each["deleted"] for each in account.payments.values())


def _some_charge() -> Charge:
    return Charge("pay_1", uuid4(), 1, ChargeState.OPEN, 1000)


@pytest.mark.parametrize(("method", "path"), [("POST", "/payments"), ("GET", r"/payments/\w+/pixQrCode")])
async def test_a_slow_answer_leaves_the_charge_unknown(
    gateway: Gateway, provider: AsaasProvider, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    """[D-33, D-260]"""
    monkeypatch.setattr(client, "DEADLINE_SECONDS", 0.3)
    request = charge_request()
    provider.double.fail_next(method, path, Loss.SLOW)

    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(request)
    assert len(await gateway.find_charges(request.invoice_id, 1)) == 1


async def test_a_customer_that_cannot_be_changed_is_replaced(
    gateway: Gateway, provider: AsaasProvider
) -> None:
    """A deleted customer is replaced as well. [D-261]"""
    request = charge_request()
    await gateway.create_charge(request)
    customers = provider.account(gateway).customers
    provider.double.refused_changes = True
    await gateway.create_charge(replace(charge_request(), payer=replace(request.payer, name="Ana Lima")))
    assert [each["name"] for each in customers.values()] == ["Ana Souza", "Ana Lima"]

    provider.double.refused_changes = False
    for each in customers.values():
        each["deleted"] = True
    await gateway.create_charge(replace(charge_request(), payer=request.payer))
    assert len(customers) == 3


async def test_a_document_is_required(gateway: Gateway, provider: AsaasProvider) -> None:
    """Without a document, no call is made. Asaas checks the digits. [D-261]"""
    request = charge_request()
    with pytest.raises(PermanentError) as refusal:
        await gateway.create_charge(replace(request, payer=replace(request.payer, document=None)))
    assert refusal.value.code == "document_required"
    assert provider.double.requests == []
    with pytest.raises(PermanentError) as refusal:
        await gateway.create_charge(replace(request, payer=replace(request.payer, document="11111111111")))
    assert (refusal.value.code, refusal.value.detail) == (
        "invalid_object",
        "O CPF/CNPJ informado é inválido.",
    )


async def test_a_webhook_needs_the_token(gateway: Gateway, provider: AsaasProvider) -> None:
    """An event without a payment of the engine, and an id that is none of Asaas, name no charge.

    Only a text is an id of an event. [D-35 webhook, D-261, D-266 no id]
    """
    genuine = provider.webhook(gateway, await gateway.create_charge(charge_request()))
    ours = {"externalReference": f"{uuid4()}:1"}
    for payment in (None, {"id": "pay_1"}, {"id": "pay_1", "externalReference": "9"}, {"id": "../x", **ours}):
        event = {"event": "PAYMENT_CREATED", "payment": payment}
        assert gateway.read_webhook(replace(genuine, body=json.dumps(event).encode())).charge_ids == ()
    for event_id, known in (("evt_1&2", "evt_1&2"), (7, None), (None, None), ({}, None)):
        event = json.loads(genuine.body) | {"id": event_id}
        assert gateway.read_webhook(replace(genuine, body=json.dumps(event).encode())).event_id == known
    for body in (b"", b"[]", b"\xff", b"[" * 60_000, b'{"event": 1}'):
        with pytest.raises(AuthFailedError):
            gateway.read_webhook(replace(genuine, body=body))
    without = provider.gateway(provider.double.open_account())
    for headers in ({}, {"asaas-access-token": ""}, {"asaas-access-token": "\xe7"}):
        with pytest.raises(AuthFailedError):
            without.read_webhook(Webhook(headers, "", genuine.body))


async def test_wrong_credentials_are_refused(provider: AsaasProvider) -> None:
    """The wallet identifies the account. [D-59, D-261]"""
    token = provider.double.open_account()
    right = provider.gateway(token)
    assert await right.check_credentials() == provider.double.accounts[token].wallet_id
    wrong = provider.gateway("$aact_hmlg_" + 40 * "z")
    with pytest.raises(AuthFailedError) as refusal:
        await wrong.check_credentials()
    assert "zzz" not in str(refusal.value)
    with pytest.raises(AuthFailedError):
        await wrong.create_charge(charge_request())


async def test_an_account_without_a_wallet_is_not_accepted(gateway: Gateway, provider: AsaasProvider) -> None:
    """[D-59, D-261]"""
    provider.double.edit = lambda answer: answer.update(data=[])
    with pytest.raises(InvalidFieldError):
        await gateway.check_credentials()


async def test_no_error_contains_the_key(provider: AsaasProvider) -> None:
    """[D-260]"""
    token = provider.double.open_account()
    gateway = provider.gateway(token)
    request = charge_request()
    provider.double.edit = lambda answer: answer.update(
        errors=[{"code": "e", "description": f"chave {token}\n"}]
    )
    with pytest.raises(PermanentError) as refusal:
        await gateway.create_charge(replace(request, payer=replace(request.payer, document="11111111111")))
    assert refusal.value.detail == "chave ***"
    shown = repr(gateway) + repr(gateway._settings()) + repr(gateway._calls()) + repr(gateway._config)
    assert token not in shown


@pytest.mark.parametrize(
    ("settings", "credentials", "fields"),
    [
        ({}, {}, ["credentials.accessToken"]),
        ({"url": "https://evil.example"}, {"accessToken": 30 * "k"}, ["settings.url"]),
        ({"environment": "https://evil.example"}, {"accessToken": 30 * "k"}, ["settings.environment"]),
        ({"environment": ["sandbox"]}, {"accessToken": 30 * "k"}, ["settings.environment"]),
        ({}, {"accessToken": "$aact_hmlg_" + 30 * "k"}, ["credentials.accessToken"]),
        ({"environment": "sandbox"}, {"accessToken": "$aact_prod_" + 30 * "k"}, ["credentials.accessToken"]),
        ({}, {"accessToken": 30 * "k" + "\r\nX: 1"}, ["credentials.accessToken"]),
        ({}, {"accessToken": 30 * "k", "apiKey": "x"}, ["credentials.apiKey"]),
        ({"webhookToken": "short", "methods": []}, {"accessToken": 7}, None),
        ({"maxInstallments": 13}, {"accessToken": 30 * "k"}, ["settings.maxInstallments"]),
    ],
)
async def test_wrong_settings_are_named(
    provider: AsaasProvider, settings: dict[str, Any], credentials: dict[str, Any], fields: list[str] | None
) -> None:
    """[D-43, D-261]"""
    gateway = provider.gateway("")
    gateway._config = replace(gateway._config, settings=settings, credentials=credentials)
    with pytest.raises(GatewaySettingsError) as refusal:
        gateway.capabilities()
    named = [path for path, _ in refusal.value.fields]
    assert named == (fields or ["settings.webhookToken", "settings.methods", "credentials.accessToken"])


async def test_settings_limit_the_methods(provider: AsaasProvider) -> None:
    """[D-261]"""
    gateway = provider.gateway(provider.double.open_account(), methods=["pix"], maxInstallments=6)
    capabilities = gateway.capabilities()
    assert (capabilities.methods, capabilities.max_installments) == ((PaymentMethod.PIX,), 1)
    with pytest.raises(PermanentError):
        await gateway.create_charge(charge_request(PaymentMethod.BOLETO))
    with pytest.raises(PermanentError):
        await gateway.create_charge(replace(charge_request(), currency="USD"))
