"""The type of an invariant."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import LiteralString


class Needs(Enum):
    """The parameter `$3` of a statement; `$1` is the account, and `$2` the maximum number of ids."""

    NOTHING = auto()
    REAL_NOW = auto()
    KEY_IDS = auto()


@dataclass(frozen=True, slots=True)
class Invariant:
    """A condition and the statement that returns the ids that violate it as `offender`."""

    name: str
    description: str
    sql: LiteralString
    needs: Needs = Needs.NOTHING
