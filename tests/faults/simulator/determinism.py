"""Make the engine deterministic: replace its random numbers, ids, pauses and time by simulated ones."""

import asyncio
import logging
import random
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
import uuid_utils
from structlog.typing import EventDict

from fatura.store.db import DatabaseUnavailableError, DeadlockError, LockTimeoutError
from tests.faults.simulator.machines import HOST
from tests.faults.simulator.schedule import Schedule
from tests.faults.simulator.side import World

EXPECTED = (DatabaseUnavailableError, DeadlockError, LockTimeoutError)
"""Errors that injected faults cause, and that the engine may therefore log."""
_PLAIN_SLEEP = asyncio.sleep


class _Seconds:
    """Replaces the module `time` in the engine. Its monotonic clock shows the simulated time."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._start = schedule.now

    def monotonic(self) -> float:
        return (self._schedule.now - self._start).total_seconds()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class _Ids:
    """Replaces the module `uuid_utils` in the engine. The world's seed determines the ids."""

    def __init__(self, schedule: Schedule, seed: int) -> None:
        self._schedule = schedule
        self._rng = random.Random(f"ids {seed}")  # noqa: S311 - not for security

    def uuid7(self, *, nanoseconds: int | None = None) -> UUID:
        at = nanoseconds // 10**6 if nanoseconds is not None else _millis(self._schedule.now)
        return UUID(
            int=at << 80 | 0x7 << 76 | self._rng.getrandbits(12) << 64 | 2 << 62 | self._rng.getrandbits(62)
        )


def _millis(at: datetime) -> int:
    return int(at.timestamp() * 1000)


@contextmanager
def deterministic(world: World) -> Generator[None]:
    """Replace the engine's random numbers, ids, pauses and time in this process during the block."""
    replaced = {"time": _Seconds(world.schedule), "uuid_utils": _Ids(world.schedule, world.seed)}
    known = {"time": time, "uuid_utils": uuid_utils}
    places = [
        (module, name)
        for path, module in sys.modules.items()
        for name in replaced
        if path.startswith("fatura.") and "http" not in path and getattr(module, name, None) is known[name]
    ]
    configured = structlog.get_config()

    async def pause(seconds: float, result: object = None) -> object:
        if seconds > 0 and HOST.get(None) is not None:
            await world.schedule.sleep(seconds)
            return result
        return await _PLAIN_SLEEP(seconds, result)

    random.seed(world.seed)
    try:
        for module, name in places:
            setattr(module, name, replaced[name])
        asyncio.sleep = pause  # pyright: ignore[reportAttributeAccessIssue] - restored below
        structlog.configure(
            processors=[_ErrorListener(world)],
            wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
            cache_logger_on_first_use=False,
        )
        yield
    finally:
        asyncio.sleep = _PLAIN_SLEEP
        for module, name in places:
            setattr(module, name, known[name])
        structlog.configure(**configured)


class _ErrorListener:
    """A log processor that reports logged errors as problems, unless an injected fault explains them."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __call__(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        cause = event.get("exc_info")
        error = sys.exc_info()[1] if cause is True else cause
        said = str(event.get("error", ""))
        if isinstance(error, BaseException):
            if not isinstance(error, EXPECTED) and not self._world.schedule.over:
                self._world.report_error(event["event"], error)
        elif not self._is_explained(event):
            self._world.report_problem(f"the log contains {event['event']}: {said}")
        raise structlog.DropEvent

    def _is_explained(self, event: EventDict) -> bool:
        """Return whether a fault explains the error.

        A second charge of an invoice is explained in four cases: the gateway created a charge twice or forgot a charge
        for a time, a payer paid a closed charge, or a person returned payments that the engine had not recorded yet.
        `charge.unreadable` is always explained, because two faults can make two late look-ups a day apart fail.
        """
        if event["event"] == "charge.second_charge_found":
            made = self._world.side.gateway.of_invoice(event["invoice_id"])
            return any(
                each.was_forgotten or each.was_paid_late or each.is_double or each.was_returned
                for each in made
            )
        return event["event"] in {"pricing.answers_not_recorded", "charge.unreadable"}
