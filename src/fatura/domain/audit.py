"""The audit log: which request or command changed what, and who sent it (D-63)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast
from uuid import UUID

from fatura.domain.endpoint_url import without_path

REDACTED = "[redacted]"
"""Replaces each value that an entry must not show (D-222)."""
_URL_NAMES = frozenset({"endpointUrl", "url"})
"""Fields with URLs, which entries show without path and query."""


class ActorKind(StrEnum):
    """Who makes changes: an API key, a person in the dashboard, a person at the command line, or the engine."""

    API_KEY = "api_key"
    USER = "user"
    OPERATOR = "operator"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who made a change. Only an API key and a user have an `id`."""

    kind: ActorKind
    name: str
    id: UUID | None = None


ENGINE = Actor(ActorKind.ENGINE, "Fatura")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a change comes from. A change by a command or by the engine has neither a request nor an address."""

    actor: Actor
    request_id: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of thing that changes. Entries show the values of the fields in `shown`, and just the names of others."""

    type: str
    shown: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AuditAction:
    """A kind of change. `meaning` completes "an entry says that ..."."""

    name: str
    resource: Resource
    meaning: str


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry that is not stored yet. `before` and `after` have only fields that changed, and show no secrets."""

    origin: Origin
    action: AuditAction
    resource_id: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


def new_entry(
    origin: Origin,
    action: AuditAction,
    *,
    resource_id: object,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    hidden: Collection[str] = (),
) -> NewEntry:
    """Return an entry with the differences between two states of a resource.

    `before` is None for a new resource, and `after` is None for a removed resource. `hidden` has the names of further
    changed fields, whose values neither state contains. The entry has the values of the fields in the resource's
    `shown`, and REDACTED in place of the values of other fields (D-222).
    """
    old, new = before or {}, after or {}
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return NewEntry(
        origin,
        action,
        str(resource_id),
        None if before is None else _shown(before, changed, hidden, of=action.resource),
        None if after is None else _shown(after, changed, hidden, of=action.resource),
    )


def _shown(
    state: Mapping[str, Any], names: Collection[str], hidden: Collection[str], *, of: Resource
) -> Mapping[str, Any]:
    shown = {name: _value(name, state[name], of.shown) for name in names if name in state}
    return shown | dict.fromkeys(hidden, REDACTED)


def _value(name: str, value: Any, shown: Collection[str]) -> Any:
    if name in shown:
        is_url = name in _URL_NAMES and isinstance(value, str)
        return without_path(value) if is_url else value
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {inner: _value(inner, each, shown) for inner, each in members.items()}
    return None if value is None else REDACTED
