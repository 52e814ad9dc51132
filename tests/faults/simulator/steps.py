"""One step of the simulator: some I/O of a task, and its result."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from signal import Signals
from typing import Any

from tests.faults.simulator.machines import Host


@dataclass(slots=True, eq=False)
class Step:
    """I/O that a task has requested. It waits until the schedule chooses it.

    For a statement that may wait for a lock, `pid` returns the id of its PostgreSQL server process.
    """

    host: Host
    task: object
    label: str
    work: Callable[[], Awaitable[Any]]
    done: asyncio.Future[Any]
    pid: Callable[[], int | None] | None
    running: asyncio.Future[Any] | None = None


def signal(step: Step, number: Signals) -> None:
    """Stop or continue the server process of a statement that waits for a lock."""
    pid = step.pid() if step.pid is not None else None
    assert pid is not None, "only statements wait for locks"
    os.kill(pid, number)


async def do_at_once(step: Step) -> None:
    """Execute a step that cannot block, and pass the result to the task that waits for it."""
    try:
        result = await step.work()
    except Exception as error:  # noqa: BLE001 - raised again in the task
        if not step.done.done():
            step.done.set_exception(error)
    else:
        if not step.done.done():
            step.done.set_result(result)


def hand_over(step: Step) -> None:
    assert step.running is not None
    failure = step.running.exception()
    if step.done.done():
        return
    if failure is not None:
        step.done.set_exception(failure)
    else:
        step.done.set_result(step.running.result())
