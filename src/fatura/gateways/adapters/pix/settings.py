"""The settings and credentials of a connection to a bank's Pix API (D-262)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fatura.domain.provider_field import FieldType, ProviderField
from fatura.gateways.adapters.pix.banks import BANKS, ENVIRONMENTS, Bank, Secret, Urls
from fatura.gateways.http import CertificateError, ClientCertificate, read_certificate
from fatura.gateways.port import GatewaySettingsError

DEFAULT_DAYS = 30
"""How many days after its due date a charge can be paid. The Central Bank's document has the same default."""
MAX_DAYS = 365

FIELDS = (
    ProviderField("bank", f"your bank: {', '.join(BANKS)}", is_required=True),
    ProviderField(
        "pixKey", "Pix key of your account at this bank, which receives the payments", is_required=True
    ),
    ProviderField("environment", "production or sandbox, if the bank has one; default: production"),
    ProviderField(
        "daysAfterDueDate",
        f"days after the due date on which a charge can still be paid, 0 to {MAX_DAYS}; default: {DEFAULT_DAYS}",
        FieldType.INTEGER,
    ),
    ProviderField(
        "webhookToken", "random text that you put into the webhook's URL at the bank", is_secret=True
    ),
)
CREDENTIALS = (
    ProviderField("clientId", "client id of your application at the bank", is_required=True, is_secret=True),
    ProviderField("clientSecret", "client secret of your application; Sicoob has none", is_secret=True),
    ProviderField("certificate", "client certificate as PEM, with @FILE", is_required=True, is_secret=True),
    ProviderField("privateKey", "private key of the certificate as PEM", is_required=True, is_secret=True),
    ProviderField("appKey", "application key; only Banco do Brasil has one", is_secret=True),
)


@dataclass(frozen=True, slots=True, repr=False)
class PixSettings:
    bank: Bank
    urls: Urls
    account: str
    pix_key: str
    days_after_due_date: int
    webhook_token: str | None
    client_id: str
    client_secret: str
    app_key: str | None
    certificate: ClientCertificate


def parse(
    settings: Mapping[str, Any],
    credentials: Mapping[str, Any],
    *,
    banks: Mapping[str, Bank],
) -> PixSettings:
    """Validate settings and credentials, and fill in the defaults. The certificate may have expired.

    Raises GatewaySettingsError, which lists every invalid field.
    """
    invalid = [*_faults(settings, credentials, banks)]
    certificate = None
    if not any(path in _CERTIFICATE_FIELDS for path, _ in invalid):
        try:
            certificate = read_certificate(credentials["certificate"], credentials["privateKey"])
        except CertificateError as error:
            invalid.append((_CERTIFICATE_FIELDS[error.is_key], str(error)))
    if invalid or certificate is None:
        raise GatewaySettingsError(tuple(invalid))
    name, environment = settings["bank"], settings.get("environment", "production")
    return PixSettings(
        bank=banks[name],
        urls=banks[name].urls[environment],
        account=f"{name} {environment} {settings['pixKey']}",
        pix_key=settings["pixKey"],
        days_after_due_date=settings.get("daysAfterDueDate", DEFAULT_DAYS),
        webhook_token=settings.get("webhookToken"),
        client_id=credentials["clientId"],
        client_secret=credentials.get("clientSecret") or "",
        app_key=credentials.get("appKey"),
        certificate=certificate,
    )


def _faults(
    settings: Mapping[str, Any], credentials: Mapping[str, Any], banks: Mapping[str, Bank]
) -> Iterator[tuple[str, str]]:
    """Yield the path and the fault of each invalid field."""
    for place, given, known in (("settings", settings, FIELDS), ("credentials", credentials, CREDENTIALS)):
        names = {field.name for field in known}
        yield from (
            (f"{place}.{key}", "is no field of a Pix connection") for key in given if key not in names
        )
    bank = banks.get(settings["bank"]) if isinstance(settings.get("bank"), str) else None
    if bank is None:
        yield "settings.bank", f"must be one of {', '.join(banks)}"
    offered = ENVIRONMENTS if bank is None else tuple(bank.urls)
    if settings.get("environment", "production") not in offered:
        yield "settings.environment", f"must be {' or '.join(offered)}"
    if not _is(settings.get("pixKey"), _PIX_KEY):
        yield (
            "settings.pixKey",
            "must be a Pix key of your account, as the bank shows it: at most 77 characters",
        )
    days = settings.get("daysAfterDueDate", DEFAULT_DAYS)
    if type(days) is not int or not 0 <= days <= MAX_DAYS:
        yield "settings.daysAfterDueDate", f"must be an integer from 0 to {MAX_DAYS}"
    token = settings.get("webhookToken")
    if token is not None and not _is(token, _WEBHOOK_TOKEN):
        yield "settings.webhookToken", "must be 32 to 128 letters, digits, hyphens and underscores, or null"
    yield from _credential_faults(credentials, bank)


def _credential_faults(credentials: Mapping[str, Any], bank: Bank | None) -> Iterator[tuple[str, str]]:
    required = {"clientId"}
    if bank is not None and bank.secret is not Secret.NONE:
        required.add("clientSecret")
    if bank is not None and bank.app_key_parameter is not None:
        required.add("appKey")
    for name in ("clientId", "clientSecret", "appKey"):
        value = credentials.get(name)
        if (value is not None or name in required) and not _is(value, _SECRET):
            yield f"credentials.{name}", "must be 1 to 500 visible ASCII characters, as the bank shows it"
    for path in _CERTIFICATE_FIELDS:
        if not isinstance(credentials.get(path.partition(".")[2]), str):
            yield path, "must be a text in PEM format"


def _is(value: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


_CERTIFICATE_FIELDS = ("credentials.certificate", "credentials.privateKey")
_PIX_KEY = re.compile("[!-~]{1,77}")
_SECRET = re.compile("[!-~]{1,500}")
_WEBHOOK_TOKEN = re.compile("[A-Za-z0-9_-]{32,128}")
