"""The dependencies that use cases take as an argument, so that tests can replace them."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fatura.domain.credentials import Mode
from fatura.domain.endpoint_url import UrlRules
from fatura.domain.tags import Tagger
from fatura.gateways.http import ProviderClient
from fatura.gateways.provider import Providers
from fatura.outbound.http import MerchantClient
from fatura.settings import Settings
from fatura.shared_call import SharedBatches, SharedCall, SharedLookups
from fatura.store.db import Database
from fatura.store.vault import Vault
from fatura.usecases.answering_accounts import AnsweringAccounts
from fatura.usecases.batch_size import BatchSize
from fatura.usecases.database_clock import DatabaseClock
from fatura.usecases.failed_lookups import FailedLookups
from fatura.usecases.lane_polls import LanePolls
from fatura.usecases.open_call_limit import (
    MAX_GATEWAY_REQUESTS,
    MAX_GATEWAY_REQUESTS_IN_ALL,
    MAX_OPEN_CALLS,
    MAX_OPEN_CALLS_IN_ALL,
    MAX_OPEN_REQUESTS,
    MAX_OPEN_REQUESTS_IN_ALL,
    MAX_WEBHOOKS,
    MAX_WEBHOOKS_IN_ALL,
    OpenCallLimit,
)
from fatura.usecases.refused_webhooks import RefusedWebhooks
from fatura.usecases.remembered_keys import ACCEPTED_SECONDS, REFUSED_SECONDS, WORKING_SECONDS, RememberedKeys
from fatura.views.health import ChecksView

KEEP_CHECKS_SECONDS = 1
"""How long the results of the readiness checks and the page of metrics are kept (D-202)."""


@dataclass(frozen=True, slots=True)
class Deps:
    """One process's dependencies: `clock` returns the database's UTC time, `notify(lane)` makes workers poll this lane.

    `stopping` is set when the process stops, so that requests that wait for background work answer immediately.
    `listens_at` is the URL of the API that this process serves; a worker has none.
    """

    settings: Settings
    db: Database
    vault: Vault
    tagger: Tagger
    providers: Providers
    provider_client: ProviderClient
    url_rules: Mapping[Mode, UrlRules]
    merchants: MerchantClient
    clock: DatabaseClock
    notify: Callable[[str], None]
    listens_at: str | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    open_calls: OpenCallLimit = field(
        default_factory=lambda: OpenCallLimit(
            MAX_OPEN_CALLS, most_in_all=MAX_OPEN_CALLS_IN_ALL, what="calls to price endpoints"
        )
    )
    gateway_requests: OpenCallLimit = field(
        default_factory=lambda: OpenCallLimit(
            MAX_GATEWAY_REQUESTS,
            most_in_all=MAX_GATEWAY_REQUESTS_IN_ALL,
            what="requests that wait for gateways",
        )
    )
    open_requests: OpenCallLimit = field(
        default_factory=lambda: OpenCallLimit(
            MAX_OPEN_REQUESTS, most_in_all=MAX_OPEN_REQUESTS_IN_ALL, what="requests"
        )
    )
    open_webhooks: OpenCallLimit = field(
        default_factory=lambda: OpenCallLimit(
            MAX_WEBHOOKS, most_in_all=MAX_WEBHOOKS_IN_ALL, what="webhooks of gateways"
        )
    )
    accepted_keys: RememberedKeys = field(default_factory=lambda: RememberedKeys(ACCEPTED_SECONDS))
    working_keys: RememberedKeys = field(default_factory=lambda: RememberedKeys(WORKING_SECONDS))
    failed_lookups: FailedLookups = field(default_factory=FailedLookups)
    refused_keys: RememberedKeys = field(default_factory=lambda: RememberedKeys(REFUSED_SECONDS))
    refused_webhooks: RefusedWebhooks = field(default_factory=RefusedWebhooks)
    webhook_lookups: SharedLookups = field(default_factory=SharedLookups)
    webhook_batches: SharedBatches = field(default_factory=SharedBatches)
    pay_page_lookups: SharedLookups = field(default_factory=SharedLookups)
    connection_checks: SharedLookups = field(default_factory=SharedLookups)
    lane_polls: LanePolls = field(default_factory=LanePolls)
    checks: SharedCall[ChecksView] = field(
        default_factory=lambda: SharedCall[ChecksView](keep_seconds=KEEP_CHECKS_SECONDS)
    )
    generation_batch: BatchSize = field(default_factory=BatchSize)
    answering: AnsweringAccounts = field(default_factory=AnsweringAccounts)
