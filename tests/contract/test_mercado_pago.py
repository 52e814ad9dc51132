"""The contract suite against Mercado Pago, and tests of what only this adapter does (D-265)."""

import hmac
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest
from mercadopago.webhook import (  # pyright: ignore[reportMissingTypeStubs] - the package has no types
    InvalidWebhookSignatureError,
    WebhookSignatureValidator,
)

from fatura.domain.offer import PaymentMethod
from fatura.gateways.adapters.mercado_pago.objects import refusal
from fatura.gateways.port import (
    AuthFailedError,
    GatewaySettingsError,
    NotFoundError,
    PermanentError,
    TransientError,
    UnknownOutcomeError,
    Webhook,
)
from tests.contract.gateway_contract import GatewayContract
from tests.contract.mercado_pago_provider import MercadoPagoProvider, opened_provider, signed
from tests.contract.provider import NOW, charge_request, refund_request
from tests.contract.refund_contract import RefundContract
from tests.doubles.mercado_pago.book import Account, RefusedError
from tests.doubles.server import Loss


@pytest.fixture
async def provider() -> AsyncGenerator[MercadoPagoProvider]:
    async with opened_provider() as opened:
        yield opened


@pytest.fixture
async def gateway(provider: MercadoPagoProvider) -> Any:
    return await provider.connect()


class TestMercadoPago(GatewayContract):
    """[D-265, D-33]"""


class TestMercadoPagoRefunds(RefundContract):
    """[D-265, D-53]"""


@pytest.mark.parametrize(
    ("method", "allowed"),
    [
        (PaymentMethod.CARD, {"credit_card", "debit_card", "prepaid_card"}),
        (PaymentMethod.PIX, {"bank_transfer"}),
        (PaymentMethod.BOLETO, {"ticket"}),
    ],
)
async def test_the_page_offers_only_the_method_of_the_invoice(
    gateway: Any, provider: MercadoPagoProvider, method: PaymentMethod, allowed: set[str]
) -> None:
    """The link works until the end of the last day in Sao Paulo. [D-265, D-49]"""
    installments = 12 if method is PaymentMethod.CARD else None
    request = replace(charge_request(method), installments=installments)
    charge = await gateway.create_charge(request)

    preference = provider.account(gateway).preference(charge.charge_id)
    types = {"credit_card", "debit_card", "prepaid_card", "bank_transfer", "ticket", "digital_currency"}
    methods = preference["payment_methods"]
    assert {each["id"] for each in methods["excluded_payment_types"]} == types - allowed
    assert methods["installments"] == (installments or 1)
    assert preference["external_reference"] == f"{request.invoice_id}:1"
    assert preference["expiration_date_to"] == "2026-03-15T23:59:59.000-03:00"
    assert charge.pay.expires_at == datetime(2026, 3, 16, 2, 59, 59, tzinfo=UTC)
    assert charge.pay.url == preference["init_point"]
    assert preference["payer"] == {
        "name": "Ana Souza",
        "email": "ana@example.com",
        "identification": {"type": "CPF", "number": "52998224725"},
    }


@pytest.mark.parametrize("document", [None, "123", "52998224725 x"])
async def test_a_customer_without_a_document_pays_too(
    gateway: Any, provider: MercadoPagoProvider, document: str | None
) -> None:
    """The payer types the document on the page of Mercado Pago. [D-265]"""
    request = charge_request(PaymentMethod.BOLETO)
    charge = await gateway.create_charge(replace(request, payer=replace(request.payer, document=document)))
    payer = provider.account(gateway).preference(charge.charge_id)["payer"]
    assert "identification" not in payer


async def test_amounts_are_exact(gateway: Any, provider: MercadoPagoProvider) -> None:
    """Mercado Pago returns some amounts as texts. [D-265, D-8]"""
    account = provider.account(gateway)
    for amount_cents in (1, 7, 999, 10_010, 123_456_789, 9_999_999_999):
        charge = await gateway.create_charge(replace(charge_request(), amount_cents=amount_cents))
        account.preference(charge.charge_id)["items"][0]["unit_price"] = f"{amount_cents / 100:.2f}"
        provider.double.contract = None
        account.attempt(charge.charge_id)
        paid = await gateway.get_charge(charge.charge_id)
        assert (paid.amount_cents, paid.entries[0].amount_cents) == (amount_cents, amount_cents)


