"""The settings and credentials of a connection to Stripe (D-263)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fatura.domain.offer import PaymentMethod
from fatura.domain.provider_field import FieldType, ProviderField
from fatura.gateways import setting_rules
from fatura.gateways.port import GatewaySettingsError

URL = "https://api.stripe.com"
"""The base URL of both environments: the API key decides which one is called."""
ENVIRONMENTS: Mapping[str, str] = {"production": "live", "sandbox": "test"}
"""For each environment, the word that its API keys contain."""

FIELDS = (
    ProviderField("environment", "production or sandbox: where the API key belongs to; default: production"),
    ProviderField("methods", "payment methods that the Stripe account may use", FieldType.LIST),
    ProviderField(
        "webhookSecret",
        "signing secret of the webhook endpoint at Stripe; during a rotation, both secrets with a comma between",
        is_secret=True,
    ),
)
CREDENTIALS = (
    ProviderField(
        "apiKey",
        "secret key or restricted key, from API keys in the Stripe dashboard",
        is_required=True,
        is_secret=True,
    ),
)


@dataclass(frozen=True, slots=True, repr=False)
class StripeSettings:
    is_live: bool
    methods: tuple[PaymentMethod, ...]
    webhook_secrets: tuple[str, ...]
    api_key: str


def parse(settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> StripeSettings:
    """Validate settings and credentials, and fill in the defaults.

    Raises GatewaySettingsError, which lists every invalid field.
    """
    wrong = [(f"settings.{key}", _fault_of(key, value)) for key, value in settings.items()]
    key, environment = credentials.get("apiKey"), settings.get("environment", "production")
    wrong += [
        (f"credentials.{name}", "is not a credential of Stripe") for name in credentials if name != "apiKey"
    ]
    wrong.append(("credentials.apiKey", _fault_of_key(key, environment)))
    invalid = tuple((path, message) for path, message in wrong if message is not None)
    if invalid:
        raise GatewaySettingsError(invalid)
    return StripeSettings(
        is_live=environment == "production",
        methods=tuple(PaymentMethod(each) for each in settings.get("methods", setting_rules.ALL_METHODS)),
        webhook_secrets=secrets_of(settings.get("webhookSecret")),
        api_key=str(key),
    )


def secrets_of(text: str | None) -> tuple[str, ...]:
    """Return the signing secrets in the setting `webhookSecret`."""
    return tuple(each.strip() for each in text.split(",")) if text else ()


def _fault_of(key: str, value: object) -> str | None:
    if key not in _RULES:
        return "is not a setting of Stripe"
    holds, message = _RULES[key]
    return None if holds(value) else message


def _fault_of_key(key: object, environment: object) -> str | None:
    found = _KEY.fullmatch(key) if isinstance(key, str) else None
    if found is None:
        return "must be a secret key (sk_...) or a restricted key (rk_...) of Stripe"
    if isinstance(environment, str) and ENVIRONMENTS.get(environment) != found[1]:
        return "is a key of the other environment than settings.environment"
    return None


_KEY = re.compile("[sr]k_(live|test)_[A-Za-z0-9_]{16,480}")
_SECRETS = re.compile("whsec_[!-+\\--~]{16,200}( *, *whsec_[!-+\\--~]{16,200}){0,2}")
_RULES: Mapping[str, setting_rules.Rule] = {
    "environment": setting_rules.one_of(ENVIRONMENTS),
    "methods": setting_rules.METHODS,
    "webhookSecret": (
        lambda value: value is None or (isinstance(value, str) and bool(_SECRETS.fullmatch(value))),
        "must be one to three signing secrets (whsec_...) with commas between, or null",
    ),
}
"""For each setting, the function that accepts a valid value, and the message for an invalid one."""
