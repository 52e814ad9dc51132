"""The type of an invariant."""

from dataclasses import dataclass
from typing import Literal, LiteralString


@dataclass(frozen=True, slots=True)
class Invariant:
    """A condition, and a statement that returns the ids of rows that violate the condition, as column `offender`.

    In the statement, `$1` is the account, `$2` the maximum number of ids, and `$3` the value that `needs` names.
    """

    name: str
    description: str
    sql: LiteralString
    needs: Literal["real_now", "key_ids"] | None = None
