"""What all nouns share: the kinds of fields (spec 2.1), the page envelope (spec 2.7) and the problem (spec 7)."""

from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from fatura.domain.errors import CATALOGUE, NOT_FOUND
from fatura.domain.money import MAX_CENTS

RecordT = TypeVar("RecordT")


def _format(name: str, example: str) -> Any:
    return Field(json_schema_extra={"format": name}, examples=[example])


ShownId = Annotated[str, _format("uuid", "019a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f50")]
ShownInstant = Annotated[str, _format("date-time", "2026-11-20T12:00:00.000Z")]
ShownDay = Annotated[str, _format("date", "2026-12-10")]
ShownCents = Annotated[int, Field(ge=0, le=MAX_CENTS, examples=[9990])]
ShownTotalCents = Annotated[int, Field(ge=0, examples=[9990])]
"""A sum, or a multiple of a monthly price; inputs are bounded, these follow from them."""
ShownRef = Annotated[str, Field(min_length=1, max_length=120, examples=["crm-4711"])]


class Shown(BaseModel):
    """An object of an answer: all its fields are always there, null where they have no value (spec 2.1)."""

    model_config = ConfigDict(extra="forbid")


class Pagination(Shown):
    """Where a page stands in its list."""

    page: int = Field(ge=1, examples=[1])
    pageSize: int = Field(ge=1, le=100, examples=[25])
    totalRecords: int = Field(ge=0, examples=[42])
    totalPages: int = Field(ge=0, examples=[2], description="0 when the list is empty.")


class Page(Shown, Generic[RecordT]):
    """A page of a list, newest records first."""

    data: list[RecordT]
    pagination: Pagination


class Listed(Shown, Generic[RecordT]):
    """A whole list that is never long."""

    data: list[RecordT]


class InvalidField(BaseModel):
    """One invalid place of a request."""

    path: str = Field(
        description="Where it stands; empty when the whole body is meant.",
        examples=["items[0].discounts[1].percent"],
    )
    message: str = Field(description="What is expected there.", examples=["must be an integer from 1 to 100"])


class ProblemMeta(BaseModel):
    """Structured details; which ones there are depends on `type`."""

    model_config = ConfigDict(extra="allow")

    fields: list[InvalidField] = Field(
        default_factory=list, description="Every invalid field, with `engine.invalid_request`."
    )


class Problem(BaseModel):
    """Why a request was not served (RFC 9457). Branch on `type`, never on text."""

    type: str = Field(
        description="Stable machine code.",
        json_schema_extra={"enum": [problem.type for problem in CATALOGUE]},
        examples=[NOT_FOUND.type],
    )
    title: str = Field(description="Name of the error class.", examples=["Not found"])
    status: int = Field(ge=400, le=599, description="Same as the HTTP status.", examples=[404])
    detail: str = Field(description="Message for people, safe to show to end users.")
    requestId: str | None = Field(description="Correlation id: finds the request in the logs.")
    meta: ProblemMeta | None = Field(default=None, description="Left out when there are no details.")
