"""The provider `recovery`: a connection that creates no charges (spec 4.4 gateway rule 4, D-264).

It stands for a service that only recovers unpaid invoices. There is no provider behind it, so no method makes a call.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from fatura.gateways import port


class RecoveryGateway:
    """One connection without charges; implements `port.Gateway`."""

    provider: ClassVar[str] = "recovery"
    __slots__ = ("_config",)

    def __init__(self, config: port.ConnectionConfig) -> None:
        self._config = config

    def capabilities(self) -> port.Capabilities:
        """Return the capabilities. The empty list of charges is complete, so `fatura restored` can compare it."""
        given = [
            (f"{part}.{name}", "does not exist: a recovery connection has no settings and no credentials")
            for part in ("settings", "credentials")
            for name in getattr(self._config, part)
        ]
        if given:
            raise port.GatewaySettingsError(tuple(given))
        return port.Capabilities(
            issues_charges=False,
            methods=(),
            max_installments=1,
            product_catalog=False,
            idempotency="natural_id",
            lists_charges=True,
        )

    async def check_credentials(self) -> None:
        """Return None, because there is no provider's account."""
        self.capabilities()

    async def create_charge(self, request: port.ChargeRequest) -> port.Charge:  # noqa: ARG002 - part of the interface
        """Raises PermanentError `not_issuing`. The engine does not call this method."""
        raise port.PermanentError("not_issuing", "A recovery connection creates no charges.")

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[port.Charge]:  # noqa: ARG002 - part of the interface
        return []

    async def get_charge(self, charge_id: str) -> port.Charge:
        raise port.NotFoundError(charge_id)

    async def charges_since(self, since: datetime) -> AsyncIterator[port.Charge]:  # noqa: ARG002 - part of the interface
        for charge in ():
            yield charge

    async def cancel_charge(self, charge_id: str) -> port.Charge:
        raise port.NotFoundError(charge_id)

    async def refund_charge(self, request: port.RefundRequest) -> port.Charge:  # noqa: ARG002 - part of the interface
        raise port.PermanentError("not_issuing", "A recovery connection has no charges to refund.")

    def read_webhook(self, webhook: port.Webhook) -> port.WebhookHint:  # noqa: ARG002 - part of the interface
        """Raises AuthFailedError, because there is no provider that could send a webhook."""
        raise port.AuthFailedError("a recovery connection has no webhooks")

    async def mirror_product(self, product: port.ProductMirror) -> str:  # noqa: ARG002 - part of the interface
        raise port.PermanentError("no_catalog", "A recovery connection has no product catalog.")
