"""The adapter to the simulated gateway. A fault may occur before or after the effect of each call."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, TypeVar
from uuid import UUID

import msgspec

from fatura.gateways.port import (
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
from tests.faults.charges import capabilities_of
from tests.faults.simulator import faults
from tests.faults.simulator.faults import Chances, Faults
from tests.faults.simulator.gateway_state import LATEST, GatewayState, SimCharge
from tests.faults.simulator.schedule import Schedule

T = TypeVar("T")

PROVIDER = "simulated"
HOOK_HEADER = "x-sim-hook"
DECLINED = "declined"
HANGS_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Side:
    """The schedule, faults and charges that all adapters of a world share."""

    schedule: Schedule
    faults: Faults
    gateway: GatewayState


class SimGateway:
    provider: ClassVar[str] = PROVIDER

    def __init__(self, side: Side, config: ConnectionConfig) -> None:
        self._side = side
        self._config = config

    def capabilities(self) -> Capabilities:
        return capabilities_of(self._config)

    async def check_credentials(self) -> None:
        self._check_token()

    async def create_charge(self, request: ChargeRequest) -> Charge:
        """Raises any GatewayError, or TimeoutError."""
        fault, made = await self._call("create", faults.CREATE, lambda fault: self._create(request, fault))
        match fault:
            case "create: 503":
                raise TransientError("503")
            case "create: refused":
                raise PermanentError(DECLINED, "the payer's data were refused")
            case "create: no answer in 20 s":
                raise TimeoutError
            case None:
                assert made is not None, "a call without a fault creates a charge"
                return self._shown(made)
            case _:
                raise UnknownOutcomeError(fault)

    def _create(self, request: ChargeRequest, fault: str | None) -> SimCharge | None:
        if fault not in {None, "create: made, answer lost", "create: made late", "create: 500, made"}:
            return None
        side, now = self._side, self._side.schedule.now
        known = side.gateway.of_reference(request.invoice_id, request.attempt)
        if known and self.capabilities().idempotency not in {"lookup", "none"}:
            return known[0]
        lag = LATEST.total_seconds() * side.faults.rng.random() if fault is not None else 0.0
        at = now + timedelta(seconds=lag if fault == "create: made late" else 0)
        return side.gateway.make(self._config, request, now=at, shown=now + timedelta(seconds=lag))

    async def find_charge(self, invoice_id: UUID, attempt: int) -> Charge | None:
        found = await self.find_charges(invoice_id, attempt)
        return found[0] if found else None

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        """Return the charges with this reference that look-ups already show, oldest first. Raises TransientError."""
        found = await self._looked("find", lambda: self._side.gateway.of_reference(invoice_id, attempt))
        return [self._shown(each) for each in found]

    async def get_charge(self, charge_id: str) -> Charge:
        charges = self._side.gateway.charges
        found = await self._looked("get", lambda: [charges[charge_id]] if charge_id in charges else [])
        if not found:
            raise NotFoundError(charge_id)
        return self._shown(found[0])

    async def charges_since(self, since: datetime) -> AsyncIterator[Charge]:
        for each in list(self._side.gateway.charges.values()):
            if each.connection_id == self._config.connection_id and each.created_at >= since:
                yield self._shown(each)

    async def cancel_charge(self, charge_id: str) -> Charge:
        """Raises NotFoundError, TransientError, UnknownOutcomeError."""

        def cancel(fault: str | None) -> SimCharge | None:
            charge = self._side.gateway.charges.get(charge_id)
            if charge is not None and fault in {None, "cancel: done, answer lost"}:
                now = self._side.schedule.now
                if self._side.gateway.as_of(charge, now).state in {"open", "refused", "expired"}:
                    self._side.gateway.move(charge, "canceled", at=now)
            return charge

        fault, charge = await self._call("cancel", faults.CANCEL, cancel)
        if fault == "cancel: 503":
            raise TransientError("503")
        if fault is not None:
            raise UnknownOutcomeError(fault)
        if charge is None:
            raise NotFoundError(charge_id)
        return self._shown(charge)

    def read_webhook(self, webhook: Webhook) -> WebhookHint:
        """Accept webhooks whose header HOOK_HEADER is the account's id. Raises AuthFailedError."""
        if webhook.headers.get(HOOK_HEADER) != str(self._config.account_id):
            raise AuthFailedError("not signed")
        return WebhookHint((msgspec.json.decode(webhook.body)["chargeId"],))

    async def mirror_product(self, product: ProductMirror) -> str:
        fault, _ = await self._call("mirror", faults.MIRROR, lambda _fault: None)
        if fault is not None:
            raise UnknownOutcomeError(fault)
        return f"simp_{product.product_id}"

    async def _looked(self, name: str, look: Callable[[], Sequence[SimCharge]]) -> Sequence[SimCharge]:
        """Look charges up. Look-ups by reference show a new charge only after a delay, look-ups by id immediately."""

        def seen(_fault: str | None) -> Sequence[SimCharge]:
            now = self._side.schedule.now
            return [each for each in look() if name != "find" or each.visible_at <= now]

        fault, found = await self._call(name, faults.LOOK, seen)
        if fault == "look: busy":
            raise TransientError("429")
        if fault is not None:
            raise TimeoutError
        return found

    async def _call(
        self, name: str, chances: Chances, effect: Callable[[str | None], T]
    ) -> tuple[str | None, T]:
        """Perform one operation at the gateway, or a fault. The response takes some simulated time."""
        side = self._side

        async def work() -> tuple[str | None, T]:
            self._check_token()
            fault = side.faults.draw(chances)
            if fault is not None:
                side.schedule.trace.add(fault)
            return fault, effect(fault)

        fault, done = await side.schedule.io(f"gateway.{name}", work)
        hangs = fault is not None and "20 s" in fault
        await side.schedule.sleep(HANGS_SECONDS if hangs else side.faults.rng.uniform(0.05, 3))
        return fault, done

    def _check_token(self) -> None:
        side = self._side
        if self._config.credentials.get("token", 0) != side.gateway.token_of[self._config.account_id]:
            side.faults.count("gateway: credentials refused")
            raise AuthFailedError("the token is old")

    def _shown(self, charge: SimCharge) -> Charge:
        self._side.gateway.as_of(charge, self._side.schedule.now)
        return Charge(
            charge_id=charge.charge_id,
            invoice_id=charge.invoice_id,
            attempt=charge.attempt,
            state=ChargeState(charge.state),
            amount_cents=charge.amount_cents,
            paid_at=charge.paid_at,
            refunded=charge.reversal == "refunded",
            disputed=charge.reversal == "disputed",
            due_date=charge.due_date,
        )
