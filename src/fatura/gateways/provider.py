"""The payment providers: their adapters, and the fields that a connection to each of them needs (D-44, D-259)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fatura.domain.credentials import Mode
from fatura.domain.provider_field import ProviderField
from fatura.gateways.port import GatewayFactory


@dataclass(frozen=True, slots=True)
class Provider:
    """A payment provider, the account modes that may use it, and the fields of its connections.

    `returns_money` is false if the provider's adapter only records refunds, because the merchant returns the money.
    """

    factory: GatewayFactory
    modes: frozenset[Mode]
    settings: Sequence[ProviderField] = ()
    credentials: Sequence[ProviderField] = ()
    returns_money: bool = True

    @property
    def secret_settings(self) -> frozenset[str]:
        return frozenset(field.name for field in self.settings if field.is_secret)


Providers = Mapping[str, Provider]
"""The payment providers by name, as `fatura.providers` lists them."""
