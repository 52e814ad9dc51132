"""The adapter with which the engine calls the test gateway of `tests.faults.external` over HTTP."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

import aiohttp

from fatura.domain.credentials import Mode
from fatura.gateways.port import (
    CALL_TIMEOUT_SECONDS,
    AuthFailedError,
    Capabilities,
    Charge,
    ChargeRequest,
    ConnectionConfig,
    NotFoundError,
    PermanentError,
    ProductMirror,
    RefundRequest,
    TransientError,
    UnknownOutcomeError,
    Webhook,
    WebhookHint,
)
from fatura.gateways.provider import Provider, Providers
from fatura.store.db import Database
from tests.faults.charges import capabilities_of, charge_of
from tests.faults.clock import FastClock

SENT_AT = "X-Sent-At"
"""Header with the time of sending. The gateway drops a request that arrives more than `external.SLOW_SECONDS` later."""

ANSWER_SECONDS = 10
"""Call time-out in real seconds if no clock is given."""


class ExternalGateway:
    provider: ClassVar[str] = "outside"

    def __init__(
        self, session: aiohttp.ClientSession, url: str, config: ConnectionConfig, *, clock: FastClock | None
    ) -> None:
        self._session = session
        self._url = url
        self._config = config
        self._clock = clock

    def capabilities(self) -> Capabilities:
        return capabilities_of(self._config)

    async def check_credentials(self) -> str | None:
        """Accept all credentials."""

    async def create_charge(self, request: ChargeRequest) -> Charge:
        """Raises TransientError, UnknownOutcomeError or, if the gateway refuses a repeated request, PermanentError."""
        body = {
            "accountId": str(self._config.account_id),
            "connectionId": str(self._config.connection_id),
            "invoiceId": str(request.invoice_id),
            "attempt": request.attempt,
            "amountCents": request.amount_cents,
            "dueDate": request.due_date.isoformat(),
            "method": request.method,
        }
        sent_at = {} if self._clock is None else {SENT_AT: self._clock().isoformat()}
        return self._charge(await self._ask("POST", "/charges", writes=True, json=body, headers=sent_at))

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        query = {"invoiceId": str(invoice_id), "attempt": str(attempt)}
        found = (await self._ask("GET", "/charges", params={**self._connection(), **query}))["data"]
        return [self._charge(each) for each in found]

    async def get_charge(self, charge_id: str) -> Charge:
        """Raises NotFoundError, TransientError."""
        return self._charge(await self._ask("GET", f"/charges/{charge_id}"))

    async def charges_since(self, since: datetime) -> AsyncIterator[Charge]:
        """Yield charges oldest first. Raises TransientError."""
        query = {**self._connection(), "since": since.isoformat()}
        for row in (await self._ask("GET", "/charges", params=query))["data"]:
            yield self._charge(row)

    async def cancel_charge(self, charge_id: str) -> Charge:
        """Raises NotFoundError, TransientError, UnknownOutcomeError."""
        return self._charge(await self._ask("POST", f"/charges/{charge_id}/cancel", writes=True))

    async def refund_charge(self, request: RefundRequest) -> Charge:
        """Raises NotFoundError, UnknownOutcomeError or, if too little is left of the payments, PermanentError."""
        body = {
            "refundId": str(request.refund_id),
            "amountCents": request.amount_cents,
            "reason": request.reason,
            "deduplicates": self.capabilities().refunds == "key",
        }
        return self._charge(
            await self._ask("POST", f"/charges/{request.charge_id}/refunds", writes=True, json=body)
        )

    def read_webhook(self, webhook: Webhook) -> WebhookHint:
        """Raises AuthFailedError for every webhook, because this gateway sends none."""
        raise AuthFailedError(str(len(webhook.body)))

    async def mirror_product(self, product: ProductMirror) -> str:
        return (await self._ask("PUT", f"/products/{product.product_id}", writes=True, json={}))["id"]

    def _charge(self, row: Any) -> Charge:
        return charge_of(row)

    def _headers(self) -> dict[str, str]:
        return {}

    def _connection(self) -> dict[str, str]:
        return {"connectionId": str(self._config.connection_id)}

    async def _ask(self, method: str, path: str, *, writes: bool = False, **options: Any) -> Any:
        headers = {**self._headers(), **options.pop("headers", {})}
        try:
            async with self._session.request(
                method, self._url + path, headers=headers, **options
            ) as response:
                if response.status == 401:
                    raise AuthFailedError("the gateway refuses the credentials")
                if response.status == 404:
                    raise NotFoundError(path)
                if response.status == 409:
                    raise PermanentError("conflict", (await response.json())["error"])
                if response.status == 503:
                    raise TransientError("unavailable")
                if response.status >= 500:
                    raise _no_answer("an error", writes=writes)
                return await response.json()
        except aiohttp.ClientConnectorError as error:
            raise TransientError(str(error)) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _no_answer(str(error), writes=writes) from error


def _no_answer(answer: str, *, writes: bool) -> Exception:
    return UnknownOutcomeError(answer) if writes else TransientError(answer)


def external_providers(
    url: str,
    *,
    clock: FastClock | None = None,
    gateway: type[ExternalGateway] = ExternalGateway,
    connections: int = 200,
) -> Any:
    """Return a function that opens a provider for the gateway at `url`.

    If the settings of a connection contain another `url`, the connection uses the gateway at that URL. The time-out of
    a call is CALL_TIMEOUT_SECONDS at the speed of `clock`, or ANSWER_SECONDS if no clock is given. `connections` limits
    the calls in progress.
    """
    seconds = ANSWER_SECONDS if clock is None else clock.real_seconds(CALL_TIMEOUT_SECONDS)

    @asynccontextmanager
    async def opened(_db: Database) -> AsyncGenerator[Providers]:
        timeout = aiohttp.ClientTimeout(total=seconds)
        connector = aiohttp.TCPConnector(limit=connections)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

            def factory(config: ConnectionConfig) -> ExternalGateway:
                return gateway(session, config.settings.get("url", url), config, clock=clock)

            yield {"outside": Provider(factory, frozenset({Mode.SANDBOX}))}

    return opened
