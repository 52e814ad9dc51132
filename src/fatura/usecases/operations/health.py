"""Whether this process can serve, and whether its clock may be trusted (spec 4.1, D-5)."""

from dataclasses import dataclass
from datetime import timedelta

from fatura.store.db import DatabaseUnavailableError
from fatura.usecases.deps import Deps

MAX_CLOCK_SKEW = timedelta(seconds=30)
"""How far the host's clock may be off the database's before nothing is generated (D-5)."""
MAX_PUSH_SKEW = timedelta(seconds=15)
"""How far before it pushes nothing: the order of an invoice's events rests on leases alone, and those are short."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """What the readiness route shows."""

    database: bool
    clock: bool


async def check(deps: Deps) -> Readiness:
    """Ask the database for its time, which has two seconds to answer (spec 4.1)."""
    try:
        return Readiness(database=True, clock=await clock_is_trusted(deps))
    except DatabaseUnavailableError:
        return Readiness(database=False, clock=False)


async def clock_is_trusted(deps: Deps, *, within: timedelta = MAX_CLOCK_SKEW) -> bool:
    """Say whether this host's clock is so close to the database's (D-5). Raises DatabaseUnavailableError."""
    return abs(await deps.db.ping() - deps.clock()) <= within
