"""The environment variables, read once when a process starts."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import NamedTuple

from fatura import public_url
from fatura.variables import VARIABLES


class SettingsError(Exception):
    """An environment variable has an invalid value; the message names the variable and says what is valid."""


class HostPorts(NamedTuple):
    """A host, in lower case and without brackets, and a range of its ports."""

    host: str
    first: int
    last: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.first}" if self.first == self.last else f"{host}:{self.first}-{self.last}"


Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Settings:
    database_url: str | None
    owner_url: str | None
    pooler_url: str | None
    public_url: str | None
    data_dir: Path
    pg_bin: Path | None
    secret_keys: tuple[str, ...]
    outbound_allow: tuple[HostPorts, ...]
    outbound_allow_live: tuple[HostPorts, ...]
    outbound_ports: frozenset[int]
    outbound_deny: tuple[Network, ...]
    rate_limit_per_second: int
    webhook_rate_limit_per_minute: int
    refused_webhook_rate_limit_per_minute: int
    pay_page_rate_limit_per_minute: int
    quotas: Mapping[str, int]
    retention: Mapping[str, timedelta]
    trusted_proxies: int
    max_connections: int
    log_format: str
    log_level: str


_NAMES = tuple(variable.name for variable in VARIABLES)
_QUOTA = "FATURA_QUOTA_"
_RETENTION = "FATURA_RETENTION_"
_LEAST_DAYS: Mapping[str, int] = {
    "FATURA_RETENTION_EVENTS": 30,
    "FATURA_RETENTION_DELIVERIES": 30,
    "FATURA_RETENTION_PRICE_CALLS": 30,
    "FATURA_RETENTION_AUDIT": 180,
    "FATURA_RETENTION_GATEWAY_WEBHOOKS": 30,
    "FATURA_RETENTION_CHARGE_CALLS": 30,
}
MAX_DAYS = 36_500
_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP)(_\w+)?)?)")
"""Matches the end of the name of a variable that Kubernetes sets for a service.

If the service is called `fatura`, the name begins with FATURA_.
"""


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the names that begin with FATURA_, but are neither settings nor variables that Kubernetes sets.

    Raises SettingsError if such a name is probably misspelt, because its value would otherwise be ignored.
    """
    unknown = sorted(
        name
        for name in environ
        if name.startswith("FATURA_")
        and name not in _NAMES
        and not any(link.end() == len(name) for link in _LINK.finditer(name))
    )
    for name in unknown:
        if near := difflib.get_close_matches(name, _NAMES, n=1, cutoff=0.85):
            raise SettingsError(f"{name} is not a setting; did you mean {near[0]}?")
    return unknown


def read(environ: Mapping[str, str]) -> Settings:
    """Read the settings from an environment. Raises SettingsError."""
    values = _values(environ)
    pg_bin = values["FATURA_PG_BIN"]
    return Settings(
        database_url=values["FATURA_DATABASE_URL"] or None,
        owner_url=_owner_url(values),
        pooler_url=_pooler_url(values),
        public_url=_public_url(values["FATURA_PUBLIC_URL"]),
        data_dir=Path(values["FATURA_DATA_DIR"]).expanduser(),
        pg_bin=Path(pg_bin).expanduser() if pg_bin else None,
        secret_keys=_listed(values["FATURA_SECRET_KEYS"]),
        outbound_allow=_hosts(values, "FATURA_OUTBOUND_ALLOW"),
        outbound_allow_live=_hosts(values, "FATURA_OUTBOUND_ALLOW_LIVE"),
        outbound_ports=_ports(values, "FATURA_OUTBOUND_PORTS"),
        outbound_deny=_networks(values, "FATURA_OUTBOUND_DENY"),
        rate_limit_per_second=_whole_number(values, "FATURA_RATE_LIMIT", least=0),
        webhook_rate_limit_per_minute=_whole_number(values, "FATURA_WEBHOOK_RATE_LIMIT", least=0),
        refused_webhook_rate_limit_per_minute=_whole_number(
            values, "FATURA_REFUSED_WEBHOOK_RATE_LIMIT", least=0
        ),
        pay_page_rate_limit_per_minute=_whole_number(values, "FATURA_PAY_PAGE_RATE_LIMIT", least=0),
        quotas={
            name.removeprefix(_QUOTA).lower(): _whole_number(values, name, least=1)
            for name in _NAMES
            if name.startswith(_QUOTA)
        },
        retention={
            name.removeprefix(_RETENTION).lower(): timedelta(days=days)
            for name, least in _LEAST_DAYS.items()
            if (days := _days(values, name, least=least))
        },
        trusted_proxies=_whole_number(values, "FATURA_TRUSTED_PROXIES", least=0),
        max_connections=_whole_number(values, "FATURA_MAX_CONNECTIONS", least=2),
        log_format=_one_of(values, "FATURA_LOG_FORMAT", ("auto", "json", "console")),
        log_level=_one_of(values, "FATURA_LOG_LEVEL", ("debug", "info", "warning", "error")),
    )


