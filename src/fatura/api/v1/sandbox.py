"""The routes that only sandbox accounts use: the test clock and the sandbox gateway (D-45, D-46)."""

from typing import Annotated, Any, ClassVar, Self, cast

from pydantic import Discriminator, Field, RootModel, Tag, model_validator
from starlette.responses import Response

from fatura.api.http.declare import Declare, Routes
from fatura.api.http.fields import Id, Instant, IntRange, PositiveCents, StrictBool, refusals
from fatura.api.http.forms import Body, Examples, Query
from fatura.api.http.replies import answer, run
from fatura.api.http.route import Call, KeyPolicy, PathId, read_text_id
from fatura.domain import audit_actions, errors
from fatura.domain.audit import AuditAction
from fatura.domain.sandbox import (
    MAX_FAULT_SECONDS,
    MAX_FAULT_TIMES,
    MoveDetails,
    SandboxFault,
    SandboxMove,
    SandboxOperation,
)
from fatura.usecases.sandbox import sandbox_gateway, test_clock
from fatura.views import sandbox as views
from fatura.views.samples.story import CONNECTION

routes = Routes(
    "Sandbox", "For tests, on sandbox accounts only: a clock that you move, and a gateway's charges."
)
ChargeId = Annotated[
    str,
    PathId("sandbox charge", read_text_id),
    Field(
        description="`chargeId` of `GET /v1/sandbox/charges`: the invoice's `gatewayInvoiceId`, not `charges[].id`."
    ),
]


class AdvanceTo(Body):
    """The instant to move the clock to."""

    to: Annotated[
        Instant,
        Field(description="Instant in UTC. A date stands for its first instant in America/Sao_Paulo."),
    ]


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
        },
        "an outage of a minute": {
            "connectionId": str(CONNECTION.connection_id),
            "operation": "all",
            "fault": "hang",
            "seconds": 60,
        },
    }

    connectionId: Id
    operation: Annotated[
        SandboxOperation,
        Field(
            description="The call that fails. `list_charges` includes look-ups by reference. `all` is every call, and "
            "the check of the credentials."
        ),
    ]
    fault: Annotated[
        SandboxFault,
        Field(
            description="How the call fails. With `timeout_after`, it takes effect and only its answer is lost. With "
            "`hang`, it gets no answer until Fatura gives up. With `unknown`, the gateway knows no such charge."
        ),
    ]
    times: Annotated[
        Annotated[int, IntRange(1, MAX_FAULT_TIMES)] | None,
        Field(description="Number of calls that fail; 1 if `seconds` is absent, too."),
    ] = None
    seconds: Annotated[
        Annotated[int, IntRange(1, MAX_FAULT_SECONDS)] | None,
        Field(description="Real time from now on for which all calls fail, in place of `times`."),
    ] = None

    @model_validator(mode="after")
    def _ends_in_one_way(self) -> Self:
        if self.times is not None and self.seconds is not None:
            raise refusals(("seconds", "must not be sent together with times"))
        return self


class FaultsQuery(Query):
    connection_id: Annotated[Id, Field(description="The connection whose faults end.")]


class AmountForm(Body):
    """The amount to refund or dispute."""

    may_be_absent: ClassVar[bool] = True
    examples: ClassVar[Examples] = {"all": {}, "a part": {"amountCents": 1000}}

    amountCents: Annotated[
        PositiveCents | None, Field(description="By default, the highest amount possible.")
    ] = None


class PaymentForm(Body):
    """A payment by the customer."""

    may_be_absent: ClassVar[bool] = True
    examples: ClassVar[Examples] = {"the rest": {}, "a part": {"amountCents": 1000}}

    amountCents: Annotated[PositiveCents | None, Field(description="By default, what is still open.")] = None
    paidAt: Annotated[
        Instant | None, Field(description="By default, now. It must not lie in the future.")
    ] = None


class DecisionForm(Body):
    """The decision of a dispute."""

    examples: ClassVar[Examples] = {"won": {"won": True}}

    won: Annotated[StrictBool, Field(description="Whether the merchant keeps the money.")]


