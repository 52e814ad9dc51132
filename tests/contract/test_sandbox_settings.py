"""The settings of a sandbox connection (D-43, D-46)."""

from datetime import UTC, datetime
from typing import Any, NoReturn
from uuid import UUID, uuid4

import pytest

from fatura.domain.offer import PaymentMethod
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Capabilities, ConnectionConfig, GatewaySettingsError


class NoDatabase:
    """Fails the test if it is used, because validating settings must not read the database."""

    def transaction(self, account_id: UUID) -> NoReturn:
        raise AssertionError(account_id)


def capabilities(settings: dict[str, Any], credentials: dict[str, Any] | None = None) -> Capabilities:
    config = ConnectionConfig(
        uuid4(), uuid4(), settings, credentials or {}, datetime(2026, 3, 10, tzinfo=UTC)
    )
    return SandboxGateway(NoDatabase(), config).capabilities()


def test_the_defaults_allow_everything_but_a_catalog() -> None:
    """[D-46]"""
    assert capabilities({}) == Capabilities(
        issues_charges=True,
        methods=(PaymentMethod.CARD, PaymentMethod.PIX, PaymentMethod.BOLETO),
        max_installments=12,
        product_catalog=False,
        idempotency="lookup",
        lists_charges=True,
        polls_per_minute=None,
        refunds="key",
    )


def test_every_setting_is_used() -> None:
    settings = {
        "methods": ["boleto", "card"],
        "maxInstallments": 1,
        "issuesCharges": False,
        "productCatalog": True,
        "behaviour": "never_pay",
        "webhookSecret": "sixteen-visible!",
        "providerAccount": "acct_1",
        "minAmountCents": 500,
        "minInstallmentCents": 1,
        "refunds": False,
    }

    assert capabilities(settings) == Capabilities(
        issues_charges=False,
        methods=(PaymentMethod.BOLETO, PaymentMethod.CARD),
        max_installments=1,
        product_catalog=True,
        idempotency="lookup",
        lists_charges=True,
        polls_per_minute=None,
        min_amount_cents=500,
        min_installment_cents=1,
        refunds="none",
    )


METHODS = "must be a list of one or more of card, pix, boleto, each once"
INSTALLMENTS = "must be an integer from 1 to 12"
BOOLEAN = "must be true or false"
SECRET = "must be 16 to 120 visible ASCII characters, or null"
MINIMUM = "must be an integer from 1 to 999999999999, or null"
BEHAVIOUR = "must be one of pay_on_due, pay_at_once, refuse, never_pay"


WRONG: list[tuple[str, str, list[Any]]] = [
    ("methods", METHODS, ["card", [], ["card", "card"], ["cash"], [None], [[]], {"card": 1}, None]),
    ("maxInstallments", INSTALLMENTS, [0, 13, -1, True, 2.0, "2", None]),
    ("minAmountCents", MINIMUM, [0, -1, True, 5.0, "5", 10**12, []]),
    ("minInstallmentCents", MINIMUM, [0, -1, True, 5.0, "5", 10**12, []]),
    ("issuesCharges", BOOLEAN, [0, 1, "true", None]),
    ("productCatalog", BOOLEAN, [0, 1, "true", None]),
    ("behaviour", BEHAVIOUR, ["", "PAY_ON_DUE", "pay", 1, None, ["refuse"], {}]),
    ("webhookSecret", SECRET, ["", "x" * 15, "x" * 121, "sixteen visible!", "ção" * 10, 10**16, []]),
    ("behavior", "is not a setting of the sandbox", ["refuse", None]),
]


@pytest.mark.parametrize(("setting", "message", "values"), WRONG)
def test_a_wrong_setting_is_named(setting: str, message: str, values: list[Any]) -> None:
    """[D-8]"""
    for value in values:
        with pytest.raises(GatewaySettingsError) as refusal:
            capabilities({setting: value})
        assert refusal.value.fields == ((f"settings.{setting}", message),), value


def test_all_invalid_fields_are_named_together() -> None:
    """[D-46]"""
    with pytest.raises(GatewaySettingsError) as refusal:
        capabilities({"behaviour": "x", "methods": ["pix"], "maxInstallments": 0}, {"apiKey": "secret"})

    assert [path for path, _ in refusal.value.fields] == [
        "settings.behaviour",
        "settings.maxInstallments",
        "credentials.apiKey",
    ]
