"""Base models of request bodies and queries, and the paging of lists (spec 2.7, D-16)."""

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from fatura.api.http.fields import IntRange, IntText
from fatura.usecases.paging import Page

MAX_UNKNOWN = 20
"""Maximum number of unknown fields of one object that an error lists (D-104)."""
MAX_PAGE = 1_000_000_000
MAX_PAGE_SIZE = 100
DEFAULT_PAGE_SIZE = 25


Examples = Mapping[str, Any]
"""Example bodies by name, for the OpenAPI document."""


class Body(BaseModel):
    """A JSON object in a request; unknown fields are refused (D-11). Attributes have the names of the JSON fields.

    If `may_be_absent` is true, a request without a body counts as an empty object.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    examples: ClassVar[Examples] = {}
    may_be_absent: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _limit_unknown(cls, value: Any) -> Any:
        """Drop the unknown fields beyond MAX_UNKNOWN, because pydantic spends time on an error for each of them."""
        if not isinstance(value, dict):
            return value
        known, members = cls.model_fields, cast("dict[str, Any]", value)
        if len(members) <= MAX_UNKNOWN:
            return members
        unknown = list(islice((name for name in members if name not in known), MAX_UNKNOWN))
        return {name: members[name] for name in (*known, *unknown) if name in members}

    def sent(self) -> dict[str, Any]:
        """Return the fields that the client sent, by their names in JSON; a PATCH changes only these fields."""
        return {name: getattr(self, name) for name in self.model_fields_set}


def unsent() -> Any:
    """Return the `Field` of an attribute that a PATCH may omit. A client may send null only if the type allows it."""
    return Field(default_factory=lambda: None)


class Query(BaseModel):
    """The parameters of a query. `route.read_query` refuses unknown and repeated names before validation (D-60)."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel)


class Paging(Query):
    """The requested page of a list (spec 8, D-16)."""

    page: Annotated[
        int, IntRange(1, MAX_PAGE), IntText(), Field(description="Number of the page, from 1.")
    ] = 1
    page_size: Annotated[
        int, IntRange(1, MAX_PAGE_SIZE), IntText(), Field(description="Records per page.")
    ] = DEFAULT_PAGE_SIZE

    def asked(self) -> Page:
        return Page(self.page, self.page_size)

    def filters(self) -> dict[str, Any]:
        """Return all parameters other than `page` and `page_size`, by attribute name."""
        return {name: value for name, value in self if name not in {"page", "page_size"}}
