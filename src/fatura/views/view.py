"""What all views share: the base class, the formats of fields (spec 2.1), pages and lists (spec 2.7)."""

from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Self, TypeVar, overload
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from fatura.domain.money import MAX_CENTS

ViewT = TypeVar("ViewT")

Id = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
"""A UUID as text, made with `str`. asyncpg's UUID objects cache this text; msgspec would format the id each time."""
Instant = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""The text that `instant` returns. msgspec would write a datetime with another number of fractional digits."""
Url = Annotated[str, Meta(extra_json_schema={"format": "uri"})]
Cents = Annotated[int, Meta(ge=0, le=MAX_CENTS)]
TotalCents = Annotated[int, Meta(ge=0)]
"""A sum, or a multiple of a monthly price. It can exceed MAX_CENTS, which limits only the amounts in requests."""
Count = Annotated[int, Meta(ge=0)]
Ordinal = Annotated[int, Meta(ge=1)]
Percent = Annotated[int, Meta(ge=1, le=100)]
Currency = Annotated[str, Meta(pattern="^[A-Z]{3}$", description="ISO 4217 code, such as `BRL`.")]
ExternalRef = Annotated[str, Meta(min_length=1, max_length=120)]


class View(Struct, rename="camel", kw_only=True, gc=False):
    """A JSON object. A field without a value is null; only an UnsetType field may be absent (spec 2.1).

    The OpenAPI document names the object without the suffix `View`. The JSON has the fields in declared order.
    """

    @classmethod
    def from_attributes(cls, record: object, **given: Any) -> Self:
        """Return the view of a record. Copy each field that is not in `given` from the record.

        The views of long lists do not use this method. They name each field, which is twice as fast.
        """
        copied = {
            name: _formatted(getattr(record, name)) for name in cls.__struct_fields__ if name not in given
        }
        return cls(**copied, **given)

    def json(self) -> bytes:
        return msgspec.json.encode(self)

    def json_text(self) -> str:
        return self.json().decode()


@overload
def instant(at: datetime) -> str: ...
@overload
def instant(at: datetime | None) -> str | None: ...
def instant(at: datetime | None) -> str | None:
    """Format an instant as ISO 8601 in UTC with milliseconds and `Z` (spec 2.1)."""
    if at is None:
        return None
    in_utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    to_the_second = msgspec.json.encode(in_utc)[1:20].decode()  # isoformat() takes twice as long
    return f"{to_the_second}.{in_utc.microsecond // 1000:03}Z"


def _formatted(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    return instant(value) if isinstance(value, datetime) else value


class PaginationView(View):
    """The position of a page in the whole list."""

    page: Ordinal
    page_size: Annotated[int, Meta(ge=1, le=100)]
    total_records: Count
    total_pages: Annotated[Count, Meta(description="0 when the list is empty.")]


class PageView(View, Generic[ViewT]):
    """A page of a list, newest records first."""

    data: list[ViewT]
    pagination: PaginationView


class ListView(View, Generic[ViewT]):
    """A complete list, without pages because it is never long."""

    data: list[ViewT]
