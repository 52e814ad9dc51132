"""The settings and credentials that a connection to a payment provider has (D-259)."""

from dataclasses import dataclass
from enum import StrEnum


class FieldType(StrEnum):
    """The JSON type of a field's value."""

    TEXT = "text"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class ProviderField:
    """A setting or a credential of a connection. A secret setting is stored encrypted, like all credentials."""

    name: str
    means: str
    type: FieldType = FieldType.TEXT
    is_required: bool = False
    is_secret: bool = False
