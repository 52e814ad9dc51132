"""Pages of lists with exact totals, from the account's counters or counted for a filter (spec 2.7, D-16)."""

from collections.abc import Sequence
from dataclasses import dataclass

from fatura.domain.shapes import Shape


@dataclass(frozen=True, slots=True)
class Page:
    """The requested page; `number` counts from 1."""

    number: int
    size: int

    @property
    def skip(self) -> int:
        return (self.number - 1) * self.size

    def lies_within(self, total: int) -> bool:
        """Say whether the page has records; a page past the end needs no query (D-16)."""
        return self.skip < total

    def skip_from_end(self, total: int) -> int:
        return max(total - self.skip - self.size, 0)

    def size_within(self, total: int) -> int:
        """Return the number of records on the page; the last page may have fewer than `size`."""
        return min(self.size, total - self.skip)

    def envelope(self, records: Sequence[Shape], *, total: int) -> Shape:
        """Return the list's JSON; an empty list has 0 pages (D-16)."""
        return {
            "data": records,
            "pagination": {
                "page": self.number,
                "pageSize": self.size,
                "totalRecords": total,
                "totalPages": -(-total // self.size),
            },
        }
