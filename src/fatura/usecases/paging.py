"""Pages of lists with exact totals (spec 2.7, D-16)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fatura.views.view import PaginationView, View

PageViewT = TypeVar("PageViewT")


@dataclass(frozen=True, slots=True)
class Page:
    """The requested page; `number` counts from 1."""

    number: int
    size: int

    @property
    def skip(self) -> int:
        return (self.number - 1) * self.size

    def lies_within(self, total: int) -> bool:
        """Return whether the page has records; if not, no query is needed (D-16)."""
        return self.skip < total

    def skip_from_end(self, total: int) -> int:
        return max(total - self.skip - self.size, 0)

    def size_within(self, total: int) -> int:
        """Return the number of records on the page: `size`, or fewer on the last page."""
        return min(self.size, total - self.skip)

    def envelope(self, view: Callable[..., PageViewT], records: Sequence[View], *, total: int) -> PageViewT:
        """Return the page in the API's format; an empty list has 0 pages (D-16)."""
        pagination = PaginationView(
            page=self.number,
            page_size=self.size,
            total_records=total,
            total_pages=-(-total // self.size),
        )
        return view(data=records, pagination=pagination)
