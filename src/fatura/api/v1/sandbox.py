"""The routes that only sandbox accounts use: the test clock and the sandbox gateway (D-45, D-46)."""

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator
from starlette.responses import Response

from fatura.api.http.answers import answer
from fatura.api.http.declare import Routes
from fatura.api.http.fields import Id, Instant, IntRange, refusals
from fatura.api.http.forms import Body, Query
from fatura.api.http.replies import run
from fatura.api.http.route import Call, Key, Noun, read_text_id
from fatura.api.models.integration import QueuedFault, SandboxCharge, SandboxProduct, TestClock
from fatura.api.models.shared import Listed
from fatura.domain.errors import CLOCK_CONFLICT, NOT_FOUND, SANDBOX_CHARGE_CONFLICT
from fatura.domain.sandbox import MAX_FAULT_TIMES, SandboxFault, SandboxMove, SandboxOperation
from fatura.usecases.sandbox import sandbox_gateway, test_clock

routes = Routes("Sandbox")
ChargeId = Annotated[str, Noun("sandbox charge", read_text_id)]


def _ask_one_of_both(schema: dict[str, Any]) -> None:
    """Say in the document what `AdvanceForm` checks."""
    schema["oneOf"] = [
        {"required": [wanted], "properties": {wanted: {"not": {"type": "null"}}, other: {"type": "null"}}}
        for wanted, other in (("to", "days"), ("days", "to"))
    ]


class AdvanceForm(Body):
    """How far to move the clock: to an instant, or by a number of days."""

    model_config = ConfigDict(json_schema_extra=_ask_one_of_both)

    to: Annotated[Instant | None, Field(description="Instant in UTC, or a date for its first instant.")] = (
        None
    )
    days: Annotated[
        Annotated[int, IntRange(0, test_clock.MAX_ADVANCE.days)] | None,
        Field(description="Days of 24 hours."),
    ] = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.to is None) is (self.days is None):
            raise refusals(("", "must have exactly one of `to` and `days`"))
        return self


class ChargesQuery(Query):
    """Whose charges."""

    invoiceId: Annotated[Id | None, Field(description="Only this invoice's charges.")] = None


class FaultForm(Body):
    """What goes wrong next."""

    connectionId: Id
    operation: SandboxOperation
    fault: Annotated[
        SandboxFault,
        Field(description="`timeout_after` creates the charge and loses the answer; the others do not."),
    ]
    times: Annotated[int, IntRange(1, MAX_FAULT_TIMES), Field(description="How many calls it hits.")] = 1


@routes.get("/v1/test-clock", answers=TestClock, problems=[CLOCK_CONFLICT])
async def read_test_clock(call: Call) -> Response:
    """Return the account's now, and how far an advance has come."""
    return await run(call, test_clock.read)


@routes.post(
    "/v1/test-clock/advance", answers=TestClock, also=[202], key=Key.IGNORED, problems=[CLOCK_CONFLICT]
)
async def advance_test_clock(call: Call, body: AdvanceForm) -> Response:
    """Run the real engine through every due instant up to the target; 202 when that takes more than 100 s."""
    to: datetime | None = body.to
    clock = await test_clock.advance(call.deps, call.account, to=to, days=body.days)
    return answer(clock, status=200 if clock.status == "ready" else 202)


@routes.get("/v1/sandbox/charges", answers=Listed[SandboxCharge])
async def list_sandbox_charges(call: Call, query: ChargesQuery) -> Response:
    """List the charges in the sandbox gateway, newest first."""
    return answer(await sandbox_gateway.list_charges(call.deps, call.account, query.invoiceId))


@routes.get("/v1/sandbox/products", answers=Listed[SandboxProduct])
async def list_sandbox_products(call: Call) -> Response:
    """List the products that were mirrored to the sandbox's catalogs."""
    return answer(await sandbox_gateway.list_products(call.deps, call.account))


async def _move(call: Call, charge_id: str, move: SandboxMove) -> Response:
    return answer(await sandbox_gateway.move_charge(call.deps, call.account, charge_id, move))


@routes.post(
    "/v1/sandbox/charges/{chargeId}/pay",
    answers=SandboxCharge,
    key=Key.IGNORED,
    problems=[SANDBOX_CHARGE_CONFLICT],
)
async def pay_sandbox_charge(call: Call, charge_id: ChargeId) -> Response:
    """Pay a charge, as the customer would."""
    return await _move(call, charge_id, SandboxMove.PAY)


@routes.post(
    "/v1/sandbox/charges/{chargeId}/refuse",
    answers=SandboxCharge,
    key=Key.IGNORED,
    problems=[SANDBOX_CHARGE_CONFLICT],
)
async def refuse_sandbox_charge(call: Call, charge_id: ChargeId) -> Response:
    """Refuse a charge, as a bank would."""
    return await _move(call, charge_id, SandboxMove.REFUSE)


@routes.post(
    "/v1/sandbox/charges/{chargeId}/cancel",
    answers=SandboxCharge,
    key=Key.IGNORED,
    problems=[SANDBOX_CHARGE_CONFLICT],
)
async def cancel_sandbox_charge(call: Call, charge_id: ChargeId) -> Response:
    """Cancel a charge in the gateway."""
    return await _move(call, charge_id, SandboxMove.CANCEL)


@routes.post(
    "/v1/sandbox/charges/{chargeId}/refund",
    answers=SandboxCharge,
    key=Key.IGNORED,
    problems=[SANDBOX_CHARGE_CONFLICT],
)
async def refund_sandbox_charge(call: Call, charge_id: ChargeId) -> Response:
    """Give a payment back."""
    return await _move(call, charge_id, SandboxMove.REFUND)


@routes.post("/v1/sandbox/faults", answers=QueuedFault, status=201, key=Key.IGNORED, problems=[NOT_FOUND])
async def add_sandbox_fault(call: Call, body: FaultForm) -> Response:
    """Let the sandbox gateway fail at its next calls."""
    queued = await sandbox_gateway.add_fault(
        call.deps,
        call.account,
        body.connectionId,
        operation=body.operation,
        fault=body.fault,
        times=body.times,
    )
    return answer(queued, status=call.success_status)