_NO_DETAILS = MoveDetails()


@routes.get(
    "/v1/test-clock", "Read the test clock", answers=views.TestClockView, problems=[errors.CLOCK_CONFLICT]
)
async def read_test_clock(call: Call) -> Response:
    """Return the account's time, and the work done since the newest advance began."""
    return await run(call, test_clock.read)


@routes.post(
    "/v1/test-clock/advance",
    "Advance the test clock",
    answers=views.TestClockView,
    audit=audit_actions.TEST_CLOCK_ADVANCE,
    other_status=202,
    key=KeyPolicy.IGNORED,
    problems=[errors.CLOCK_CONFLICT, errors.CLOCK_LIMIT],
)
async def advance_test_clock(call: Call, body: AdvanceForm) -> Response:
    """Move the clock, and run all work that becomes due on the way.

    If the work takes more than 100 seconds, the answer is 202, and the clock continues to advance.
    """
    form = body.root
    clock = await test_clock.advance(
        call.deps,
        call.account,
        to=form.to if isinstance(form, AdvanceTo) else None,
        days=form.days if isinstance(form, AdvanceBy) else None,
        draft=call.draft,
    )
    return answer(clock, status=200 if clock.status == "ready" else 202)


@routes.delete(
    "/v1/test-clock/advance",
    "Stop the test clock",
    audit=audit_actions.TEST_CLOCK_STOP,
    problems=[errors.CLOCK_CONFLICT],
)
async def stop_test_clock(call: Call) -> Response:
    """Stop the clock where it is now. The request that was advancing the clock gets 409.

    Calls to gateways and endpoints that have begun are completed, and their results are recorded.
    """
    return await run(call, test_clock.stop)


@routes.get("/v1/sandbox/charges", "List sandbox charges", answers=views.SandboxChargeListView)
async def list_sandbox_charges(call: Call, query: ChargesQuery) -> Response:
    """Return the newest 1,000 charges in the sandbox gateway, newest first."""
    return answer(await sandbox_gateway.list_charges(call.deps, call.account, query.invoice_id))


@routes.get("/v1/sandbox/products", "List mirrored products", answers=views.SandboxProductListView)
async def list_sandbox_products(call: Call) -> Response:
    """Return the newest 1,000 products that were mirrored to the sandbox gateway, newest first."""
    return answer(await sandbox_gateway.list_products(call.deps, call.account))


async def _move(
    call: Call, charge_id: str, move: SandboxMove, details: MoveDetails = _NO_DETAILS
) -> Response:
    moved = await sandbox_gateway.move_charge(
        call.deps, call.account, charge_id, move, details=details, draft=call.draft
    )
    return answer(moved)


def _charge_route(move: str, summary: str, *, audit: AuditAction) -> Declare[Any]:
    return routes.post(
        f"/v1/sandbox/charges/{{chargeId}}/{move}",
        summary,
        answers=views.SandboxChargeView,
        audit=audit,
        key=KeyPolicy.IGNORED,
        problems=[errors.SANDBOX_CHARGE_CONFLICT],
    )


@_charge_route(SandboxMove.PAY, "Pay a sandbox charge", audit=audit_actions.SANDBOX_PAY)
async def pay_sandbox_charge(call: Call, charge_id: ChargeId, body: PaymentForm) -> Response:
    """Pay a charge, as the customer would.

    You can pay a part of the amount, more than the amount, or a canceled charge. Without `amountCents`, the customer
    pays the amount that is still open.
    """
    details = MoveDetails(amount_cents=body.amountCents, paid_at=body.paidAt)
    return await _move(call, charge_id, SandboxMove.PAY, details)


@_charge_route(SandboxMove.REFUSE, "Refuse a sandbox charge", audit=audit_actions.SANDBOX_REFUSE)
async def refuse_sandbox_charge(call: Call, charge_id: ChargeId) -> Response:
    """Refuse the payment of a charge, as a bank would."""
    return await _move(call, charge_id, SandboxMove.REFUSE)


