"""Wrap an adapter so that its answers are checked before the engine sees them (D-50)."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from fatura.gateways import port
from fatura.gateways.answers import InvalidFieldError, all_checked, checked, listed


class CheckedGateway:
    """Wraps a connection's adapter; implements `port.Gateway`.

    Calls that return charges raise InvalidFieldError if a charge is invalid. But `look_up` and `listed_since` return
    the valid charges, and report the others.
    """

    provider: ClassVar[str] = "checked"
    __slots__ = ("_currency", "_now", "adapter")

    def __init__(self, adapter: port.Gateway, *, currency: str, now: datetime) -> None:
        self.adapter = adapter
        self._currency = currency
        self._now = now

    def capabilities(self) -> port.Capabilities:
        return self.adapter.capabilities()

    async def check_credentials(self) -> str | None:
        return await self.adapter.check_credentials()

    async def create_charge(self, request: port.ChargeRequest) -> port.Charge:
        reference = (request.invoice_id, request.attempt)
        charge = await self.adapter.create_charge(request)
        return checked(charge, currency=self._currency, now=self._now, reference=reference)

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[port.Charge]:
        found, invalid = await self.look_up(invoice_id, attempt)
        if invalid:
            raise InvalidFieldError(f"{len(invalid)} of the charges with the reference are invalid")
        return found

    async def look_up(self, invoice_id: UUID, attempt: int) -> tuple[Sequence[port.Charge], Sequence[str]]:
        """Look up the charges with this reference. Return the valid charges, and the ids of the invalid charges.

        Raises InvalidFieldError as `all_checked` does.
        """
        found = await self.adapter.find_charges(invoice_id, attempt)
        return all_checked(found, currency=self._currency, now=self._now, reference=(invoice_id, attempt))

    async def get_charge(self, charge_id: str) -> port.Charge:
        found = await self.adapter.get_charge(charge_id)
        return checked(found, currency=self._currency, now=self._now, charge_id=charge_id)

    async def charges_since(self, since: datetime) -> AsyncIterator[port.Charge]:
        async for charge in self.listed_since(since):
            if isinstance(charge, port.InvalidAnswerError):
                raise charge
            if isinstance(charge, port.Charge):
                yield charge

    async def listed_since(
        self, since: datetime
    ) -> AsyncIterator[port.Charge | port.InvalidAnswerError | datetime]:
        """Yield what the adapter's `charges_since` yields. In place of an invalid charge, yield the error."""
        async for charge in self.adapter.charges_since(since):
            if isinstance(charge, datetime):
                yield charge
                continue
            try:
                yield listed(charge, currency=self._currency, now=self._now)
            except port.InvalidAnswerError as error:
                yield error

    async def cancel_charge(self, charge_id: str) -> port.Charge:
        found = await self.adapter.cancel_charge(charge_id)
        return checked(found, currency=self._currency, now=self._now, charge_id=charge_id)

    async def refund_charge(self, request: port.RefundRequest) -> port.Charge:
        """Refund a charge. If the returned charge does not show the refund, raises InvalidAnswerError."""
        found = await self.adapter.refund_charge(request)
        charge = checked(found, currency=self._currency, now=self._now, charge_id=request.charge_id)
        if all(refund.refund_id != request.refund_id for refund in charge.refunds):
            raise InvalidFieldError(f"the charge {charge.charge_id} does not show the refund")
        return charge

    def read_webhook(self, webhook: port.Webhook) -> port.WebhookHint:
        return self.adapter.read_webhook(webhook)

    async def mirror_product(self, product: port.ProductMirror) -> str:
        return await self.adapter.mirror_product(product)
