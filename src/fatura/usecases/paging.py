"""Pages of lists with exact totals: from the account's counter row, or counted for a filter (spec 2.7, D-16)."""

from collections.abc import Sequence
from dataclasses import dataclass

from fatura.domain.shapes import Shape


@dataclass(frozen=True, slots=True)
class Page:
    """Which page is asked for; `number` counts from 1."""

    number: int
    size: int

    @property
    def skip(self) -> int:
        """Return how many records lie before the page."""
        return (self.number - 1) * self.size

    def lies_within(self, total: int) -> bool:
        """Say whether the page has records; one past the end is empty, and nobody has to count up to it (D-16)."""
        return self.skip < total

    def skip_from_end(self, total: int) -> int:
        """Return how many records lie after the page."""
        return max(total - self.skip - self.size, 0)

    def size_within(self, total: int) -> int:
        """Return how many records the page has: the last one may have fewer."""
        return min(self.size, total - self.skip)

    def envelope(self, records: Sequence[Shape], *, total: int) -> Shape:
        """Return the list's answer; an empty list has no pages (D-16)."""
        return {
            "data": records,
            "pagination": {
                "page": self.number,
                "pageSize": self.size,
                "totalRecords": total,
                "totalPages": -(-total // self.size),
            },
        }
