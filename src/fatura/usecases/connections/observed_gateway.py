"""Observe every call to a provider: limit its time, count it, measure it, and remember how it ended (D-55)."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from fatura import tracing
from fatura.domain.connection import Connection
from fatura.domain.gateway_health import CREDENTIALS_REFUSED, CallError, CallResult
from fatura.gateways import port
from fatura.gateways.checked import CheckedGateway
from fatura.gateways.exchanges import Exchange, collected
from fatura.tracing import Kind
from fatura.usecases.operations import call_counts

_CODES: tuple[tuple[type[BaseException], str], ...] = (
    (port.AuthFailedError, CREDENTIALS_REFUSED),
    (port.TransientError, "failed"),
    (port.UnknownOutcomeError, "unknown"),
    (TimeoutError, "timeout"),
    (asyncio.CancelledError, "timeout"),
)
"""The failures that count against a connection's health, most specific first.

A PermanentError and a NotFoundError count as successes: the provider has answered.
"""
PAGE_SECONDS = 1
"""Time after which `charge_pages` ends a list. The provider's last request for this list may end later."""
_WHY = {
    CREDENTIALS_REFUSED: "the gateway refuses the credentials; send new ones",
    "failed": "the gateway cannot be reached, or accepts no calls now",
    "unknown": "the gateway did not answer, or answered with an error",
    "timeout": f"no answer within {port.CALL_TIMEOUT_SECONDS} s",
}
_ANSWERED: tuple[tuple[type[BaseException], str], ...] = (
    (port.PermanentError, "refused"),
    (port.NotFoundError, "not_found"),
    (port.InvalidAnswerError, "invalid"),
)
_WHY_ANSWERED = {
    "refused": "the gateway refuses the call",
    "not_found": "the gateway does not know the charge",
    "invalid": "the answer is invalid",
}


_READ = "get_charge"
"""The operation of polls. Only polls count as reads in `FailedReads`, because other calls may work while polls fail."""

About = tuple[UUID, int] | str
"""What a call is about: an invoice and an attempt, or the gateway's id of a charge."""


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """An HTTP exchange of an operation about a charge. `document` is the payer's tax document, if known."""

    call_id: UUID
    operation: str
    exchange: Exchange
    document: str | None = None


Listed = port.Charge | port.InvalidAnswerError | datetime
"""A charge in a provider's list, or the error that says why this charge is invalid."""


