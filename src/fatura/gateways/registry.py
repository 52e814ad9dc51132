"""The payment providers, registered by `bootstrap`."""

from collections.abc import Mapping
from dataclasses import dataclass

from fatura.domain.credentials import Mode
from fatura.gateways.port import GatewayFactory


@dataclass(frozen=True, slots=True)
class Provider:
    """A payment provider and the account modes that may use it (D-44); `secret_settings` are stored encrypted."""

    factory: GatewayFactory
    modes: frozenset[Mode]
    secret_settings: frozenset[str] = frozenset()


Providers = Mapping[str, Provider]
