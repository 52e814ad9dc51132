"""The contract suite against Stripe, and tests of what only this adapter does (D-263)."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from fatura.domain.charge import PayData
from fatura.domain.offer import PaymentMethod
from fatura.gateways.adapters.stripe.settings import parse
from fatura.gateways.port import (
    AuthFailedError,
    Gateway,
    GatewaySettingsError,
    Line,
    NotFoundError,
    PermanentError,
    ProductMirror,
    UnknownOutcomeError,
)
from tests.contract.gateway_contract import GatewayContract
from tests.contract.provider import DUE_DATE, NOW, charge_request, charges_listed, refund_request
from tests.contract.refund_contract import RefundContract
from tests.contract.stripe_provider import StripeProvider, opened_provider
from tests.doubles.server import Loss


@pytest.fixture
async def provider() -> AsyncGenerator[StripeProvider]:
    async with opened_provider() as opened:
        yield opened


@pytest.fixture
async def gateway(provider: StripeProvider) -> Gateway:
    return await provider.connect()


class TestStripe(GatewayContract):
    """[D-263, D-33]"""


class TestStripeRefunds(RefundContract):
    """[D-263, D-53]"""


async def test_the_payer_gets_the_hosted_page(gateway: Gateway, provider: StripeProvider) -> None:
    """Stripe offers only the method of the invoice, sends no e-mail, and charges nothing by itself. [D-263, D-49]"""
    for method in PaymentMethod:
        charge = await gateway.create_charge(charge_request(method))
        invoice = provider.account(gateway).invoices[charge.charge_id]
        assert charge.pay == PayData(url=invoice["hosted_invoice_url"])
        assert invoice["payment_settings"]["payment_method_types"] == [method]
        assert (invoice["auto_advance"], invoice["collection_method"]) == (False, "send_invoice")
        assert (charge.due_date, charge.created_at) == (DUE_DATE, NOW)


async def test_each_line_is_shown_to_the_payer(gateway: Gateway, provider: StripeProvider) -> None:
    """Lines after the tenth are joined, because Stripe shows only ten with an invoice. [D-263]"""
    for count, shown in ((1, 1), (3, 3), (10, 10), (11, 10), (20, 10)):
        lines = tuple(Line(f"Item {number}", 100 + number) for number in range(count))
        amount = sum(line.amount_cents for line in lines)
        request = replace(charge_request(), lines=lines, amount_cents=amount)
        charge = await gateway.create_charge(request)
        made = provider.account(gateway).invoices[charge.charge_id]["lines"]["data"]
        assert (len(made), sum(line["amount"] for line in made)) == (shown, amount)
        assert made[0]["description"] == "Item 0"
    assert made[9]["description"] == "; ".join(f"Item {number}" for number in range(9, 20))
    odd = replace(charge_request(), lines=(Line("Gold", 1),))
    charge = await gateway.create_charge(odd)
    [line] = provider.account(gateway).invoices[charge.charge_id]["lines"]["data"]
    assert line["amount"] == odd.amount_cents, "the charge has the amount of the request"


async def test_a_customer_is_created_once_and_kept_up_to_date(
    gateway: Gateway, provider: StripeProvider
) -> None:
    """Another address or document makes a new customer, because Stripe finds customers by their address. [D-263]"""
    first = charge_request().payer
    for payer in (first, first, replace(first, name="Ana Lima"), replace(first, document="529.982.247-25")):
        await gateway.create_charge(replace(charge_request(), payer=payer))
    account = provider.account(gateway)
    [customer] = account.of("customer").values()
    assert customer["metadata"]["fatura_customer"] == str(first.customer_id)
    assert account.tax_ids[customer["id"]] == [{"type": "br_cpf", "value": "529.982.247-25"}]

    for payer in (replace(first, email="ana@example.org"), replace(first, document="12ABC34501DE35")):
        await gateway.create_charge(replace(charge_request(), payer=payer))
    await gateway.create_charge(replace(charge_request(), payer=replace(first, document=None)))
    ids = [account.tax_ids[each] for each in account.of("customer")]
    assert ids[2:] == [[{"type": "br_cnpj", "value": "12.ABC.345/01DE-35"}], []]


async def test_a_customer_of_another_program_is_not_used(gateway: Gateway, provider: StripeProvider) -> None:
    """Customers may share an address, also more than fit into one page. [D-263]"""
    account = provider.account(gateway)
    request = charge_request()
    mine = (await gateway.create_charge(request)).charge_id
    for _ in range(120):
        account.new("customer", "cus", balance=0, email=request.payer.email, name="Bia")
    later = await gateway.create_charge(replace(charge_request(), payer=request.payer))
    assert account.invoices[later.charge_id]["customer"] == account.invoices[mine]["customer"]
    other = await gateway.create_charge(charge_request())
    assert account.invoices[other.charge_id]["customer"] != account.invoices[mine]["customer"]


@pytest.mark.parametrize("document", ["123", "1234567890123456", "ABCDEFGHIJK"])
async def test_an_invalid_document_is_refused_without_a_call(
    gateway: Gateway, provider: StripeProvider, document: str
) -> None:
    """Stripe checks the digits of other documents. [D-263]"""
    request = charge_request()
    with pytest.raises(PermanentError) as refusal:
        await gateway.create_charge(replace(request, payer=replace(request.payer, document=document)))
    assert (refusal.value.code, provider.double.requests) == ("document_invalid", [])
    with pytest.raises(PermanentError) as refusal:
        await gateway.create_charge(replace(request, payer=replace(request.payer, document="11111111111")))
    assert refusal.value.code == "tax_id_invalid"


@pytest.mark.parametrize(
    ("method", "cents"),
    [
        (PaymentMethod.CARD, 49),
        (PaymentMethod.PIX, 49),
        (PaymentMethod.BOLETO, 499),
        (PaymentMethod.BOLETO, 5_000_000),
        (PaymentMethod.CARD, 100_000_000),
    ],
)
async def test_limits_of_methods_are_kept(
    gateway: Gateway, provider: StripeProvider, method: PaymentMethod, cents: int
) -> None:
    """Below its minimum, Stripe would count an invoice as paid. [D-49 minimums, D-263]"""
    with pytest.raises(PermanentError) as refusal:
        await gateway.create_charge(replace(charge_request(method), amount_cents=cents))
    assert (refusal.value.code, provider.double.requests) == ("amount_unsupported", [])


@pytest.mark.parametrize("change", [{"currency": "USD"}, {"installments": 2}])
async def test_what_stripe_cannot_do_is_refused(
    gateway: Gateway, provider: StripeProvider, change: dict[str, Any]
) -> None:
    """[D-263]"""
    request: Any = charge_request(PaymentMethod.CARD)
    with pytest.raises(PermanentError):
        await gateway.create_charge(replace(request, **change))
    assert provider.double.requests == []
    only_pix = provider.gateway(provider.double.open_account(), methods=["pix"])
    with pytest.raises(PermanentError):
        await only_pix.create_charge(request)


async def test_settings_are_checked(provider: StripeProvider) -> None:
    """A test key works only in the sandbox, and a live key only in production. [D-263, D-59]"""
    for key, environment in (
        ("sk_live_" + 24 * "a", "production"),
        ("rk_live_" + 24 * "a", "production"),
        ("sk_test_" + 24 * "a", "sandbox"),
        ("rk_test_" + 24 * "a", "sandbox"),
    ):
        settings = {"environment": environment, "webhookSecret": "whsec_" + 32 * "b"}
        assert parse(settings, {"apiKey": key}).is_live is (environment == "production")
        other = "sandbox" if environment == "production" else "production"
        with pytest.raises(GatewaySettingsError) as wrong:
            parse({"environment": other}, {"apiKey": key})
        assert [path for path, _ in wrong.value.fields] == ["credentials.apiKey"]
        assert key not in str(wrong.value)
    assert parse({}, {"apiKey": "sk_live_" + 24 * "a"}).methods == tuple(PaymentMethod)
    for settings in (
        {"environment": "test"},
        {"environment": []},
        {"methods": []},
        {"methods": ["pix", "pix"]},
        {"webhookSecret": ""},
        {"webhookSecret": "secret"},
        {"webhookSecret": ["whsec_" + 32 * "b"]},
        {"url": "https://example.com"},
    ):
        with pytest.raises(GatewaySettingsError):
            parse(settings, {"apiKey": "sk_live_" + 24 * "a"})
    for credentials in (
        {},
        {"apiKey": "pk_live_" + 24 * "a"},
        {"apiKey": 1},
        {"apiKey": "sk_live_x\n" + 24 * "a"},
    ):
        with pytest.raises(GatewaySettingsError):
            parse({}, credentials)


async def test_wrong_credentials_are_refused(provider: StripeProvider) -> None:
    """[D-59, D-263]"""
    key = provider.double.open_account()
    right = provider.gateway(key)
    assert await right.check_credentials() == f"{provider.double.accounts[key].account_id} (sandbox)"
    wrong = provider.gateway("rk_test_" + 24 * "z")
    with pytest.raises(AuthFailedError) as refusal:
        await wrong.check_credentials()
    assert "zzz" not in str(refusal.value)
    with pytest.raises(AuthFailedError):
        await wrong.create_charge(charge_request())


async def test_test_mode_is_another_account_than_live_mode(provider: StripeProvider) -> None:
    """Both have one id at Stripe, but the charges of one do not exist in the other. [D-59, D-263]"""
    test_key, live_key = provider.double.open_account(), "sk_live_" + 24 * "0"
    provider.double.accounts[live_key] = provider.double.accounts[test_key]
    live = await provider.gateway(live_key, environment="production").check_credentials()
    assert live == provider.double.accounts[test_key].account_id
    assert live != await provider.gateway(test_key).check_credentials()


async def test_no_error_contains_the_key(provider: StripeProvider) -> None:
    """[D-260]"""
    key = provider.double.open_account()
    gateway = provider.gateway(key)

    def leak(answer: Any) -> None:
        if "error" in answer:
            answer["error"]["message"] = f"No {key} and Bearer {key}"

    provider.double.edit = leak
    request = charge_request()
    with pytest.raises(PermanentError) as refusal:
        await gateway.create_charge(replace(request, payer=replace(request.payer, document="11111111111")))
    assert key not in str(refusal.value)
    assert "***" in refusal.value.detail


async def test_an_invoice_of_somebody_else_is_never_touched(
    gateway: Gateway, provider: StripeProvider
) -> None:
    """[D-263]"""
    account = provider.account(gateway)
    charge = await gateway.create_charge(charge_request())
    own = account.invoices[charge.charge_id]
    for reference in (None, "", "1", f"{uuid4()}", f"{uuid4()}:1 "):
        own["metadata"] = {} if reference is None else {"fatura_reference": reference}
        for call in (gateway.get_charge, gateway.cancel_charge):
            with pytest.raises(NotFoundError):
                await call(charge.charge_id)
        with pytest.raises(NotFoundError):
            await gateway.refund_charge(refund_request(charge, 100))
        assert await charges_listed(gateway, NOW) == []
    assert own["status"] == "open"


async def test_a_product_without_a_description_is_mirrored(
    gateway: Gateway, provider: StripeProvider
) -> None:
    """[spec 2.2 mirroring, D-263]"""
    product = ProductMirror(uuid4(), "Gold", "All of it")
    provider.double.contract = None
    for loss in (Loss.ANSWER, Loss.ERROR_AFTER, Loss.JUNK):
        provider.double.fail_next("POST", "/v1/products", loss)
        with pytest.raises(UnknownOutcomeError):
            await gateway.mirror_product(product)
        provider.double.faults.clear()
        assert await gateway.mirror_product(product) == str(product.product_id)
    provider.double.edit = lambda answer: answer.pop("id", None)
    with pytest.raises(UnknownOutcomeError):
        await gateway.mirror_product(product)
    provider.double.edit = lambda _: None
    await gateway.mirror_product(replace(product, description=None))
    [made] = provider.account(gateway).of("product").values()
    assert (made["name"], made["description"]) == ("Gold", None)
