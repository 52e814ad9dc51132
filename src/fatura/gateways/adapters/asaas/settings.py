"""The settings and credentials of a connection to Asaas (D-261)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fatura.domain.offer import MAX_INSTALLMENTS, PaymentMethod
from fatura.domain.provider_field import FieldType, ProviderField
from fatura.gateways import setting_rules
from fatura.gateways.port import GatewaySettingsError

URLS: Mapping[str, str] = {
    "production": "https://api.asaas.com/v3",
    "sandbox": "https://api-sandbox.asaas.com/v3",
}
"""The base URL of each environment. Merchants choose an environment, but never a URL."""
KEY_PREFIXES: Mapping[str, str] = {"production": "$aact_prod_", "sandbox": "$aact_hmlg_"}
"""How an API key of each environment begins. Older keys have other beginnings."""

FIELDS = (
    ProviderField("environment", "production or sandbox: where the API key belongs to; default: production"),
    ProviderField("methods", "payment methods that the Asaas account may use", FieldType.LIST),
    ProviderField("maxInstallments", "highest number of card installments", FieldType.INTEGER),
    ProviderField("webhookToken", "token that you have set on the webhook at Asaas", is_secret=True),
)
CREDENTIALS = (
    ProviderField(
        "accessToken", "API key, from Integrations in the Asaas dashboard", is_required=True, is_secret=True
    ),
)


@dataclass(frozen=True, slots=True, repr=False)
class AsaasSettings:
    environment: str
    methods: tuple[PaymentMethod, ...]
    max_installments: int
    webhook_token: str | None
    access_token: str


def parse(settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> AsaasSettings:
    """Validate settings and credentials, and fill in the defaults.

    Raises GatewaySettingsError, which lists every invalid field.
    """
    wrong = [(f"settings.{key}", _fault_of(key, value)) for key, value in settings.items()]
    token, environment = credentials.get("accessToken"), settings.get("environment", "production")
    wrong += [
        (f"credentials.{key}", "is not a credential of Asaas") for key in credentials if key != "accessToken"
    ]
    wrong.append(("credentials.accessToken", _fault_of_key(token, environment)))
    invalid = tuple((path, message) for path, message in wrong if message is not None)
    if invalid:
        raise GatewaySettingsError(invalid)
    methods = tuple(PaymentMethod(each) for each in settings.get("methods", setting_rules.ALL_METHODS))
    most = settings.get("maxInstallments", MAX_INSTALLMENTS)
    return AsaasSettings(
        environment=environment,
        methods=methods,
        max_installments=most if PaymentMethod.CARD in methods else 1,
        webhook_token=settings.get("webhookToken"),
        access_token=str(token),
    )


def _fault_of(key: str, value: object) -> str | None:
    if key not in _RULES:
        return "is not a setting of Asaas"
    holds, message = _RULES[key]
    return None if holds(value) else message


def _fault_of_key(token: object, environment: object) -> str | None:
    if not (isinstance(token, str) and _KEY.fullmatch(token)):
        return "must be an API key of Asaas: 20 to 500 visible ASCII characters"
    for name, prefix in KEY_PREFIXES.items():
        if token.startswith(prefix) and name != environment:
            return f"is a key of the environment {name}; settings.environment names another one"
    return None


_KEY = re.compile("[!-~]{20,500}")
_TOKEN = re.compile("[!-~]{32,255}")
_RULES: Mapping[str, setting_rules.Rule] = {
    "environment": setting_rules.one_of(URLS),
    "methods": setting_rules.METHODS,
    "maxInstallments": setting_rules.INSTALLMENTS,
    "webhookToken": (
        lambda value: value is None or (isinstance(value, str) and bool(_TOKEN.fullmatch(value))),
        "must be 32 to 255 visible ASCII characters, or null",
    ),
}
"""For each setting, the function that accepts a valid value, and the message for an invalid one."""
