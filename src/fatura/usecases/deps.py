"""What every use case is given: the outside world as arguments, so that tests can set it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from fatura.gateways.registry import Providers
from fatura.outbound.http import MerchantClient
from fatura.settings import Settings
from fatura.store.db import Database
from fatura.store.vault import Vault
from fatura.usecases.operations.clock_trust import ClockTrust
from fatura.usecases.pricing.open_call_limit import OpenCallLimit


@dataclass(frozen=True, slots=True)
class Deps:
    """The process's dependencies; `clock` is real UTC time, `notify` hints that a lane has work."""

    settings: Settings
    db: Database
    vault: Vault
    providers: Providers
    merchants: MerchantClient
    clock: Callable[[], datetime]
    notify: Callable[[str], None]
    open_calls: OpenCallLimit = field(default_factory=OpenCallLimit)
    clock_trust: ClockTrust = field(default_factory=ClockTrust)
