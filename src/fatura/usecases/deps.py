"""The dependencies that use cases take as an argument, so that tests can replace them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from fatura.gateways.port import Providers
from fatura.outbound.http import MerchantClient
from fatura.settings import Settings
from fatura.store.db import Database
from fatura.store.vault import Vault
from fatura.usecases.clock_skew import ClockSkew
from fatura.usecases.open_call_limit import OpenCallLimit


@dataclass(frozen=True, slots=True)
class Deps:
    """One process's dependencies: `clock` returns real UTC time, `notify(lane)` makes the workers poll this lane."""

    settings: Settings
    db: Database
    vault: Vault
    providers: Providers
    merchants: MerchantClient
    clock: Callable[[], datetime]
    notify: Callable[[str], None]
    open_calls: OpenCallLimit = field(default_factory=OpenCallLimit)
    clock_skew: ClockSkew = field(default_factory=ClockSkew)
