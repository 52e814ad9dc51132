"""The settings of a sandbox connection: defaults and validation (D-46)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fatura.domain.money import MAX_CENTS
from fatura.domain.offer import MAX_INSTALLMENTS, PaymentMethod
from fatura.domain.provider_field import FieldType, ProviderField
from fatura.domain.sandbox import DEFAULT_PROVIDER_ACCOUNT
from fatura.gateways import setting_rules
from fatura.gateways.port import GatewaySettingsError


class Behaviour(StrEnum):
    """What the simulated payers do with a connection's charges, unless the merchant changes a charge by hand."""

    PAY_ON_DUE = "pay_on_due"
    PAY_AT_ONCE = "pay_at_once"
    REFUSE = "refuse"
    NEVER_PAY = "never_pay"


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    methods: tuple[PaymentMethod, ...]
    max_installments: int
    issues_charges: bool
    product_catalog: bool
    behaviour: Behaviour
    webhook_secret: str | None
    provider_account: str
    min_amount_cents: int | None
    min_installment_cents: int | None
    refunds: bool


DEFAULTS: Mapping[str, Any] = {
    "methods": list(PaymentMethod),
    "maxInstallments": MAX_INSTALLMENTS,
    "issuesCharges": True,
    "productCatalog": False,
    "behaviour": Behaviour.PAY_ON_DUE,
    "webhookSecret": None,
    "providerAccount": DEFAULT_PROVIDER_ACCOUNT,
    "minAmountCents": None,
    "minInstallmentCents": None,
    "refunds": True,
}
FIELDS = (
    ProviderField("methods", "payment methods of the connection", FieldType.LIST),
    ProviderField("maxInstallments", "highest number of card installments", FieldType.INTEGER),
    ProviderField("issuesCharges", "whether the connection creates charges", FieldType.BOOLEAN),
    ProviderField("productCatalog", "whether the sandbox has a product catalog", FieldType.BOOLEAN),
    ProviderField("behaviour", "what the payers do: pay_on_due, pay_at_once, refuse or never_pay"),
    ProviderField("webhookSecret", "secret that signs the sandbox's webhooks", is_secret=True),
    ProviderField("providerAccount", "name of the account at the sandbox"),
    ProviderField("minAmountCents", "lowest amount of a charge", FieldType.INTEGER),
    ProviderField("minInstallmentCents", "lowest amount of an installment", FieldType.INTEGER),
    ProviderField("refunds", "whether the connection refunds payments", FieldType.BOOLEAN),
)


def parse(settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> SandboxSettings:
    """Validate settings and fill in the defaults; JSON types are not converted (D-8).

    `credentials` must be empty. Raises GatewaySettingsError, which lists every invalid field.
    """
    wrong = [(f"settings.{key}", _fault_of(key, value)) for key, value in settings.items()]
    wrong += [(f"credentials.{key}", "the sandbox takes no credentials") for key in credentials]
    invalid = tuple((path, message) for path, message in wrong if message is not None)
    if invalid:
        raise GatewaySettingsError(invalid)
    given = {**DEFAULTS, **settings}
    return SandboxSettings(
        methods=tuple(PaymentMethod(method) for method in given["methods"]),
        max_installments=given["maxInstallments"],
        issues_charges=given["issuesCharges"],
        product_catalog=given["productCatalog"],
        behaviour=Behaviour(given["behaviour"]),
        webhook_secret=given["webhookSecret"],
        provider_account=given["providerAccount"],
        min_amount_cents=given["minAmountCents"],
        min_installment_cents=given["minInstallmentCents"],
        refunds=given["refunds"],
    )


def _fault_of(key: str, value: object) -> str | None:
    if key not in _RULES:
        return "is not a setting of the sandbox"
    holds, message = _RULES[key]
    return None if holds(value) else message


def _is_minimum(value: object) -> bool:
    return value is None or (type(value) is int and 1 <= value <= MAX_CENTS)


_MINIMUM = (_is_minimum, f"must be an integer from 1 to {MAX_CENTS}, or null")
_PROVIDER_ACCOUNT = re.compile("[!-~]{1,120}")
_WEBHOOK_SECRET = re.compile("[!-~]{16,120}")
_BEHAVIOURS = tuple(str(behaviour) for behaviour in Behaviour)
_RULES: Mapping[str, setting_rules.Rule] = {
    "methods": setting_rules.METHODS,
    "maxInstallments": setting_rules.INSTALLMENTS,
    "issuesCharges": (lambda value: isinstance(value, bool), "must be true or false"),
    "productCatalog": (lambda value: isinstance(value, bool), "must be true or false"),
    "refunds": (lambda value: isinstance(value, bool), "must be true or false"),
    "behaviour": (lambda value: value in _BEHAVIOURS, f"must be one of {', '.join(_BEHAVIOURS)}"),
    "webhookSecret": (
        lambda value: value is None or (isinstance(value, str) and bool(_WEBHOOK_SECRET.fullmatch(value))),
        "must be 16 to 120 visible ASCII characters, or null",
    ),
    "providerAccount": (
        lambda value: isinstance(value, str) and bool(_PROVIDER_ACCOUNT.fullmatch(value)),
        "must be 1 to 120 visible ASCII characters",
    ),
    "minAmountCents": _MINIMUM,
    "minInstallmentCents": _MINIMUM,
}
"""For each setting, the function that accepts a valid value, and the message for an invalid one."""