def _values(environ: Mapping[str, str]) -> dict[str, str]:
    values = {
        variable.name: environ.get(variable.name, "").strip() or variable.default for variable in VARIABLES
    }
    for name, value in values.items():
        if value.startswith(("'", '"')):
            raise SettingsError(
                f"{name} begins with a quotation mark: write it without quotes, because Docker keeps them"
            )
    return values


def _owner_url(values: Mapping[str, str]) -> str | None:
    if values["FATURA_OWNER_URL"] and not values["FATURA_DATABASE_URL"]:
        message = (
            "FATURA_OWNER_URL needs FATURA_DATABASE_URL: set it to the same database with the engine's role"
        )
        raise SettingsError(message)
    return values["FATURA_OWNER_URL"] or None


def _pooler_url(values: Mapping[str, str]) -> str | None:
    if values["FATURA_POOLER_URL"] and not values["FATURA_DATABASE_URL"]:
        message = "FATURA_POOLER_URL needs FATURA_DATABASE_URL: set it to the database behind the pooler"
        raise SettingsError(message)
    return values["FATURA_POOLER_URL"] or None


def _public_url(text: str) -> str | None:
    if text and not public_url.is_valid(text):
        valid = "an https URL, such as https://billing.example.com; only localhost, 127.0.0.1 and [::1] may have http"
        raise SettingsError(f"FATURA_PUBLIC_URL is {text!r}; it must be {valid}")
    return text.rstrip("/") or None


def _listed(text: str) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in text.split(",") if entry.strip())


MAX_PORT = 65535
_HOST_PORTS = re.compile(
    r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+)):([0-9]{1,5})(?:-([0-9]{1,5}))?", re.IGNORECASE
)


def _hosts(values: Mapping[str, str], name: str) -> tuple[HostPorts, ...]:
    return tuple(_host_ports(entry, name) for entry in _listed(values[name]))


def _host_ports(entry: str, name: str) -> HostPorts:
    found = _HOST_PORTS.fullmatch(entry)
    if found is None:
        raise SettingsError(
            f"{name} has the entry {entry!r}; write host:port, such as 127.0.0.1:9000, or host:first-last for a range "
            "of ports"
        )
    first = int(found[3])
    last = int(found[4] or first)
    if not 0 < first <= last <= MAX_PORT:
        raise SettingsError(
            f"{name} has the entry {entry!r}; its ports must be from 1 to {MAX_PORT}, in order"
        )
    return HostPorts((found[1] or found[2]).lower(), first, last)


def _ports(values: Mapping[str, str], name: str) -> frozenset[int]:
    listed = _listed(values[name])
    for entry in listed:
        if not (entry.isascii() and entry.isdigit() and 0 < int(entry[:6]) <= MAX_PORT):
            raise SettingsError(
                f"{name} has the entry {entry!r}; write ports from 1 to {MAX_PORT}, such as 8443"
            )
    return frozenset(map(int, listed))


def _networks(values: Mapping[str, str], name: str) -> tuple[Network, ...]:
    found: list[Network] = []
    for entry in _listed(values[name]):
        try:
            found.append(ip_network(entry))
        except ValueError as error:
            raise SettingsError(
                f"{name} has the entry {entry!r}, which is no network ({error}); write one such as 198.51.100.0/24"
            ) from None
    return tuple(found)


def _whole_number(values: Mapping[str, str], name: str, *, least: int) -> int:
    text = values[name]
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise SettingsError(f"{name} is {text!r}; it must be a whole number of at least {least}")
    return int(text)


def _days(values: Mapping[str, str], name: str, *, least: int) -> int:
    """Return the number of days for which rows are kept; 0 means that they are never deleted. Raises SettingsError."""
    days = _whole_number(values, name, least=0)
    if 0 < days < least or days > MAX_DAYS:
        raise SettingsError(
            f"{name} is {days}; it must be from {least} to {MAX_DAYS} days, or 0 to delete nothing"
        )
    return days


def _one_of(values: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    if values[name] not in choices:
        raise SettingsError(f"{name} is {values[name]!r}; it must be one of {', '.join(choices)}")
    return values[name]
