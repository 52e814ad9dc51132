"""The settings and credentials of a connection to Mercado Pago (D-265)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fatura.domain.offer import MAX_INSTALLMENTS, PaymentMethod
from fatura.domain.provider_field import FieldType, ProviderField
from fatura.gateways import setting_rules
from fatura.gateways.port import GatewaySettingsError

URL = "https://api.mercadopago.com"
"""The base URL. Mercado Pago has the same one for tests, where only the credentials differ."""
ENVIRONMENTS = ("production", "test")
TEST_PREFIX, TOKEN_PREFIXES = "TEST-", ("APP_USR-", "TEST-")
"""How an access token begins. A token of a test user begins like one of the production."""
MAX_DAYS = 365

FIELDS = (
    ProviderField(
        "environment", "production or test: where the access token belongs to; default: production"
    ),
    ProviderField("methods", "payment methods that payers may use", FieldType.LIST),
    ProviderField("maxInstallments", "highest number of card installments", FieldType.INTEGER),
    ProviderField(
        "daysAfterDueDate",
        "days after the due date on which the link still works; default: 30",
        FieldType.INTEGER,
    ),
    ProviderField("webhookSecret", "secret signature of the webhook at Mercado Pago", is_secret=True),
)
CREDENTIALS = (
    ProviderField(
        "accessToken",
        "access token of your application, from Your integrations at Mercado Pago",
        is_required=True,
        is_secret=True,
    ),
)


@dataclass(frozen=True, slots=True, repr=False)
class MercadoPagoSettings:
    methods: tuple[PaymentMethod, ...]
    max_installments: int
    days_after_due_date: int
    webhook_secret: str | None
    access_token: str


def parse(settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> MercadoPagoSettings:
    """Validate settings and credentials, and fill in the defaults.

    Raises GatewaySettingsError, which lists every invalid field.
    """
    wrong = [(f"settings.{key}", _fault_of(key, value)) for key, value in settings.items()]
    token = credentials.get("accessToken")
    wrong += [
        (f"credentials.{key}", "is not a credential of Mercado Pago")
        for key in credentials
        if key != "accessToken"
    ]
    wrong.append(
        ("credentials.accessToken", _fault_of_token(token, settings.get("environment", "production")))
    )
    invalid = tuple((path, message) for path, message in wrong if message is not None)
    if invalid:
        raise GatewaySettingsError(invalid)
    methods = tuple(PaymentMethod(each) for each in settings.get("methods", setting_rules.ALL_METHODS))
    most = settings.get("maxInstallments", MAX_INSTALLMENTS)
    return MercadoPagoSettings(
        methods=methods,
        max_installments=most if PaymentMethod.CARD in methods else 1,
        days_after_due_date=settings.get("daysAfterDueDate", 30),
        webhook_secret=settings.get("webhookSecret"),
        access_token=str(token),
    )


def _fault_of(key: str, value: object) -> str | None:
    if key not in _RULES:
        return "is not a setting of Mercado Pago"
    holds, message = _RULES[key]
    return None if holds(value) else message


def _fault_of_token(token: object, environment: object) -> str | None:
    if not (isinstance(token, str) and _TOKEN.fullmatch(token) and token.startswith(TOKEN_PREFIXES)):
        return f"must be an access token of Mercado Pago, which begins with {' or '.join(TOKEN_PREFIXES)}"
    if token.startswith(TEST_PREFIX) and environment != "test":
        return "is a token for tests; set settings.environment to test"
    return None


_TOKEN = re.compile("[!-~]{20,500}")
_SECRET = re.compile("[!-~]{16,255}")
_RULES: Mapping[str, setting_rules.Rule] = {
    "environment": setting_rules.one_of(ENVIRONMENTS),
    "methods": setting_rules.METHODS,
    "maxInstallments": setting_rules.INSTALLMENTS,
    "daysAfterDueDate": (
        lambda value: type(value) is int and 0 <= value <= MAX_DAYS,
        f"must be an integer from 0 to {MAX_DAYS}",
    ),
    "webhookSecret": (
        lambda value: value is None or (isinstance(value, str) and bool(_SECRET.fullmatch(value))),
        "must be 16 to 255 visible ASCII characters, or null",
    ),
}
"""For each setting, the function that accepts a valid value, and the message for an invalid one."""
