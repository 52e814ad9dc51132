"""The contract suite against connections with a Pix key, and tests of their special features (D-49)."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fatura.domain.statement_payments import StatementPayment
from fatura.gateways.adapters.pix_key.settings import parse
from fatura.gateways.port import ChargeState, GatewaySettingsError, PermanentError
from fatura.gateways.statement_port import StatementImports
from fatura.store.db import Database
from tests.contract.gateway_contract import GatewayContract
from tests.contract.pix_key_provider import SETTINGS, PixKeyProvider
from tests.contract.provider import NOW, charge_request


@pytest.fixture
def provider(db: Database) -> PixKeyProvider:
    return PixKeyProvider(db)


class TestPixKey(GatewayContract):
    """[D-256, D-33]"""


async def test_a_code_names_the_receiver_the_amount_and_the_charge(provider: PixKeyProvider) -> None:
    """Accents are removed, because the fields of a Pix code are ASCII. [D-256, D-49]"""
    charge = await (await provider.connect()).create_charge(charge_request())

    assert charge.pay.pix_code is not None
    assert charge.pay.pix_code.startswith("00020126370014br.gov.bcb.pix0115pix@example.com")
    assert "540599.90" in charge.pay.pix_code
    assert f"5912Cafe do Joao6009Sao Paulo62290525{charge.charge_id}" in charge.pay.pix_code


async def test_a_new_key_does_not_change_the_code_of_an_existing_charge(provider: PixKeyProvider) -> None:
    """[D-256, D-33]"""
    gateway = await provider.connect()
    request = charge_request()
    created = await gateway.create_charge(request)
    config: Any = gateway
    config._config = replace(config._config, settings={**SETTINGS, "pixKey": "other@example.com"})

    assert await gateway.create_charge(request) == created


async def test_attempts_have_charges_of_their_own(provider: PixKeyProvider) -> None:
    """[D-256, D-49]"""
    gateway = await provider.connect()
    request = charge_request()
    first = await gateway.create_charge(request)
    second = await gateway.create_charge(replace(request, attempt=2))

    assert first.charge_id != second.charge_id
    assert await gateway.find_charges(request.invoice_id, 1) == [first]


@pytest.mark.parametrize("wrong", [{"currency": "USD"}, {"amount_cents": 10**12}])
async def test_what_fits_into_no_code_is_refused(provider: PixKeyProvider, wrong: dict[str, Any]) -> None:
    """[D-256, D-34]"""
    gateway = await provider.connect()
    with pytest.raises(PermanentError):
        await gateway.create_charge(replace(charge_request(), **wrong))


async def test_a_payment_is_imported_once(provider: PixKeyProvider) -> None:
    """The bank's id identifies a payment. Payments of unknown charges are left out. [D-257]"""
    gateway = await provider.connect()
    assert isinstance(gateway, StatementImports)
    charge = await gateway.create_charge(charge_request())
    paid = StatementPayment("bank-1", charge.charge_id, 9990, NOW)
    unknown = StatementPayment("bank-2", 25 * "X", 9990, NOW)

    assert await gateway.import_payments([paid, unknown]) == ["bank-1"]
    assert await gateway.import_payments([paid]) == []
    assert await gateway.import_payments([replace(paid, amount_cents=1)]) == []
    [stored] = await gateway.imported(["bank-1", "bank-2"])
    assert (stored.bank_id, stored.charge_id, stored.invoice_id) == (
        "bank-1",
        charge.charge_id,
        charge.invoice_id,
    )
    assert [entry.amount_cents for entry in (await gateway.get_charge(charge.charge_id)).entries] == [9990]


