"""The routes of gateway connections, and of the providers that an account can connect (D-43, D-259)."""

from typing import Annotated, Any, ClassVar
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import FileText, Id, StrictBool, Text
from fatura.api.http.forms import Body, Examples, unsent
from fatura.api.http.replies import answer, answer_once, answer_stored, replay, run, run_dry, run_once
from fatura.api.http.route import Call, KeyPolicy, PathId
from fatura.domain import audit_actions, errors
from fatura.domain.bank_statement import MAX_BANK_ID, MAX_CREDITS, StatementFormat
from fatura.domain.credentials import Scope
from fatura.usecases.connections import connection_checks, gateway_connections, providers
from fatura.usecases.reconciliation import bank_statements
from fatura.usecases.subscriptions import connection_moves
from fatura.views.connection_moves import ConnectionMoveProgressView, ConnectionMoveView
from fatura.views.integration import ConnectionListView, ConnectionView
from fatura.views.providers import ConnectionCheckView, ProviderListView
from fatura.views.samples.story import CONNECTION
from fatura.views.statements import StatementView

routes = Routes(
    "Connections", "Connections to payment gateways, and the providers that your account can connect."
)
MAX_STATEMENT = 200_000
"""Maximum number of characters of a bank statement."""
ConnectionId = Annotated[UUID, PathId("gateway connection")]
Label = Annotated[str, Text(1, 120), Field(description="Your own name for the connection.")]
Credentials = Annotated[
    dict[str, Any], Field(description="The provider's credentials, never shown again; `{}` in the sandbox.")
]
GatewaySettings = Annotated[
    dict[str, Any], Field(description="The provider's settings. A PATCH changes only the keys that are sent.")
]


class ConnectionForm(Body):
    """A gateway to connect."""

    examples: ClassVar[Examples] = {
        "the sandbox": {"provider": "sandbox", "label": "Main", "credentials": {}, "settings": {}},
        "a Pix key of a live account": {
            "provider": "pix_key",
            "label": None,
            "credentials": {},
            "settings": {
                "pixKey": "pix@example.com",
                "merchantName": "Academia Sol",
                "merchantCity": "Sao Paulo",
            },
        },
    }

    provider: Annotated[str, Text(1, 60), Field(description="Name of the provider.")]
    label: Label | None = None
    credentials: Credentials
    settings: GatewaySettings = Field(default_factory=dict[str, Any])


class ConnectionPatch(Body):
    """The connection fields that the request changes."""

    examples: ClassVar[Examples] = {"a new label": {"label": "Second"}}

    label: Label | None = unsent()
    credentials: Credentials = unsent()
    settings: GatewaySettings = unsent()
    active: Annotated[
        StrictBool,
        Field(
            description="false: new subscriptions cannot use the connection, and its invoices are not issued."
        ),
    ] = unsent()


class MoveForm(Body):
    """The connection to which the subscriptions move, and whether this is a dry run."""

    examples: ClassVar[Examples] = {
        "a dry run": {"toConnectionId": str(CONNECTION.connection_id), "dryRun": True}
    }

    toConnectionId: Annotated[Id, Field(description="Connection that bills from now on.")]
    dryRun: Annotated[
        StrictBool, Field(description="With true, nothing changes; the answer shows what would change.")
    ] = False


class StatementForm(Body):
    """A bank statement to import."""

    examples: ClassVar[Examples] = {
        "a dry run": {
            "format": "csv",
            "statement": "date,amount,id,description\n"
            "2026-11-10,199.80,E18236120202611101512s0123456789,Pix received from Ana Souza\n",
            "dryRun": True,
        }
    }

    format: Annotated[
        StatementFormat, Field(description="`ofx`, or `csv` with the columns date, amount and id.")
    ]
    statement: Annotated[str, FileText(MAX_STATEMENT), Field(description="The text of the file.")]
    confirmed: Annotated[
        list[Annotated[str, Text(1, MAX_BANK_ID)]],
        Field(
            max_length=MAX_CREDITS,
            description="`bankId`s of `similar` credits that are payments of their own, as you have checked.",
        ),
    ] = []  # noqa: RUF012 - pydantic copies a default
    dryRun: Annotated[
        StrictBool, Field(description="With true, nothing changes; the answer shows what would change.")
    ] = False


@routes.get("/v1/integration/providers", "List providers", answers=ProviderListView)
async def list_providers(call: Call) -> Response:
    """Return the providers that the account can connect, with the settings and credentials that each needs."""
    return answer(providers.list_all(call.deps, call.account))


@routes.post(
    "/v1/integration/gateways",
    "Connect a gateway",
    answers=ConnectionView,
    audit=audit_actions.GATEWAY_CONNECT,
    scope=Scope.ADMIN,
    status=201,
    problems=[errors.TOO_MANY_CONNECTIONS],
)
async def connect_gateway(call: Call, body: ConnectionForm) -> Response:
    """Connect a gateway. Its credentials are checked at the provider, and stored encrypted."""
    if repeated := await replay(call):
        return repeated
    provider_account = await gateway_connections.check_new(
        call.deps, call.account, provider=body.provider, credentials=body.credentials, settings=body.settings
    )
    return await run_once(
        call,
        gateway_connections.connect,
        provider=body.provider,
        label=body.label,
        credentials=body.credentials,
        settings=body.settings,
        provider_account=provider_account,
    )


