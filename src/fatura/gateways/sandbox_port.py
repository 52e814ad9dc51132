"""The calls with which merchants control the sandbox gateway, as they would in a provider's dashboard (D-46).

For billing, the engine uses the sandbox only through `gateways.port`, like any other provider.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable
from uuid import UUID

from fatura.domain.sandbox import (
    MoveDetails,
    SandboxCharge,
    SandboxFault,
    SandboxMove,
    SandboxOperation,
    SandboxProduct,
)
from fatura.gateways.port import Gateway

CHARGES_LISTED = 1000
"""Maximum number of charges in a list."""
PRODUCTS_LISTED = 1000
"""Maximum number of products in a list."""
MAX_DOUBLES = 50
"""Maximum number of second charges of an invoice: as many as the engine's `MAX_CHARGES` (D-176)."""
WEBHOOK_SIGNATURE = "x-sandbox-signature"
"""The header with the signature of a sandbox webhook, `t=<Unix seconds>,v1=<hex>`, made with `webhookSecret`."""


@runtime_checkable
class SandboxControls(Gateway, Protocol):
    """The merchant's calls to a sandbox connection. Queued faults do not affect these calls."""

    async def charges(self, invoice_id: UUID | None) -> Sequence[SandboxCharge]:
        """Return the newest CHARGES_LISTED charges of an invoice, newest first.

        If `invoice_id` is None, return the newest charges of the connection.
        """
        ...

    async def move_charge(self, charge_id: str, move: SandboxMove, *, details: MoveDetails) -> SandboxCharge:
        """Pay, refuse, cancel, refund or dispute a charge, or decide a dispute.

        Raises NotFoundError, and PermanentError `charge_status` if the charge's status does not allow the change.
        """
        ...

    async def double_charge(self, charge_id: str) -> SandboxCharge:
        """Make a second charge with the reference of the given charge, and return the second charge.

        Raises NotFoundError. Raises PermanentError `charge_status` if the invoice already has the maximum of second
        charges (MAX_DOUBLES).
        """
        ...

    async def forget_charge(self, charge_id: str) -> SandboxCharge:
        """Remove a charge, and return it as it was.

        Raises NotFoundError, and PermanentError `charge_status` for a second charge that was paid.
        """
        ...

    async def products(self) -> Sequence[SandboxProduct]:
        """Return the newest PRODUCTS_LISTED products in the connection's catalog, newest first."""
        ...

    async def add_fault(
        self,
        operation: SandboxOperation,
        fault: SandboxFault,
        *,
        times: int | None = None,
        seconds: int | None = None,
    ) -> UUID:
        """Queue a fault for the next `times` calls of an operation, or for `seconds` from now. Return the fault's id.

        Give exactly one of `times` and `seconds`; `seconds` is real time. If several faults of an operation are
        queued, the oldest one takes effect.
        """
        ...

    async def end_faults(self) -> None:
        """Remove all queued faults. A call that already hangs continues to hang."""
        ...
