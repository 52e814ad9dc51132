"""The interface for merchants to control the sandbox gateway, like a provider's dashboard (D-46).

For billing, the engine uses the sandbox only through `gateways.port`, like any other provider.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable
from uuid import UUID

from fatura.domain.sandbox import SandboxCharge, SandboxFault, SandboxMove, SandboxOperation, SandboxProduct
from fatura.gateways.port import Gateway

CHARGES_LISTED = 1000
"""Maximum number of charges in a list."""
WEBHOOK_SIGNATURE = "x-sandbox-signature"
"""The header that signs a sandbox webhook with the setting `webhookSecret`: `t=<unix seconds>,v1=<hex>`."""


@runtime_checkable
class SandboxControls(Gateway, Protocol):
    """The merchant's calls to a sandbox connection. Queued faults do not affect them."""

    async def charges(self, invoice_id: UUID | None) -> Sequence[SandboxCharge]:
        """Return the newest CHARGES_LISTED charges of an invoice or, with None, of the connection, newest first."""
        ...

    async def move_charge(self, charge_id: str, move: SandboxMove) -> SandboxCharge:
        """Pay, refuse, cancel or refund a charge; a repeat changes nothing.

        Raises NotFoundError, and PermanentError `charge_status` if the charge's status does not allow the change.
        """
        ...

    async def products(self) -> Sequence[SandboxProduct]:
        """Return the products in the connection's catalog, newest first."""
        ...

    async def add_fault(self, operation: SandboxOperation, fault: SandboxFault, *, times: int) -> UUID:
        """Queue a fault for the next `times` (1..MAX_FAULT_TIMES) calls of an operation, and return its id.

        Faults of one operation take effect in the order in which they were queued.
        """
        ...