async def test_another_amount_or_no_link_in_the_answer_leaves_the_charge_unknown(
    gateway: Any, provider: MercadoPagoProvider
) -> None:
    """[D-33, D-265]"""
    provider.double.contract = None
    for edit in (
        lambda answer: answer["items"][0].update(unit_price=1),
        lambda answer: answer.update(init_point=None),
        lambda answer: answer.update(external_reference=None),
    ):
        provider.double.edit = edit
        with pytest.raises(UnknownOutcomeError):
            await gateway.create_charge(charge_request())


async def test_a_preference_of_another_program_is_never_touched(
    gateway: Any, provider: MercadoPagoProvider
) -> None:
    """[D-265]"""
    account, ours = provider.account(gateway), await gateway.create_charge(charge_request())
    item = {"title": "Book", "quantity": 1, "unit_price": 10, "currency_id": "BRL"}
    made = [
        account.create({"items": [item], "external_reference": text}) for text in ("", "42", str(uuid4()))
    ]
    made.append(account.create({"items": [item]}))

    for each in made:
        before = dict(each)
        for call in (gateway.get_charge, gateway.cancel_charge):
            with pytest.raises(NotFoundError):
                await call(each["id"])
        with pytest.raises(NotFoundError):
            await gateway.refund_charge(replace(refund_request(ours, 100), charge_id=each["id"]))
        assert each == before


async def test_an_unlisted_preference_is_absent_only_without_payments(
    gateway: Any, provider: MercadoPagoProvider
) -> None:
    """If the payer has paid, the engine must not make another charge. [D-33, D-265]"""
    account = provider.account(gateway)
    charge = await gateway.create_charge(charge_request())
    account.unlisted.add(charge.charge_id)
    assert await gateway.find_charges(charge.invoice_id, 1) == []
    account.attempt(charge.charge_id, "rejected")
    with pytest.raises(TransientError):
        await gateway.find_charges(charge.invoice_id, 1)
    account.unlisted.clear()
    assert len(await gateway.find_charges(charge.invoice_id, 1)) == 1


async def test_a_list_without_references_hides_no_charge(gateway: Any, provider: MercadoPagoProvider) -> None:
    """A list that is longer than a page proves nothing. [D-33, D-265]"""
    charge = await gateway.create_charge(charge_request())
    other = await gateway.create_charge(charge_request())

    def without_references(answer: Any) -> None:
        for each in answer.get("elements", []):
            each["external_reference"] = None
            answer["elements"].append({**each, "id": other.charge_id})
            break

    provider.double.edit = without_references
    assert await gateway.find_charges(charge.invoice_id, 1) == [charge]
    provider.double.edit = lambda answer: answer.update(total=1229) if "elements" in answer else None
    with pytest.raises(UnknownOutcomeError):
        await gateway.find_charges(charge.invoice_id, 1)


async def test_wrong_credentials_are_refused(provider: MercadoPagoProvider) -> None:
    """The id of the user identifies the account, which must be Brazilian. [D-59, D-265]"""
    token = provider.double.open_account()
    right = provider.gateway(token)
    assert await right.check_credentials() == str(provider.double.accounts[token].user_id)
    wrong = provider.gateway("TEST-" + 40 * "z")
    with pytest.raises(AuthFailedError) as refused:
        await wrong.check_credentials()
    assert "zzz" not in str(refused.value)
    with pytest.raises(AuthFailedError):
        await wrong.create_charge(charge_request())
    provider.double.accounts[token].site_id = "MLA"
    with pytest.raises(AuthFailedError) as refused:
        await right.check_credentials()
    assert refused.value.field == ("credentials.accessToken", "belongs to an account outside Brazil")


