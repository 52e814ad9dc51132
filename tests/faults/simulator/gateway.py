"""The adapter to the simulated gateway. A fault may occur before or after the effect of each call.

The gateway may also refuse all calls of a connection, or only its polls, for days.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import ClassVar, TypeVar
from uuid import UUID

import msgspec

from fatura.gateways.port import (
    AuthFailedError,
    Capabilities,
    Charge,
    ChargeRequest,
    ConnectionConfig,
    GatewayError,
    NotFoundError,
    PermanentError,
    ProductMirror,
    RefundRequest,
    TransientError,
    UnknownOutcomeError,
    Webhook,
    WebhookHint,
)
from tests.faults.charges import capabilities_of
from tests.faults.simulator import faults
from tests.faults.simulator.faults import Chances, Faults
from tests.faults.simulator.gateway_state import LATEST, OWN_ACCOUNT, GatewayState, SimCharge
from tests.faults.simulator.schedule import Schedule

T = TypeVar("T")

PROVIDER = "simulated"
HOOK_HEADER = "x-sim-hook"
DECLINED = "declined"
HANGS_SECONDS = 20
LIST_PAGE = 40
_MAKING = {None, "create: made, answer lost", "create: made late", "create: 500, made", "create: made twice"}
_POLL = "get"
_ANSWERED = {None, "create: refused", "create: made twice", "refund: refused", "refund: slow"}
"""Faults with which the engine still gets an answer (None: no fault). An answered call ends a series of failures."""


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

    async def check_credentials(self) -> str:
        """Return the id of the credentials' account at the provider. Raises AuthFailedError, TransientError."""
        self._check_token()
        if self._is_refusing("check"):
            raise TransientError("the gateway is closed for maintenance")
        side = self._side
        side.gateway.note_call(
            self._config.connection_id, now=side.schedule.now, is_poll=False, is_answered=True
        )
        return f"{self._config.account_id}-{self._provider_account}"

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
            case None | "create: made twice":
                assert made is not None, "an answered call creates a charge"
                return self._shown(made)
            case _:
                raise UnknownOutcomeError(fault)

    def _create(self, request: ChargeRequest, fault: str | None) -> SimCharge | None:
        if fault not in _MAKING:
            return None
        side, now = self._side, self._side.schedule.now
        known = side.gateway.of_reference(request.invoice_id, request.attempt, now=now)
        if known and self.capabilities().idempotency not in {"lookup", "none"}:
            return known[0]
        lag = LATEST.total_seconds() * side.faults.rng.random() if fault is not None else 0.0
        at, shown = (
            now + timedelta(seconds=lag if fault == "create: made late" else 0),
            now + timedelta(seconds=lag),
        )
        made = side.gateway.make(self._config, request, now=at, shown=shown)
        if fault == "create: made twice":
            side.gateway.make(self._config, request, now=at, shown=shown).is_double = True
        return made

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        """Return the charges with this reference that look-ups already show, oldest first.

        Raises AuthFailedError, TransientError, TimeoutError.
        """
        found = await self._looked(
            "find",
            lambda now: self._side.gateway.of_reference(invoice_id, attempt, now=now),
        )
        return [self._shown(each) for each in found]

    async def get_charge(self, charge_id: str) -> Charge:

        def look(now: datetime) -> Sequence[SimCharge]:
            charge = self._side.gateway.find(charge_id, now=now)
            return [] if charge is None else [charge]

        found = await self._looked(_POLL, look)
        if not found:
            raise NotFoundError(charge_id)
        return self._shown(found[0])

    async def charges_since(self, since: datetime) -> AsyncIterator[Charge]:
        """Yield the charges page by page. Raises AuthFailedError, TransientError, TimeoutError."""
        after = since, ""
        while True:
            found = await self._looked("list", partial(self._page, after=after), chances=faults.LIST)
            for each in found:
                yield self._shown(each)
            if len(found) < LIST_PAGE:
                return
            after = found[-1].created_at, found[-1].charge_id

    def _page(self, now: datetime, *, after: tuple[datetime, str]) -> Sequence[SimCharge]:
        gateway, position = self._side.gateway, attrgetter("created_at", "charge_id")
        own = [
            each
            for each in gateway.charges.values()
            if each.connection_id == self._config.connection_id
            and each.visible_at <= now
            and position(each) > after
            and not gateway.as_of(each, now).is_forgotten
        ]
        return sorted(own, key=position)[:LIST_PAGE]

    async def cancel_charge(self, charge_id: str) -> Charge:
        """Raises AuthFailedError, NotFoundError, TransientError, UnknownOutcomeError."""

        def cancel(fault: str | None) -> SimCharge | None:
            now = self._side.schedule.now
            charge = self._side.gateway.find(charge_id, now=now)
            is_done = charge is not None and fault in {None, "cancel: done, answer lost"}
            if charge is not None and is_done and charge.state in {"open", "refused", "expired"}:
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

    async def refund_charge(self, request: RefundRequest) -> Charge:
        """Raises any GatewayError, or TimeoutError."""
        fault, made = await self._call("refund", faults.REFUND, lambda fault: self._refund(request, fault))
        if isinstance(made, GatewayError):
            raise made
        match fault:
            case "refund: 503":
                raise TransientError("503")
            case "refund: refused":
                raise PermanentError(DECLINED, "the refund was refused")
            case "refund: no answer in 20 s":
                raise TimeoutError
            case None | "refund: slow":
                assert made is not None, "an answered call asks for a refund"
                return self._shown(made)
            case _:
                raise UnknownOutcomeError(fault)

    def _refund(self, request: RefundRequest, fault: str | None) -> SimCharge | GatewayError | None:
        """Accept a refund, unless the gateway deduplicates and already knows the refund's id.

        Return the charge, a refusal, or None if a fault prevents the refund.
        """
        side, now, kind = self._side, self._side.schedule.now, self.capabilities().refunds
        charge = side.gateway.find(request.charge_id, now=now)
        if charge is None or self._provider_account != OWN_ACCOUNT:
            return NotFoundError(request.charge_id)
        if kind == "none":
            return PermanentError("no_refunds", request.charge_id)
        if fault not in {None, "refund: slow", "refund: made, answer lost", "refund: made late"}:
            return None
        refusal = side.gateway.accept_refund(
            charge,
            request,
            kind=kind,
            now=now,
            is_late=fault == "refund: made late",
            is_slow=fault == "refund: slow",
        )
        return refusal or charge

    def read_webhook(self, webhook: Webhook) -> WebhookHint:
        """Accept webhooks whose header HOOK_HEADER is the id of the engine's account. Raises AuthFailedError."""
        if webhook.headers.get(HOOK_HEADER) != str(self._config.account_id):
            raise AuthFailedError("not signed")
        event = msgspec.json.decode(webhook.body)
        return WebhookHint((event["chargeId"],), event["id"])

    async def mirror_product(self, product: ProductMirror) -> str:
        fault, _ = await self._call("mirror", faults.MIRROR, lambda _fault: None)
        if fault is not None:
            raise UnknownOutcomeError(fault)
        return f"simp_{product.product_id}"

    async def _looked(
        self, name: str, look: Callable[[datetime], Sequence[SimCharge]], *, chances: Chances = faults.LOOK
    ) -> Sequence[SimCharge]:
        """Make one call that reads charges. `look` takes the current time and returns the charges to read.

        A look-up by reference shows a new charge only after a delay. A look-up by id shows it immediately. Credentials
        of another account at the provider find nothing.
        """

        def seen(_fault: str | None) -> Sequence[SimCharge]:
            now = self._side.schedule.now
            found = look(now) if self._provider_account == OWN_ACCOUNT else ()
            return [each for each in found if name != "find" or each.visible_at <= now]

        fault, found = await self._call(name, chances, seen)
        if fault in {"look: busy", "list: busy"}:
            raise TransientError("429")
        if fault is not None:
            raise TimeoutError
        return found

    async def _call(
        self, name: str, chances: Chances, effect: Callable[[str | None], T]
    ) -> tuple[str | None, T]:
        """Make one call to the gateway, with or without a fault. The response takes some simulated time."""
        side, connection_id = self._side, self._config.connection_id

        async def work() -> tuple[str | None, T]:
            now, is_answered = side.schedule.now, False
            try:
                self._check_token()
                if self._is_refusing(name):
                    raise TransientError("the gateway is closed for maintenance")
                fault = side.faults.draw(chances)
                if fault is not None:
                    side.schedule.trace.add(fault)
                is_answered = fault in _ANSWERED
                return fault, effect(fault)
            finally:
                side.gateway.note_call(connection_id, now=now, is_poll=name == _POLL, is_answered=is_answered)

        fault, done = await side.schedule.io(f"gateway.{name}", work)
        hangs = fault is not None and "20 s" in fault
        await side.schedule.sleep(HANGS_SECONDS if hangs else side.faults.rng.uniform(0.05, 3))
        return fault, done

    @property
    def _provider_account(self) -> str:
        return self._config.credentials.get("account", OWN_ACCOUNT)

    def _check_token(self) -> None:
        side = self._side
        if self._config.credentials.get("token", 0) != side.gateway.token_of[self._config.account_id]:
            side.faults.count("gateway: credentials refused")
            raise AuthFailedError("the token is old")

    def _is_refusing(self, name: str) -> bool:
        """Return whether the gateway now refuses all calls of the connection, or all polls if `name` is a poll.

        If the gateway refuses the call, count the fault.
        """
        side, connection_id = self._side, self._config.connection_id
        until = {"gateway: refuses calls for days": side.gateway.refuses_until.get(connection_id)}
        if name == _POLL:
            until["gateway: refuses polls for days"] = side.gateway.refuses_polls_until.get(connection_id)
        for fault, at in until.items():
            if at is not None and side.schedule.now < at:
                side.faults.count(fault)
                return True
        return False

    def _shown(self, charge: SimCharge) -> Charge:
        now = self._side.schedule.now
        return self._side.gateway.as_of(charge, now).shown(now)
