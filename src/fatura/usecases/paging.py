"""Pages of lists with exact totals (spec 2.7, D-16), and the cursors of streams (D-38)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from fatura.domain.errors import invalid_fields
from fatura.views.view import PaginationView, View

PageViewT = TypeVar("PageViewT")
RecordT = TypeVar("RecordT")
RecordT_co = TypeVar("RecordT_co", covariant=True)

START = "0"
MAX_CURSOR_CHARS = 18
"""Maximum length of a cursor. Any number with this many digits fits PostgreSQL's bigint."""


def parse_cursor(cursor: str) -> int:
    """Return the number of the entry after which a cursor continues. Raises EngineError: `engine.invalid_request`."""
    if not (cursor.isascii() and cursor.isdigit()) or len(cursor) > MAX_CURSOR_CHARS:
        raise invalid_fields(("cursor", "must be a `nextCursor` from an earlier answer of this route"))
    return int(cursor)


class ReadRecords(Protocol[RecordT_co]):
    def __call__(self, *, skip: int, limit: int) -> Awaitable[Sequence[RecordT_co]]: ...


@dataclass(frozen=True, slots=True)
class Page:
    """The requested page; `number` counts from 1."""

    number: int
    size: int

    async def read(
        self,
        view: Callable[..., PageViewT],
        records: ReadRecords[RecordT],
        *,
        of: Callable[[RecordT], View],
        total: int,
    ) -> PageViewT:
        """Read and return the page; a page beyond the end is empty, and an empty list has 0 pages (D-16)."""
        skip = (self.number - 1) * self.size
        found = await records(skip=skip, limit=self.size) if skip < total else ()
        pagination = PaginationView(
            page=self.number, page_size=self.size, total_records=total, total_pages=-(-total // self.size)
        )
        return view(data=[of(each) for each in found], pagination=pagination)
