"""The adapter to the gateway of `tests.faults.outside`: the port over real HTTP, with no protection of its own."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

import aiohttp

from fatura.domain.credentials import Mode
from fatura.domain.offer import PaymentMethod
from fatura.gateways.port import (
    CALL_TIMEOUT_SECONDS,
    AuthFailedError,
    Capabilities,
    Charge,
    ChargeRequest,
    ChargeState,
    ConnectionConfig,
    NotFoundError,
    PermanentError,
    ProductMirror,
    TransientError,
    UnknownOutcomeError,
    Webhook,
    WebhookHint,
)
from fatura.gateways.registry import Provider, Providers
from fatura.store.db import Database
from tests.faults.clock import FastClock

SENT_AT = "X-Sent-At"
"""The run's time at which a request left; on a busy machine the gateway may get it much later."""

ANSWER_SECONDS = 10
"""Real seconds that an answer may take, where no clock says how long 20 of its seconds are."""


class OutsideGateway:
    """One connection; implements `port.Gateway`."""

    provider: ClassVar[str] = "outside"

    def __init__(
        self, session: aiohttp.ClientSession, url: str, config: ConnectionConfig, *, clock: FastClock | None
    ) -> None:
        self._session = session
        self._url = url
        self._config = config
        self._clock = clock

    def capabilities(self) -> Capabilities:
        """Return what the settings say: charges are looked up, unless they name another protection."""
        return Capabilities(
            issues_charges=True,
            methods=tuple(PaymentMethod),
            max_installments=12,
            product_catalog=self._config.settings.get("productCatalog", False),
            idempotency=self._config.settings.get("idempotency", "lookup"),
            idempotency_ttl=timedelta(days=1),
            lists_charges=True,
        )

    async def check_credentials(self) -> None:
        """Accept all."""

    async def create_charge(self, request: ChargeRequest) -> Charge:
        """Create a charge. Raises TransientError, UnknownOutcomeError."""
        body = {
            "accountId": str(self._config.account_id),
            "connectionId": str(self._config.connection_id),
            "invoiceId": str(request.invoice_id),
            "attempt": request.attempt,
            "amountCents": request.amount_cents,
            "dueDate": request.due_date.isoformat(),
        }
        sent_at = {} if self._clock is None else {SENT_AT: self._clock().isoformat()}
        return _charge(await self._ask("POST", "/charges", writes=True, json=body, headers=sent_at))

    async def find_charge(self, invoice_id: UUID, attempt: int) -> Charge | None:
        """Return the oldest charge with this reference. Raises TransientError."""
        return next(iter(await self.find_charges(invoice_id, attempt)), None)

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        """Return all charges with this reference, oldest first. Raises TransientError."""
        query = {"invoiceId": str(invoice_id), "attempt": str(attempt)}
        found = (await self._ask("GET", "/charges", params={**self._connection(), **query}))["data"]
        return [_charge(each) for each in found]

    async def get_charge(self, charge_id: str) -> Charge:
        """Return a charge. Raises NotFoundError, TransientError."""
        return _charge(await self._ask("GET", f"/charges/{charge_id}"))

    async def charges_since(self, since: datetime) -> AsyncIterator[Charge]:
        """Yield all charges made since an instant, oldest first. Raises TransientError."""
        query = {**self._connection(), "since": since.isoformat()}
        for told in (await self._ask("GET", "/charges", params=query))["data"]:
            yield _charge(told)

    async def cancel_charge(self, charge_id: str) -> Charge:
        """Cancel a charge. Raises NotFoundError, TransientError, UnknownOutcomeError."""
        return _charge(await self._ask("POST", f"/charges/{charge_id}/cancel", writes=True))

    def read_webhook(self, webhook: Webhook) -> WebhookHint:
        """Refuse: this gateway sends none. Raises AuthFailedError."""
        raise AuthFailedError(str(len(webhook.body)))

    async def mirror_product(self, product: ProductMirror) -> str:
        """Take a product into the catalog. Raises TransientError, UnknownOutcomeError."""
        return (await self._ask("PUT", f"/products/{product.product_id}", writes=True, json={}))["id"]

    def _connection(self) -> dict[str, str]:
        return {"connectionId": str(self._config.connection_id)}

    async def _ask(self, method: str, path: str, *, writes: bool = False, **options: Any) -> Any:
        try:
            async with self._session.request(method, self._url + path, **options) as response:
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


def _no_answer(said: str, *, writes: bool) -> Exception:
    return UnknownOutcomeError(said) if writes else TransientError(said)


def _charge(told: Mapping[str, Any]) -> Charge:
    paid_at = told["paid_at"]
    return Charge(
        charge_id=told["charge_id"],
        invoice_id=UUID(told["invoice_id"]),
        attempt=told["attempt"],
        state=ChargeState(told["state"]),
        amount_cents=told["amount_cents"],
        paid_at=datetime.fromisoformat(paid_at) if paid_at else None,
    )


def outside_providers(
    url: str, *, clock: FastClock | None = None, gateway: type[OutsideGateway] = OutsideGateway
) -> Any:
    """Return what `open_engine` makes its gateways of: for sandbox accounts, and another one if its settings say `url`.

    With the clock of the run, a call may take as long as calls to gateways may, on that clock.
    """
    seconds = ANSWER_SECONDS if clock is None else clock.real_seconds(CALL_TIMEOUT_SECONDS)

    @asynccontextmanager
    async def opened(_db: Database) -> AsyncGenerator[Providers]:
        timeout = aiohttp.ClientTimeout(total=seconds)
        connector = aiohttp.TCPConnector(limit=200)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

            def factory(config: ConnectionConfig) -> OutsideGateway:
                return gateway(session, config.settings.get("url", url), config, clock=clock)

            yield {"outside": Provider(factory, frozenset({Mode.SANDBOX}))}

    return opened
