"""The routes that only sandbox accounts use: the test clock and the sandbox gateway (D-45, D-46)."""

from typing import Annotated, Any, ClassVar, cast

from pydantic import Discriminator, Field, RootModel, Tag
from starlette.responses import Response

from fatura.api.http.declare import Declare, Routes
from fatura.api.http.fields import Id, Instant, IntRange
from fatura.api.http.forms import Body, Examples, Query
from fatura.api.http.replies import answer, run
from fatura.api.http.route import Call, KeyPolicy, PathId, read_text_id
from fatura.domain import errors
from fatura.domain.sandbox import MAX_FAULT_TIMES, SandboxFault, SandboxMove, SandboxOperation
from fatura.usecases.sandbox import sandbox_gateway, test_clock
from fatura.views import sandbox as views
from fatura.views.samples.story import CONNECTION

routes = Routes(
    "Sandbox", "For tests, on sandbox accounts only: a clock that you move, and a gateway's charges."
)
ChargeId = Annotated[str, PathId("sandbox charge", read_text_id)]


class AdvanceTo(Body):
    """The instant to move the clock to."""

    to: Annotated[Instant, Field(description="Instant in UTC, or a date, which means its first instant.")]


class AdvanceBy(Body):
    """The days to move the clock by."""

    days: Annotated[int, IntRange(0, test_clock.MAX_ADVANCE.days), Field(description="Days of 24 hours.")]


def _which(value: Any) -> str | None:
    sent = set(cast("dict[str, Any]", value)) if isinstance(value, dict) else set[str]()
    return next(iter(sent)) if len(sent) == 1 else None


class AdvanceForm(
    RootModel[
        Annotated[
            Annotated[AdvanceTo, Tag("to")] | Annotated[AdvanceBy, Tag("days")],
            Discriminator(
                _which,
                custom_error_type="refused",
                custom_error_message="{message}",
                custom_error_context={"message": "must have exactly one of `to` and `days`"},
            ),
        ]
    ]
):
    """How far to move the clock: to an instant, or by a number of days."""

    examples: ClassVar[Examples] = {"four days": {"days": 4}, "a date": {"to": "2026-12-10"}}


class ChargesQuery(Query):
    invoice_id: Annotated[Id | None, Field(description="Only the charges of this invoice.")] = None


class FaultForm(Body):
    """A fault of the sandbox gateway."""

    examples: ClassVar[Examples] = {
        "a lost answer": {
            "connectionId": str(CONNECTION.connection_id),
            "operation": "create_charge",
            "fault": "timeout_after",
        }
    }

    connectionId: Id
    operation: SandboxOperation
    fault: Annotated[
        SandboxFault,
        Field(description="With `timeout_after`, the call takes effect and only its answer is lost."),
    ]
    times: Annotated[int, IntRange(1, MAX_FAULT_TIMES), Field(description="Number of calls that fail.")] = 1


@routes.get(
    "/v1/test-clock", "Read the test clock", answers=views.TestClockView, problems=[errors.CLOCK_CONFLICT]
)
async def read_test_clock(call: Call) -> Response:
    """Return the account's time, and the progress of an advance."""
    return await run(call, test_clock.read)


@routes.post(
    "/v1/test-clock/advance",
    "Advance the test clock",
    answers=views.TestClockView,
    other_status=202,
    key=KeyPolicy.IGNORED,
    problems=[errors.CLOCK_CONFLICT],
)
async def advance_test_clock(call: Call, body: AdvanceForm) -> Response:
    """Move the clock, and run all work that becomes due on the way. Answers 202 if the work takes more than 100 s."""
    form = body.root
    clock = await test_clock.advance(
        call.deps,
        call.account,
        to=form.to if isinstance(form, AdvanceTo) else None,
        days=form.days if isinstance(form, AdvanceBy) else None,
    )
    return answer(clock, status=200 if clock.status == "ready" else 202)


@routes.get("/v1/sandbox/charges", "List sandbox charges", answers=views.SandboxChargeListView)
async def list_sandbox_charges(call: Call, query: ChargesQuery) -> Response:
    """Return the charges in the sandbox gateway, newest first."""
    return answer(await sandbox_gateway.list_charges(call.deps, call.account, query.invoice_id))


@routes.get("/v1/sandbox/products", "List mirrored products", answers=views.SandboxProductListView)
async def list_sandbox_products(call: Call) -> Response:
    """Return the products that were mirrored to the sandbox gateway."""
    return answer(await sandbox_gateway.list_products(call.deps, call.account))


async def _move(call: Call, charge_id: str, move: SandboxMove) -> Response:
    return answer(await sandbox_gateway.move_charge(call.deps, call.account, charge_id, move))


def _charge_route(move: SandboxMove, summary: str) -> Declare[Any]:
    return routes.post(
        f"/v1/sandbox/charges/{{chargeId}}/{move}",
        summary,
        answers=views.SandboxChargeView,
        key=KeyPolicy.IGNORED,
        problems=[errors.SANDBOX_CHARGE_CONFLICT],
    )


@_charge_route(SandboxMove.PAY, "Pay a sandbox charge")
async def pay_sandbox_charge(call: Call, charge_id: ChargeId) -> Response:
    """Pay a charge, as the customer would."""
    return await _move(call, charge_id, SandboxMove.PAY)


@_charge_route(SandboxMove.REFUSE, "Refuse a sandbox charge")
async def refuse_sandbox_charge(call: Call, charge_id: ChargeId) -> Response:
    """Refuse the payment of a charge, as a bank would."""
    return await _move(call, charge_id, SandboxMove.REFUSE)


@_charge_route(SandboxMove.CANCEL, "Cancel a sandbox charge")
async def cancel_sandbox_charge(call: Call, charge_id: ChargeId) -> Response:
    """Cancel a charge in the gateway."""
    return await _move(call, charge_id, SandboxMove.CANCEL)


@_charge_route(SandboxMove.REFUND, "Refund a sandbox charge")
async def refund_sandbox_charge(call: Call, charge_id: ChargeId) -> Response:
    """Refund the payment of a charge."""
    return await _move(call, charge_id, SandboxMove.REFUND)


@routes.post(
    "/v1/sandbox/faults",
    "Queue a sandbox fault",
    answers=views.QueuedFaultView,
    status=201,
    key=KeyPolicy.IGNORED,
    problems=[errors.NOT_FOUND],
)
async def add_sandbox_fault(call: Call, body: FaultForm) -> Response:
    """Make the next calls to the sandbox gateway fail."""
    queued = await sandbox_gateway.add_fault(
        call.deps,
        call.account,
        body.connectionId,
        operation=body.operation,
        fault=body.fault,
        times=body.times,
    )
    return answer(queued, status=call.success_status)
