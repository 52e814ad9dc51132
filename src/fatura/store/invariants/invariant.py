"""What an invariant is: a named statement that returns the ids which break a promise."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import LiteralString


class Asks(Enum):
    """What a statement is told beside the account (`$1`) and how many ids to return (`$2`), as `$3`."""

    NOTHING = auto()
    REAL_NOW = auto()
    KEY_IDS = auto()


@dataclass(frozen=True, slots=True)
class Invariant:
    """One promise: its name, what it says, and the statement that returns what breaks it as `offender`."""

    name: str
    says: str
    sql: LiteralString
    asks: Asks = Asks.NOTHING
