"""The audit log: who changed what (D-63)."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from fatura.domain.audit import REDACTED, ActorKind
from fatura.domain.audit_actions import CATALOGUE
from fatura.views.view import Id, Instant, View

ACTIONS = tuple(sorted(action.name for action in CATALOGUE))
RESOURCES = tuple(sorted({action.resource.type for action in CATALOGUE}))
State = Annotated[Mapping[str, Any], Meta(extra_json_schema={"additionalProperties": True})]


class AuditActorView(View):
    """Who made a change."""

    kind: ActorKind
    id: Annotated[
        Id | None, Meta(description="Id of the API key or user; null for operators and the engine.")
    ]
    name: Annotated[str, Meta(description="Name of the API key or user, or the operating system's user.")]


class AuditResourceView(View):
    """What was changed."""

    type: Annotated[str, Meta(extra_json_schema={"enum": list(RESOURCES)})]
    id: Annotated[
        str,
        Meta(
            description="Id of the resource; for the webhook, the secret and the test clock, the id of the account."
        ),
    ]


class AuditEntryView(View):
    """One change, as it was made (D-63)."""

    id: Id
    at: Annotated[
        Instant, Meta(description="When it was made, on the account's clock; never before an earlier entry.")
    ]
    actor: AuditActorView
    action: Annotated[str, Meta(extra_json_schema={"enum": list(ACTIONS)})]
    resource: AuditResourceView
    request_id: Annotated[
        str | None, Meta(description="`X-Request-Id` of the request; null for operators and the engine.")
    ]
    address: Annotated[
        str | None, Meta(description="Network address of the client; null for operators and the engine.")
    ]
    before: Annotated[
        State | None,
        Meta(
            description=f"The changed fields as they were; null if the resource is new. A field with `{REDACTED}` "
            "contains personal data or a secret, or may contain one. URLs are cut after the host."
        ),
    ]
    after: Annotated[
        State | None,
        Meta(description="The changed fields as they are now; null if the resource was removed."),
    ]


class AuditLogView(View):
    """A part of the account's audit log, oldest first (D-63)."""

    data: list[AuditEntryView]
    next_cursor: Annotated[
        str,
        Meta(
            description="Send this value as `cursor` to get the next entries. After the last entry, send it in the "
            "next poll."
        ),
    ]