@routes.get("/v1/integration/gateways", "List gateway connections", answers=ConnectionListView)
async def list_gateways(call: Call) -> Response:
    """Return all gateway connections, oldest first."""
    return await run(call, gateway_connections.read_all)


@routes.patch(
    "/v1/integration/gateways/{connectionId}",
    "Change a gateway connection",
    answers=ConnectionView,
    audit=audit_actions.GATEWAY_UPDATE,
    scope=Scope.ADMIN,
)
async def patch_gateway(call: Call, connection_id: ConnectionId, body: ConnectionPatch) -> Response:
    """Change the fields that are sent.

    If the connection works again after the change, Fatura issues the invoices that waited for the connection.
    """
    changed = await gateway_connections.patch(
        call.deps, call.account, connection_id, body.sent(), draft=call.draft
    )
    return answer(changed)


@routes.post(
    "/v1/integration/gateways/{connectionId}/check",
    "Check a gateway connection",
    answers=ConnectionCheckView,
    audit=None,
    scope=Scope.ADMIN,
    key=KeyPolicy.IGNORED,
)
async def check_gateway(call: Call, connection_id: ConnectionId) -> Response:
    """Ask the provider now whether it accepts the stored credentials.

    The result counts towards the connection's `health`, like every other call to the provider.
    """
    return answer(await connection_checks.check(call.deps, call.account, connection_id))


@routes.post(
    "/v1/integration/gateways/{connectionId}/move",
    "Move subscriptions to another connection",
    answers=ConnectionMoveView,
    audit=audit_actions.GATEWAY_MOVE,
    scope=Scope.ADMIN,
    other_status=202,
    problems=[
        errors.NOT_FOUND,
        errors.GATEWAY_MOVE_RUNNING,
        errors.GATEWAY_CONNECTION_FAILING,
        errors.GATEWAY_CONNECTION_NOT_FOUND,
    ],
)
async def move_subscriptions(call: Call, connection_id: ConnectionId, body: MoveForm) -> Response:
    """Pin all active subscriptions of a connection to another connection, which bills them from their next cycle on.

    Existing invoices keep the old connection. If the new connection does not support the payment method or the
    installments of a subscription, the subscription is listed in `skipped` with the reason. Each moved subscription
    emits `subscription.gateway_changed`. A dry run ignores the Idempotency-Key.

    If the move takes longer than 5 seconds, the answer is 202 with the numbers so far, and workers move the remaining
    subscriptions. `GET /v1/integration/gateways/{connectionId}/move` shows the progress. To keep new subscriptions away
    from the old connection, make it inactive after its invoices are issued. An inactive connection issues no invoices.
    """
    if body.dryRun:
        return await run_dry(call, connection_moves.dry_run, connection_id, to_id=body.toConnectionId)
    moved = await connection_moves.move(
        call.deps, call.account, call.request, connection_id, to_id=body.toConnectionId, draft=call.draft
    )
    return answer_once(moved.view, status=200 if moved.is_done else 202, is_replayed=moved.is_replayed)


@routes.get(
    "/v1/integration/gateways/{connectionId}/move",
    "Read a move's progress",
    answers=ConnectionMoveProgressView,
)
async def read_move(call: Call, connection_id: ConnectionId) -> Response:
    """Return the connection's newest move of subscriptions. While the move runs, the answer has the numbers so far."""
    return await run(call, connection_moves.read_progress, connection_id)


@routes.post(
    "/v1/integration/gateways/{connectionId}/statement",
    "Import a bank statement",
    answers=StatementView,
    audit=audit_actions.GATEWAY_STATEMENT,
    problems=[errors.STATEMENT_UNSUPPORTED],
)
async def import_statement(call: Call, connection_id: ConnectionId, body: StatementForm) -> Response:
    """Import the Pix payments that a bank statement shows, into a connection with a Pix key.

    A credit pays the charge whose txid it names. If a credit names no txid of a charge, Fatura looks for open charges
    of the same amount whose payer has the tax id in the credit. The credit pays such a charge if there is only one.
    Fatura records the payments within seconds after the answer, and emits the usual events. A repeated import records
    nothing twice, because each credit has an id of the bank. Send a dry run first; it ignores the Idempotency-Key.
    """
    confirmed = frozenset(body.confirmed)
    if body.dryRun:
        call.settle()
        view = await bank_statements.dry_run(
            call.deps,
            call.account,
            connection_id,
            text=body.statement,
            format_=body.format,
            confirmed=confirmed,
        )
        return answer(view)
    stored = await bank_statements.import_statement(
        call.deps,
        call.account,
        call.request,
        connection_id,
        text=body.statement,
        format_=body.format,
        confirmed=confirmed,
        draft=call.draft,
    )
    return answer_stored(stored)