async def test_only_a_confirmed_payment_may_look_like_another(provider: PixKeyProvider) -> None:
    """Two payments of a charge are alike if their amounts and their Sao Paulo dates are equal.

    A payment of a charge that is already paid in full needs a confirmation, too. [D-257]
    """
    gateway = await provider.connect()
    assert isinstance(gateway, StatementImports)
    charge = await gateway.create_charge(charge_request())
    first = StatementPayment("bank-1", charge.charge_id, 9990, NOW)
    alike = replace(first, bank_id="bank-2", occurred_at=NOW + timedelta(hours=1))

    assert await gateway.import_payments([first]) == ["bank-1"]
    assert await gateway.import_payments([alike]) == []
    assert await gateway.import_payments([replace(alike, is_confirmed=True)]) == ["bank-2"]
    next_day = replace(alike, bank_id="bank-3", occurred_at=NOW + timedelta(days=1))
    assert await gateway.import_payments([next_day]) == []
    assert await gateway.import_payments([replace(next_day, is_confirmed=True)]) == ["bank-3"]


async def test_an_unconfirmed_guess_needs_an_open_charge(provider: PixKeyProvider) -> None:
    """A guess is a payment that does not name its charge. The import found the charge by amount and payer. [D-257]"""
    gateway = await provider.connect()
    assert isinstance(gateway, StatementImports)
    request = charge_request()
    paid = await gateway.create_charge(request)
    canceled = await gateway.create_charge(replace(request, attempt=2))
    await gateway.cancel_charge(canceled.charge_id)
    await gateway.import_payments([StatementPayment("bank-1", paid.charge_id, 4000, NOW)])
    guesses = [
        StatementPayment(f"bank-{each.charge_id}", each.charge_id, 5990, NOW, is_guess=True)
        for each in (paid, canceled)
    ]

    assert await gateway.import_payments(guesses) == []
    confirmed = [replace(each, is_confirmed=True) for each in guesses]
    assert sorted(await gateway.import_payments(confirmed)) == sorted(each.bank_id for each in guesses)


async def test_a_canceled_code_can_still_be_paid(provider: PixKeyProvider) -> None:
    """[D-256, D-257]"""
    gateway = await provider.connect()
    charge = await gateway.cancel_charge((await gateway.create_charge(charge_request())).charge_id)
    await provider.pay(gateway, charge)

    paid = await gateway.get_charge(charge.charge_id)
    assert (paid.state, [entry.amount_cents for entry in paid.entries]) == (ChargeState.CANCELED, [9990])


@pytest.mark.parametrize(
    "key",
    [
        "52998224725",
        "11222333000181",
        "12ABC34501DE35",
        "+5511987654321",
        "pix@example.com",
        "123e4567-e12b-12d1-a456-426655440000",
    ],
)
def test_every_kind_of_key_is_accepted(key: str) -> None:
    """[D-256, D-43]"""
    assert parse({**SETTINGS, "pixKey": key}, {}).pix_key == key


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pixKey", "52998224724"),
        ("pixKey", "529.982.247-25"),
        ("pixKey", "Pix@Example.com"),
        ("pixKey", "11987654321"),
        ("pixKey", f"{74 * 'x'}@x.br"),
        ("pixKey", ""),
        ("pixKey", None),
        ("pixKey", 52998224725),
        ("merchantName", " "),
        ("merchantName", "\u00b4"),
        ("merchantName", 26 * "x"),
        ("merchantName", "東京"),
        ("merchantName", "A\nB"),
        ("merchantCity", 16 * "x"),
        ("merchantCity", None),
        ("instructions", " "),
        ("instructions", 301 * "x"),
        ("instructions", "two\nlines"),
        ("instructions", ["a list"]),
        ("pixkey", "pix@example.com"),
    ],
)
def test_invalid_settings_are_refused(field: str, value: object) -> None:
    """[D-256, D-43]"""
    with pytest.raises(GatewaySettingsError) as refusal:
        parse({**SETTINGS, field: value}, {})

    assert [path for path, _ in refusal.value.fields] == [f"settings.{field}"]


def test_three_settings_are_required_and_credentials_are_refused() -> None:
    """[D-256, D-43]"""
    with pytest.raises(GatewaySettingsError) as refusal:
        parse({}, {"token": "x"})

    assert [path for path, _ in refusal.value.fields] == [
        "credentials.token",
        "settings.pixKey",
        "settings.merchantName",
        "settings.merchantCity",
    ]
