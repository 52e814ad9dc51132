"""The type of an invariant."""

from dataclasses import dataclass
from typing import Literal, LiteralString


@dataclass(frozen=True, slots=True)
class Invariant:
    """A condition, and a statement that returns the ids of rows that violate the condition, as column `offender`.

    In the statement, `$1` is the account, and `$3` is the value that `needs` names. `offenders` adds a limit as `$2`.
    """

    name: str
    description: str
    sql: LiteralString
    needs: Literal["real_now", "key_ids"] | None = None
