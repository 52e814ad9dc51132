"""The route of the audit log (D-63)."""

from typing import Annotated, Self

from pydantic import Field, model_validator
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import ActorRef, Instant, IntRange, IntText, OneOf, Text, refusals
from fatura.api.http.forms import Query
from fatura.api.http.replies import run
from fatura.api.http.route import Call
from fatura.domain.audit import ActorKind
from fatura.domain.credentials import Scope
from fatura.domain.filters import AuditFilter
from fatura.usecases.audit import log
from fatura.usecases.paging import MAX_CURSOR_CHARS, START, parse_cursor
from fatura.views.audit import ACTIONS, AuditLogView

routes = Routes("Audit", "Who changed what: each change by a client or an operator is one entry.")
DEFAULT_LIMIT = 50
MAX_LIMIT = 200
MAX_ID_CHARS = 255


class AuditQuery(Query):
    cursor: Annotated[
        str,
        Field(
            description="The `nextCursor` of an earlier answer; without it, the log is read from its start.",
            json_schema_extra={"pattern": f"^[0-9]{{1,{MAX_CURSOR_CHARS}}}$"},
        ),
    ] = START
    limit: Annotated[
        int, IntRange(1, MAX_LIMIT), IntText(), Field(description="Maximum number of entries.")
    ] = DEFAULT_LIMIT
    actor: Annotated[
        ActorRef | None,
        Field(description="Only entries of this kind of actor, or of the actor with this id."),
    ] = None
    action: Annotated[
        Annotated[str, OneOf(ACTIONS)] | None, Field(description="Only entries of this action.")
    ] = None
    resource_id: Annotated[
        Annotated[str, Text(1, MAX_ID_CHARS)] | None,
        Field(description="Only entries of the resource with this id."),
    ] = None
    at_from: Annotated[
        Instant | None, Field(alias="from", description="Only entries made at this instant or later.")
    ] = None
    at_to: Annotated[
        Instant | None, Field(alias="to", description="Only entries made at this instant or earlier.")
    ] = None

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.at_from is not None and self.at_to is not None and self.at_to < self.at_from:
            raise refusals(("to", "must not lie before from"))
        return self

    def wanted(self) -> AuditFilter:
        return AuditFilter(
            actor_kind=self.actor if isinstance(self.actor, ActorKind) else None,
            actor_id=None if isinstance(self.actor, ActorKind) else self.actor,
            action=self.action,
            resource_id=self.resource_id,
            at_from=self.at_from,
            at_to=self.at_to,
        )


@routes.get("/v1/audit", "List audit entries", answers=AuditLogView, scope=Scope.ADMIN)
async def list_audit_entries(call: Call, query: AuditQuery) -> Response:
    """Return the audit entries after a cursor, oldest first.

    To get each entry once, send the `nextCursor` of the previous answer as the next cursor.

    Each successful request that changes something adds one entry, in the same transaction as the change. A repeated
    request, a dry run and a refused request add none.
    """
    after = parse_cursor(query.cursor)
    return await run(call, log.read, after=after, limit=query.limit, wanted=query.wanted())