async def test_no_error_contains_the_token(
    provider: MercadoPagoProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-260]"""
    token = provider.double.open_account()
    gateway = provider.gateway(token)
    monkeypatch.setattr(Account, "create", _refuse_with(token))
    with pytest.raises(PermanentError) as refused:
        await gateway.create_charge(charge_request())
    assert (refused.value.code, refused.value.detail) == ("2102", "token ***")
    assert token not in repr(gateway) + repr(gateway._settings()) + repr(gateway._calls()) + repr(
        gateway._config
    )


def _refuse_with(token: str) -> Any:
    def create(_account: Account, _body: Any) -> Any:
        raise RefusedError(2102, f"token {token}\n")

    return create


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"message": "m", "error": "e", "cause": [{"code": 2063, "description": "d"}]}, ("2063", "d")),
        ({"message": "m", "error": "bad_request", "status": 400, "cause": []}, ("bad_request", "m")),
        ({"message": "m", "error": "e", "cause": "text"}, ("e", "m")),
        ({"message": "m", "cause": {"code": 1}}, ("", "m")),
        ({"code": "unauthorized"}, ("", "")),
        ([], None),
    ],
)
def test_errors_are_read(body: Any, found: tuple[str, str] | None) -> None:
    """[D-265]"""
    assert refusal(json.dumps(body).encode()) == found


@pytest.mark.parametrize(
    ("settings", "token", "fields"),
    [
        ({}, None, ["credentials.accessToken"]),
        ({}, "APP_USR-" + 30 * "k", []),
        ({"environment": "test"}, "APP_USR-" + 30 * "k", []),
        ({"environment": "test"}, "TEST-" + 30 * "k", []),
        ({}, "TEST-" + 30 * "k", ["credentials.accessToken"]),
        ({}, 30 * "k", ["credentials.accessToken"]),
        ({}, "APP_USR-" + 30 * "k" + "\r\nX: 1", ["credentials.accessToken"]),
        ({"url": "https://evil.example"}, "APP_USR-" + 30 * "k", ["settings.url"]),
        ({"environment": ["test"]}, "APP_USR-" + 30 * "k", ["settings.environment"]),
        ({"daysAfterDueDate": True}, "APP_USR-" + 30 * "k", ["settings.daysAfterDueDate"]),
        ({"maxInstallments": 13}, "APP_USR-" + 30 * "k", ["settings.maxInstallments"]),
        (
            {"webhookSecret": "short", "methods": []},
            "APP_USR-" + 30 * "k",
            ["settings.webhookSecret", "settings.methods"],
        ),
    ],
)
async def test_wrong_settings_are_named(
    provider: MercadoPagoProvider, settings: dict[str, Any], token: str | None, fields: list[str]
) -> None:
    """[D-43, D-265]"""
    gateway = provider.gateway("")
    gateway._config = replace(gateway._config, settings=settings, credentials={"accessToken": token})
    named: list[str] = []
    try:
        gateway.capabilities()
    except GatewaySettingsError as refused:
        named = [path for path, _ in refused.fields]
    assert named == fields


async def test_settings_limit_what_is_created(provider: MercadoPagoProvider) -> None:
    """Nothing is sent for a request that the connection does not support. [D-265]"""
    gateway = provider.gateway(provider.double.open_account(), methods=["pix"], maxInstallments=6)
    assert (gateway.capabilities().methods, gateway.capabilities().max_installments) == (
        (PaymentMethod.PIX,),
        1,
    )
    for wrong in (charge_request(PaymentMethod.BOLETO), replace(charge_request(), currency="USD")):
        with pytest.raises(PermanentError):
            await gateway.create_charge(wrong)
    assert provider.double.requests == []


SECRET = 32 * "s"


@pytest.fixture
def hooked(provider: MercadoPagoProvider) -> Any:
    return provider.gateway(provider.double.open_account(), webhookSecret=SECRET)


async def test_a_webhook_about_a_payment_starts_a_round_of_polls(hooked: Any) -> None:
    """Other events name nothing. The time may be in seconds, and the id only in the body.

    [D-35 webhook, D-265, D-266]
    """
    assert hooked.read_webhook(signed(7, secret=SECRET)).charge_ids is None
    assert hooked.read_webhook(signed(7, secret=SECRET, at=NOW.timestamp() / 1000)).charge_ids is None
    assert hooked.read_webhook(replace(signed(7, secret=SECRET), query="type=payment")).charge_ids is None
    first, other = signed(7, secret=SECRET), signed(7, secret=SECRET)
    ids = [hooked.read_webhook(each).event_id for each in (first, replace(first, body=b"{}"), other)]
    assert ids[0] == ids[1] != ids[2], "the body is not signed, so its id identifies nothing"
    for kind in ("chargebacks", "topic_claims_integration_wh"):
        assert hooked.read_webhook(signed(7, secret=SECRET, kind=kind)).charge_ids is None
    for kind in ("merchant_order", "plan", ""):
        assert hooked.read_webhook(signed(7, secret=SECRET, kind=kind)).charge_ids == ()


@pytest.mark.parametrize("minutes", [-61, 6, 60 * 24 * 365 * 250])
async def test_an_old_webhook_is_refused(hooked: Any, minutes: int) -> None:
    """[D-35 webhook refused, D-265]"""
    at = NOW + timedelta(minutes=minutes)
    with pytest.raises(AuthFailedError):
        hooked.read_webhook(signed(7, secret=SECRET, at=at.timestamp()))


async def test_a_changed_webhook_is_refused(hooked: Any, provider: MercadoPagoProvider) -> None:
    """[D-35 webhook refused, D-265]"""
    right = signed(7, secret=SECRET)
    signature, request_id = right.headers["x-signature"], right.headers["x-request-id"]
    sent_at, _, code = signature.partition(",")
    for headers, query in (
        ({}, right.query),
        ({"x-signature": signature}, right.query),
        ({"x-signature": signature, "x-request-id": "other"}, right.query),
        ({"x-signature": code, "x-request-id": request_id}, right.query),
        ({"x-signature": sent_at, "x-request-id": request_id}, right.query),
        ({"x-signature": f"{sent_at}0,{code}", "x-request-id": request_id}, right.query),
        ({"x-signature": "\ud800=,v1=\ud800", "x-request-id": "\ud800"}, "data.id=\ud800"),
        (right.headers, "data.id=8&type=payment"),
        (right.headers, "topic=payment&id=7&data.id=8"),
    ):
        with pytest.raises(AuthFailedError):
            hooked.read_webhook(Webhook(headers, query, right.body))
    without = provider.gateway(provider.double.open_account())
    for secret in ("", "None", SECRET):
        with pytest.raises(AuthFailedError):
            without.read_webhook(signed(7, secret=secret))


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({}, ""),
        ({"x-request-id": "r"}, "data.id=7"),
        ({}, "data.id=7"),
        ({"x-request-id": "r"}, ""),
        ({"x-request-id": "r"}, "data.id=ABC"),
    ],
)
async def test_the_vendors_library_agrees_about_signatures(
    hooked: Any, headers: dict[str, str], query: str
) -> None:
    """Empty values are left out of the signed text. [D-35 webhook, D-265]"""
    for seconds in (NOW.timestamp(), NOW.timestamp() - 30 * 60, NOW.timestamp() - 90 * 60):
        data_id = query.partition("=")[2]
        for secret in (SECRET, 32 * "x"):
            code = _code(int(seconds), headers.get("x-request-id"), data_id, secret)
            webhook = Webhook({**headers, "x-signature": f"ts={int(seconds)},v1={code}"}, query, b"")
            assert _accepts(hooked, webhook) == _vendor_accepts(webhook, data_id)


def _code(sent_at: int, request_id: str | None, data_id: str, secret: str) -> str:
    """Return the signature of a webhook, as Mercado Pago's documents describe it."""
    values = (("id", data_id), ("request-id", request_id), ("ts", str(sent_at)))
    text = ";".join(f"{name}:{value}" for name, value in values if value) + ";"
    return hmac.new(secret.encode(), text.encode(), sha256).hexdigest()


def _accepts(gateway: Any, webhook: Webhook) -> bool:
    try:
        gateway.read_webhook(webhook)
    except AuthFailedError:
        return False
    return True


def _vendor_accepts(webhook: Webhook, data_id: str) -> bool:
    try:
        WebhookSignatureValidator.validate(
            webhook.headers["x-signature"],
            webhook.headers.get("x-request-id"),
            data_id,
            SECRET,
            tolerance_seconds=3600,
            now=lambda: int(NOW.timestamp() * 1000),
        )
    except InvalidWebhookSignatureError:
        return False
    return True


@pytest.mark.parametrize("loss", [Loss.JUNK, Loss.ANSWER, Loss.ERROR_AFTER])
async def test_a_request_for_a_charge_is_sent_once(
    gateway: Any, provider: MercadoPagoProvider, loss: Loss
) -> None:
    """[D-33, D-265]"""
    provider.double.fail_next("POST", "/checkout/preferences", loss)
    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(charge_request())
    assert provider.double.requests == [("POST", "/checkout/preferences")]
