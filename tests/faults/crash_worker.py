"""One process of the crash matrix: prepares grounds, and forks what is to be killed, warmed up and without a loop.

`python -m tests.faults.crash_worker SERVER_URL FOLDER OUTSIDE_URL RING` reads jobs and prints results as lines of JSON.
"""

import asyncio
import json
import os
import signal
import sys
import traceback
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from fatura.domain.credentials import Mode
from fatura.observability import configure_logs
from fatura.usecases import accounts, test_clock
from tests.faults import breaks, crash_recovery
from tests.faults.clock import started
from tests.faults.crash_acts import Ask, Flow
from tests.faults.crash_flows import FLOWS
from tests.faults.crash_outside import LIES_FILE
from tests.faults.crash_place import Ground, Notes, Place, ShiftedClock, open_shop
from tests.faults.crash_points import KillAt, Moment, Points

FLOW = {flow.name: flow for flow in FLOWS}


def main() -> None:
    """Do job after job until the input closes."""
    configure_logs(level="critical")
    breaks.apply()
    test_clock.WAIT_SECONDS = 0  # the flow's own process drives the clock, once the request is answered
    server_url, folder, outside_url, ring = sys.argv[1:]
    ground = Ground(server_url, Path(folder), outside_url, ring)
    for line in sys.stdin:
        job = json.loads(line)
        flow = FLOW[job["flow"]]
        try:
            if job["kind"] == "prepare":
                told: dict[str, Any] = asyncio.run(_prepare(ground, flow))
            else:
                told = _try(ground, flow, kill_at=job["kill_at"])
        except Exception:  # noqa: BLE001 - told as the trial's result, and the next one is tried
            told = {"problems": [traceback.format_exc()]}
        print(json.dumps(told, default=str), flush=True)  # noqa: T201 - what the run reads


def ground_of(ground: Ground, flow: Flow) -> Place:
    """Return the place that a flow's trials are clones of."""
    return Place(ground, f"ground-{flow.ground}")


async def _prepare(ground: Ground, flow: Flow) -> dict[str, Any]:
    place = ground_of(ground, flow)
    await place.make(like=None)
    now = ShiftedClock.started(place.folder, started(speed=1)())
    (place.folder / LIES_FILE).write_text(str(flow.before))
    async with open_shop(place, now=now, notes=Notes(account_id=str(UUID(int=0)))) as shop:
        opened = await accounts.open_account(shop.deps, name="Crash", mode=Mode.SANDBOX)
        shop.account_id, shop.api_key = opened.account_id, opened.api_key
        shop.notes.account_id, shop.notes.api_key = str(opened.account_id), opened.api_key
        shop.know_secret(opened.secret)
        await flow.prepare(shop)
        shop.write_notes()
    return {"problems": []}


def _try(ground: Ground, flow: Flow, *, kill_at: list[Any] | None) -> dict[str, Any]:
    """Make one trial: clone the ground, fork the process that dies, and recover in this one."""
    at = None if kill_at is None else KillAt(kill_at[0], Moment(kill_at[1]))
    name = f"{flow.name}-whole" if at is None else f"{flow.name}-{at.number}-{at.moment}"
    place = Place(ground, name)
    asyncio.run(place.make(like=ground_of(ground, flow)))
    (place.folder / LIES_FILE).write_text(str(flow.lies))
    now = ShiftedClock.started(place.folder, datetime.fromisoformat(place.notes().ended_at))
    now.move(1)
    ended = _fork(place, flow, now, at=at)
    now = ShiftedClock.continued(place.folder)
    told: dict[str, Any] = {"problems": [], "killed": ended == -signal.SIGKILL}
    if ended not in (0, -signal.SIGKILL):
        told["problems"] = [f"the flow itself ended with {ended}"]
    else:
        died = place.folder / "died"
        told |= {"point": died.read_text() if died.exists() else None}
        told |= asyncio.run(crash_recovery.recover(place, flow, now=now, killed=told["killed"]))
        if not told["killed"]:
            told |= json.loads((place.folder / "whole").read_text())
    asyncio.run(place.drop())
    return told


def _fork(place: Place, flow: Flow, now: ShiftedClock, *, at: KillAt | None) -> int:
    """Run the flow in a process of its own, and return how it ended: its exit code, or the signal, negative."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 3
    try:
        points = Points(place.folder, at)
        answers = asyncio.run(_act(place, flow, now, points=points))
        (place.folder / "whole").write_text(json.dumps({"points": points.names, "answers": answers}))
        code = 0
    except BaseException:  # noqa: BLE001 - a forked process must not go on as its parent
        traceback.print_exc()
    os._exit(code)


async def _act(place: Place, flow: Flow, now: ShiftedClock, *, points: Points) -> list[Any]:
    """Do what the flow does, and return what its requests were answered."""
    answers: list[Any] = []
    async with open_shop(place, now=now, notes=place.notes(), points=points) as shop:
        with points.counting():
            for act in flow.acts:
                answer = await act(shop)
                if isinstance(act, Ask):
                    assert answer is not None, act
                    assert act.is_answered_by(answer), (act, answer)
                    answers.append(act.told(shop, answer))
    return answers


if __name__ == "__main__":
    main()
