"""A process that creates fixtures and executes trials.

For each trial, the process forks a child, which runs the flow and is killed.

`python -m tests.faults.crashes.worker FOLDER EXTERNAL_URL RING FD ...` forks one worker for each socket FD. A worker
first receives the server's URL and a database name. Then it receives jobs, and sends one result per job. Each message
is one line of JSON.
"""

import asyncio
import gc
import json
import os
import signal
import socket
import sys
import traceback
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO
from uuid import UUID

import uvloop

from fatura.domain.credentials import Mode
from fatura.observability import configure_logs
from fatura.usecases.accounts import accounts
from fatura.usecases.catalog import propagation
from fatura.usecases.sandbox import test_clock
from fatura.usecases.subscriptions import connection_moves
from tests.faults import breaks
from tests.faults.clock import started
from tests.faults.crashes import recovery
from tests.faults.crashes.acts import Flow, Request
from tests.faults.crashes.external import FAULTS_FILE
from tests.faults.crashes.flows import FLOWS
from tests.faults.crashes.place import Notes, Place, Shared, ShiftedClock, open_shop
from tests.faults.crashes.points import KillAt, Moment, Points
from tests.faults.crashes.trial_database import TrialDatabase, make_database, open_trial_database
from tests.support.operator import OPERATOR

FLOW = {flow.name: flow for flow in FLOWS}

TRIES = 5
"""Maximum number of trials per point. A process may miss its point, because concurrent I/O has no fixed order."""


def main() -> None:
    """Import the engine once, fork the workers, and wait for them."""
    folder, external_url, ring, *lines = sys.argv[1:]
    configure_logs(level="critical")
    breaks.apply()
    propagation.BATCH = 1  # so that a process can be killed between two batches
    connection_moves.BATCH = 1
    connection_moves.WAIT_SECONDS = 0  # the API must not wait, because the flow itself runs the lane
    test_clock.WAIT_SECONDS = 0
    gc.freeze()  # so that garbage collection in children does not copy shared memory
    for each in lines:
        if os.fork() == 0:
            with socket.socket(fileno=int(each)) as line, line.makefile("rw") as file:
                _serve(file, folder=Path(folder), external_url=external_url, ring=ring)
            os._exit(0)
    for _ in lines:
        os.wait()


def _serve(file: TextIO, *, folder: Path, external_url: str, ring: str) -> None:
    server_url, database = json.loads(file.readline())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        url = runner.run(make_database(server_url, database))
        held = AsyncExitStack()
        database = runner.run(held.enter_async_context(open_trial_database(url)))
        worker = Worker(Shared(url, folder, external_url, ring), database, runner)
        for job in file:
            file.write(json.dumps(worker.do(json.loads(job)), default=str) + "\n")
            file.flush()
        os._exit(0)  # does not close connections, because the server may have stopped


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process. It forks only while no event loop runs, so that the child can start its own event loop."""

    shared: Shared
    database: TrialDatabase
    runner: asyncio.Runner

    def do(self, job: Any) -> dict[str, Any]:
        flow = FLOW[job["flow"]]
        base = Place(self.shared, f"fixture-{flow.fixture}")
        try:
            if job["kind"] == "prepare":
                self.runner.run(_prepare(self.database, base, flow))
                return {"problems": []}
            at = KillAt(job["point"], Moment(job["moment"])) if "point" in job else None
            return self._try(flow, base, f"{flow.name}-{job['number']}", at=at)
        except Exception:  # noqa: BLE001 - reported as the trial's result
            return {"problems": [traceback.format_exc()]}

    def _try(self, flow: Flow, base: Place, name: str, *, at: KillAt | None) -> dict[str, Any]:
        """Run one trial. If the process did not reach the point of its kill, repeat the trial."""
        result: dict[str, Any] = {}
        for again in range(1 if at is None else TRIES):
            place = Place(self.shared, f"{name}-{again}")
            result = self._try_in(place, flow, base, at=at)
            place.drop_folder()
            if result["problems"] or result["killed"]:
                break
        return result

    def _try_in(self, place: Place, flow: Flow, base: Place, *, at: KillAt | None) -> dict[str, Any]:
        """Restore the database, and fork a child process that runs the flow. Then run the recovery in this process.

        The child is killed at the point `at`. If `at` is None, the child runs the whole flow.
        """
        self.runner.run(self.database.reset(place, like=base))
        (place.folder / FAULTS_FILE).write_text(str(flow.faults))
        now = ShiftedClock.started(place.folder, datetime.fromisoformat(place.notes().ended_at))
        now.move(1)
        ended = _fork_and_run(place, flow, now, at=at)
        if ended not in (0, -signal.SIGKILL):
            return {"problems": [f"the flow ended with {ended}"]}
        killed = ended == -signal.SIGKILL
        now = ShiftedClock.continued(place.folder)
        result = self.runner.run(
            recovery.recover(place, flow, database=self.database, now=now, killed=killed)
        )
        baseline = {} if killed else json.loads((place.folder / "whole").read_text())
        return {"killed": killed, **result, **baseline}


async def _prepare(database: TrialDatabase, place: Place, flow: Flow) -> None:
    await database.clear()
    place.folder.mkdir()
    now = ShiftedClock.started(place.folder, started(speed=1)())
    (place.folder / FAULTS_FILE).write_text(str(flow.before))
    notes = Notes(account_id=str(UUID(int=0)))
    async with open_shop(place, now=now, notes=notes, db=database.db) as shop:
        opened = await accounts.open_account(shop.deps, name="Crash", mode=Mode.SANDBOX, opened_by=OPERATOR)
        shop.account_id, shop.api_key = opened.account_id, opened.api_key
        shop.notes.account_id, shop.notes.api_key = str(opened.account_id), opened.api_key
        shop.share_secret(opened.secret)
        await flow.prepare(shop)
        shop.write_notes()
    await database.save(place)


def _fork_and_run(place: Place, flow: Flow, now: ShiftedClock, *, at: KillAt | None) -> int:
    """Run the flow in a child process. Return its exit code, or the negative number of the signal that killed it."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 3
    try:
        points = Points(place.folder, at)
        answers = asyncio.run(_run_flow(place, flow, now, points=points))
        (place.folder / "whole").write_text(json.dumps({"points": points.names, "answers": answers}))
        code = 0
    except BaseException:  # noqa: BLE001 - the child must not continue with the parent's code
        traceback.print_exc()
    os._exit(code)


async def _run_flow(place: Place, flow: Flow, now: ShiftedClock, *, points: Points) -> list[Any]:
    answers: list[Any] = []
    async with open_shop(place, now=now, notes=place.notes(), points=points) as shop:
        with points.counting():
            for act in flow.acts:
                answer = await act(shop)
                if isinstance(act, Request):
                    assert answer is not None, act
                    assert act.is_final(answer), (act, answer)
                    answers.append(act.comparable(shop, answer))
    return answers


if __name__ == "__main__":
    main()
