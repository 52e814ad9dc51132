"""The providers that this process knows, by name; the bootstrap fills it."""

from collections.abc import Mapping
from dataclasses import dataclass

from fatura.domain.credentials import Mode
from fatura.gateways.port import GatewayFactory


@dataclass(frozen=True, slots=True)
class Provider:
    """A payment provider: how its connections are made, and in which accounts they may stand (D-44).

    `secret_settings` are kept sealed, with the credentials.
    """

    factory: GatewayFactory
    modes: frozenset[Mode]
    secret_settings: frozenset[str] = frozenset()


Providers = Mapping[str, Provider]
