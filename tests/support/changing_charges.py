"""Changes of an invoice's charges at the sandbox gateway that the engine did not request. No webhook reports them."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, ChargeState
from tests.support.sandbox_steps import charges
from tests.support.world import Json, World

CHANGES = ("part", "part", "refund", "pay", "cancel", "cancel", "expire", "forget")
PART_CENTS = 3000
AT_GATEWAY = "gateway-"
"""How the references of the gateway's payments and refunds begin."""
_HAS_PART = f"entries::text LIKE '%{AT_GATEWAY}part%'"


@dataclass(slots=True)
class ChangingCharges:
    """Changes the charges of one invoice at the gateway, and remembers the ids of the changed charges.

    `connections` are the invoice's connection and an unused one. To hide a charge from the engine, `forget_or_show`
    moves the charge to the unused connection.
    """

    world: World
    invoice: Json
    connections: tuple[str, str]
    expired: set[str] = field(default_factory=set[str])
    forgotten: set[str] = field(default_factory=set[str])
    canceled: set[str] = field(default_factory=set[str])
    is_forgotten: bool = False

    async def change(self, random: Random) -> str:
        """Make a random change, and return its name."""
        change = random.choice(CHANGES)
        match change:
            case "part":
                await self._add_entry("payment", change, f"{PART_CENTS}", "status = 'open'")
            case "refund":
                await self._add_entry("refund", change, f"{PART_CENTS}", _HAS_PART)
            case "pay":
                left = f"amount_cents - CASE WHEN {_HAS_PART} THEN {PART_CENTS} ELSE 0 END"
                await self._add_entry("payment", change, left, "status = 'open'", status="paid")
            case "cancel":
                await self.cancel()
            case "expire":
                await self.expire()
            case _:
                await self.forget_or_show()
        return change

    async def open_ids(self) -> Sequence[str]:
        return [
            each["chargeId"] for each in await charges(self.world, self.invoice) if each["status"] == "open"
        ]

    async def cancel(self) -> None:
        self.canceled |= set(await self.open_ids())
        await self._set_status("canceled", list(self.canceled))

    async def expire(self) -> None:
        self.expired |= set(await self.open_ids())

    async def forget_or_show(self) -> None:
        """Let the gateway forget all charges, or show them again."""
        here, elsewhere = self.connections
        self.is_forgotten = not self.is_forgotten
        self.forgotten |= set(await self.open_ids())
        await self.world.sql(
            "UPDATE sandbox_charge SET connection_id = $2::uuid WHERE invoice_id = $1",
            UUID(self.invoice["id"]),
            elsewhere if self.is_forgotten else here,
        )

    async def close_expired(self) -> None:
        """Cancel the charges that `shown` shows as expired.

        Otherwise `fatura check` would treat them as open, because it reads their stored status.
        """
        await self._set_status("canceled", list(self.expired))

    async def _set_status(self, status: str, charge_ids: Sequence[str]) -> None:
        changed = (
            "UPDATE sandbox_charge SET status = $1 WHERE status = 'open' AND charge_id = ANY($2::text[])"
        )
        await self.world.sql(changed, status, charge_ids)

    async def _add_entry(
        self, kind: str, name: str, amount: str, where: str, *, status: str | None = None
    ) -> None:
        """Add a payment or refund to the charges that meet the condition `where` and have none of this name."""
        entry = f"""
            jsonb_build_object('kind', $2::text, 'reference', '{AT_GATEWAY}{name}-' || charge_id,
                'amount_cents', {amount}, 'occurred_at', created_at)
        """
        await self.world.sql(
            f"""
            UPDATE sandbox_charge SET status = coalesce($3, status), entries = entries || jsonb_build_array({entry})
            WHERE invoice_id = $1 AND {where} AND entries::text NOT LIKE '%{AT_GATEWAY}{name}%'
            """,  # noqa: S608 - written here
            UUID(self.invoice["id"]),
            kind,
            status,
        )

    @contextmanager
    def shown(self) -> Generator[None]:
        """During the block, the gateway shows the expired charges as expired, and does not cancel them."""
        get_charge, cancel_charge = SandboxGateway.get_charge, SandboxGateway.cancel_charge

        async def get(gateway: Any, charge_id: str) -> Charge:
            charge = await get_charge(gateway, charge_id)
            is_expired = charge_id in self.expired and charge.state is ChargeState.OPEN
            return replace(charge, state=ChargeState.EXPIRED) if is_expired else charge

        async def cancel(gateway: Any, charge_id: str) -> Charge:
            charge = await get(gateway, charge_id)
            return charge if charge.state is ChargeState.EXPIRED else await cancel_charge(gateway, charge_id)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SandboxGateway, "get_charge", get)
            patch.setattr(SandboxGateway, "cancel_charge", cancel)
            yield