class ObservedGateway:
    """A connection's adapter; implements `port.Gateway`.

    `results` has the result of each call, in the order in which the calls ended; `connection_health.record` stores the
    results. `calls` has the HTTP exchanges of each charge. `has_failures` is true if the stored health is not HEALTHY.
    `is_probe` is true for a probe of a failing connection. `operation` names the call that began last. An invalid
    answer, or an exception of the adapter's own code, counts neither as a success nor as a failure. Such an error may
    concern a single charge, and must not stop the work on other charges.
    """

    def __init__(
        self, adapter: CheckedGateway, connection: Connection, *, has_failures: bool, is_probe: bool
    ) -> None:
        self.adapter = adapter
        self.connection_id = connection.connection_id
        self._provider = connection.provider
        self.has_failures = has_failures
        self.is_probe = is_probe
        self.results: list[CallResult] = []
        self.operation = ""
        self.calls: dict[About, list[ProviderCall]] = {}

    def capabilities(self) -> port.Capabilities:
        return self.adapter.capabilities()

    async def check_credentials(self) -> str | None:
        async with self._observed("check_credentials"):
            return await self.adapter.check_credentials()

    async def create_charge(self, request: port.ChargeRequest) -> port.Charge:
        async with self._observed(
            "create_charge", about=(request.invoice_id, request.attempt), document=request.payer.document
        ):
            return await self.adapter.create_charge(request)

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[port.Charge]:
        async with self._observed("find_charges", about=(invoice_id, attempt)):
            return await self.adapter.find_charges(invoice_id, attempt)

    async def look_up(self, invoice_id: UUID, attempt: int) -> tuple[Sequence[port.Charge], Sequence[str]]:
        """Return the valid charges of `find_charges`, and the ids of the invalid charges."""
        async with self._observed("find_charges", about=(invoice_id, attempt)):
            return await self.adapter.look_up(invoice_id, attempt)

    async def get_charge(self, charge_id: str) -> port.Charge:
        async with self._observed("get_charge", about=charge_id):
            return await self.adapter.get_charge(charge_id)

    def charges_since(self, since: datetime) -> AsyncIterator[port.Charge]:
        """Return the adapter's iterator. Its calls are not observed, unlike the calls of `charge_pages`."""
        return self.adapter.charges_since(since)

    async def charge_pages(self, since: datetime, *, size: int) -> AsyncGenerator[Sequence[Listed]]:
        """Yield the charges created at or after `since`, in lists of at most `size`, the oldest first.

        A list ends after about PAGE_SECONDS, because the provider may have many pages without charges. In place of such
        a page, the list has an instant before which there are no further charges. Each list counts as one call. An
        invalid charge is replaced by its error, so that the other charges are read. Raises GatewayError, TimeoutError.
        """
        charges, clock = aiter(self.adapter.listed_since(since)), asyncio.get_running_loop().time
        is_last = False
        while not is_last:
            page, ends_at = list[Listed](), clock() + PAGE_SECONDS
            async with self._observed("list_charges"):
                while len(page) < size and clock() < ends_at and not is_last:
                    try:
                        found = await anext(charges)
                    except StopAsyncIteration:
                        is_last = True
                    else:
                        page.append(found)
            if page:
                yield page

    async def cancel_charge(self, charge_id: str) -> port.Charge:
        async with self._observed("cancel_charge", about=charge_id):
            return await self.adapter.cancel_charge(charge_id)

    async def refund_charge(self, request: port.RefundRequest) -> port.Charge:
        async with self._observed("refund_charge", about=request.charge_id):
            return await self.adapter.refund_charge(request)

    def read_webhook(self, webhook: port.Webhook) -> port.WebhookHint:
        return self.adapter.read_webhook(webhook)

    async def mirror_product(self, product: port.ProductMirror) -> str:
        async with self._observed("mirror_product"):
            return await self.adapter.mirror_product(product)

    @asynccontextmanager
    async def _observed(
        self, operation: str, *, about: About | None = None, document: str | None = None
    ) -> AsyncGenerator[None]:
        """Run one call for at most CALL_TIMEOUT_SECONDS. If it is about a charge, collect its HTTP exchanges.

        The caller may have a limit of its own of about the same length. If that limit ends the call first, the
        call counts as timed out too.
        """
        began = time.monotonic()
        self.operation = operation
        try:
            with (
                tracing.span(f"gateway {operation}", kind=Kind.CLIENT, fatura__provider=self._provider),
                self._collected(operation, about, document),
            ):
                async with asyncio.timeout(port.CALL_TIMEOUT_SECONDS):
                    yield
        except BaseException as error:
            took = time.monotonic() - began
            if isinstance(error, asyncio.CancelledError) and took < port.CALL_TIMEOUT_SECONDS * 0.9:
                # canceled long before the timeout, because the process is stopping: do not count the call
                raise
            self._count(operation, _outcome(error), seconds=took)
            failure = _failure(error, operation)
            if failure is not None:
                self.results.append(CallResult(failure, is_read=operation == _READ))
            elif isinstance(error, (port.PermanentError, port.NotFoundError)):
                self.results.append(CallResult(None, is_read=operation == _READ))
            raise
        self._count(operation, "answered", seconds=time.monotonic() - began)
        self.results.append(CallResult(None, is_read=operation == _READ))

    def why(self, error: port.GatewayError | TimeoutError) -> CallError:
        """Return why the call that began last failed, without texts of the provider, which may name customers (D-229).

        Call this only if the connection's calls are made one after another.
        """
        failure = _failure(error, self.operation)
        if failure is not None:
            return failure
        outcome = _outcome(error)
        why = _WHY_ANSWERED.get(outcome, "the call failed")
        fact = error.log_text if isinstance(error, port.GatewayError) else ""
        return CallError(outcome, f"{self.operation}: {why}{f' ({fact})' if fact else ''}")

    @contextmanager
    def _collected(self, operation: str, about: About | None, document: str | None) -> Generator[None]:
        if about is None:
            yield
            return
        with collected() as found:
            try:
                yield
            finally:
                if found:
                    made = [ProviderCall(uuid4(), operation, each, document) for each in found]
                    self.calls.setdefault(about, []).extend(made)

    def _count(self, operation: str, outcome: str, *, seconds: float) -> None:
        call_counts.gateway_calls.labels(self._provider, operation, outcome).observe(seconds)


def _outcome(error: BaseException) -> str:
    known = (*_ANSWERED, *_CODES)
    return next((label for kind, label in known if isinstance(error, kind)), "error")


def _failure(error: BaseException, operation: str) -> CallError | None:
    """Return why a call failed. Return None if the failure does not count against the connection's health.

    The reason is shown for the whole connection. So it contains no text of the provider, which may name a customer.
    """
    if isinstance(error, port.InvalidAnswerError):
        return None
    code = next((label for kind, label in _CODES if isinstance(error, kind)), None)
    if code is None:
        return None
    status = (
        f" (HTTP {error.http_status})" if isinstance(error, port.GatewayError) and error.http_status else ""
    )
    field = error.field if isinstance(error, port.AuthFailedError) else None
    why = _WHY[code] if field is None else " ".join(field)
    return CallError(code, f"{operation}: {why}{status}")