@_charge_route(SandboxMove.CANCEL, "Cancel a sandbox charge", audit=audit_actions.SANDBOX_CANCEL)
async def cancel_sandbox_charge(call: Call, charge_id: ChargeId) -> Response:
    """Cancel a charge in the gateway."""
    return await _move(call, charge_id, SandboxMove.CANCEL)


@_charge_route(SandboxMove.REFUND, "Refund a sandbox charge", audit=audit_actions.SANDBOX_REFUND)
async def refund_sandbox_charge(call: Call, charge_id: ChargeId, body: AmountForm) -> Response:
    """Refund payments of a charge. Without `amountCents`, the refund returns everything that was not refunded yet."""
    return await _move(call, charge_id, SandboxMove.REFUND, MoveDetails(amount_cents=body.amountCents))


@_charge_route(SandboxMove.DISPUTE, "Dispute a sandbox charge", audit=audit_actions.SANDBOX_DISPUTE)
async def dispute_sandbox_charge(call: Call, charge_id: ChargeId, body: AmountForm) -> Response:
    """Open a dispute, as the customer's bank would.

    Without `amountCents`, the dispute covers everything that can be disputed.
    """
    return await _move(call, charge_id, SandboxMove.DISPUTE, MoveDetails(amount_cents=body.amountCents))


@_charge_route(SandboxMove.CLOSE_DISPUTE, "Decide a dispute", audit=audit_actions.SANDBOX_CLOSE_DISPUTE)
async def close_sandbox_dispute(call: Call, charge_id: ChargeId, body: DecisionForm) -> Response:
    """Decide the oldest open dispute of a charge."""
    return await _move(call, charge_id, SandboxMove.CLOSE_DISPUTE, MoveDetails(won=body.won))


@_charge_route("double", "Make a second sandbox charge", audit=audit_actions.SANDBOX_DOUBLE)
async def double_sandbox_charge(call: Call, charge_id: ChargeId) -> Response:
    """Make the gateway create a second charge with the same reference. The answer shows the second charge."""
    doubled = await sandbox_gateway.double_charge(call.deps, call.account, charge_id, draft=call.draft)
    return answer(doubled)


@_charge_route("forget", "Forget a sandbox charge", audit=audit_actions.SANDBOX_FORGET)
async def forget_sandbox_charge(call: Call, charge_id: ChargeId) -> Response:
    """Make the gateway forget a charge. Later calls about the charge get the answer that no such charge is known."""
    forgotten = await sandbox_gateway.forget_charge(call.deps, call.account, charge_id, draft=call.draft)
    return answer(forgotten)


@routes.post(
    "/v1/sandbox/faults",
    "Queue a sandbox fault",
    answers=views.QueuedFaultView,
    audit=audit_actions.GATEWAY_FAULT,
    status=201,
    key=KeyPolicy.IGNORED,
    problems=[errors.NOT_FOUND],
)
async def add_sandbox_fault(call: Call, body: FaultForm) -> Response:
    """Make the next calls to the sandbox gateway fail.

    If several queued faults match a call, the oldest one is used.
    """
    queued = await sandbox_gateway.add_fault(
        call.deps,
        call.account,
        body.connectionId,
        operation=body.operation,
        fault=body.fault,
        times=1 if body.times is None and body.seconds is None else body.times,
        seconds=body.seconds,
        draft=call.draft,
    )
    return answer(queued, status=call.success_status)


@routes.delete(
    "/v1/sandbox/faults",
    "End sandbox faults",
    audit=audit_actions.GATEWAY_END_FAULTS,
    problems=[errors.NOT_FOUND],
)
async def end_sandbox_faults(call: Call, query: FaultsQuery) -> Response:
    """End all queued faults of a connection. A call that already hangs because of such a fault still gets no answer."""
    await sandbox_gateway.end_faults(call.deps, call.account, query.connection_id, draft=call.draft)
    return answer(None, status=call.success_status)
