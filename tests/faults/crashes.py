"""The crash matrix: every flow killed with -9 at its steps between two inputs or outputs, and brought to rest again."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults import crash_fsyncs, place
from tests.faults.crash_acts import Flow
from tests.faults.crash_crew import Crew, Job, crew
from tests.faults.crash_flows import FLOWS
from tests.faults.crash_outcome import differences
from tests.faults.crash_points import Moment
from tests.faults.crash_recovery import RECOVERED_WITHIN
from tests.faults.report import Options, Report, Scale

LEAST_POINTS = {Scale.SHORT: 140, Scale.FULL: 2000}
SAMPLES = {Scale.SHORT: 156, Scale.FULL: 2050}
"""Points drawn; a few more than are promised, since a process that is quicker one day has fewer."""
FSYNC_KILLS = 20
SHOWN = 3


@dataclass(slots=True)
class Matrix:
    """What was tried, and what came of it."""

    options: Options
    report: Report
    whole: dict[str, Any] = field(default_factory=dict[str, Any])
    points: set[str] = field(default_factory=set[str])
    recovered: int = 0
    held_seconds: float = 0
    settled_seconds: float = 0
    settled_of: str = ""

    def judge(self, flow: str, told: Any) -> None:
        """Take a trial's result: what it found is a problem, and so is an outcome unlike the one without a crash."""
        problems: list[str] = list(told["problems"])
        if not problems:
            problems = _unlike(self.whole[flow], told)
        if told.get("killed"):
            self.points.add(f"{flow} / {told['point']}")
            self.held_seconds = max(self.held_seconds, told.get("held_seconds", 0))
            self.recovered += not problems
            settled = told.get("settled_seconds", 0) - self.whole[flow]["settled_seconds"]
            if settled > self.settled_seconds:
                self.settled_seconds, self.settled_of = settled, f"{flow} / {told['point']}"
        at = told.get("point") or "not killed"
        self.report.problems += [f"{flow} / {at}: {each}" for each in problems[:SHOWN]]


def _unlike(whole: Any, told: Any) -> list[str]:
    return differences(whole["outcome"], told["outcome"]) + differences(
        whole["answers"], told["answers"], "/answers"
    )


def run(options: Options, *, flows: Sequence[Flow] = FLOWS) -> Report:
    """Count the points of all flows, then kill at each of them, or at a sample drawn from the seed."""
    report = Report("crashes", options.seed)
    matrix = Matrix(options, report)
    with place.server() as url, crew(url) as workers:
        known = _prepared(workers, flows, matrix)
        jobs = [_job(flow, number, moment) for flow, number, moment in _chosen(options, known)]
        total = len(jobs)
        results = workers.do(jobs, lambda done: options.progress(done, total, "killing"))
    for job, told in zip(jobs, results, strict=True):
        matrix.judge(job["flow"], told)
    _tell(matrix, known, jobs)
    if options.scale is Scale.FULL:
        _kill_at_fsyncs(options, report)
    return report


def _prepared(workers: Crew, flows: Sequence[Flow], matrix: Matrix) -> dict[str, int]:
    """Prepare the grounds, run each flow once whole on its own, and return how many inputs and outputs each has."""
    grounds = {flow.ground: flow for flow in flows}
    prepared = workers.do([{"kind": "prepare", "flow": flow.name} for flow in grounds.values()])
    for name, told in zip(grounds, prepared, strict=True):
        matrix.report.problems += [f"the ground {name}: {each}" for each in told["problems"]]
    known: dict[str, int] = {}
    whole = workers.do([{"kind": "try", "flow": flow.name, "kill_at": None} for flow in flows])
    for flow, told in zip(flows, whole, strict=True):
        matrix.report.problems += [f"{flow.name}, not killed at all: {each}" for each in told["problems"]]
        if not told["problems"]:
            matrix.whole[flow.name] = told
            known[flow.name] = len(told["points"])
    return known


def _chosen(options: Options, known: dict[str, int]) -> list[tuple[str, int, Moment]]:
    """Draw points so that every flow has its share: all of the short flows, and more of the long ones."""
    chosen = [
        (flow, number + 1, moment)
        for flow, count in known.items()
        for number in range(count)
        for moment in Moment
    ]
    drawn = random.Random(options.seed)  # noqa: S311 - it guards nothing
    drawn.shuffle(chosen)
    rank: Counter[str] = Counter()
    ranked: list[tuple[int, tuple[str, int, Moment]]] = []
    for each in chosen:
        rank[each[0]] += 1
        ranked.append((rank[each[0]], each))
    ranked.sort(key=lambda pair: pair[0])
    return [each for _, each in ranked[: SAMPLES[options.scale]]]


def _job(flow: str, number: int, moment: Moment) -> Job:
    return {"kind": "try", "flow": flow, "kill_at": [number, moment]}


def _tell(matrix: Matrix, known: dict[str, int], jobs: Sequence[Job]) -> None:
    report, options = matrix.report, matrix.options
    report.count("flows killed", len(known), at_least=len(FLOWS))
    report.count("points counted in them", 3 * sum(known.values()), at_least=LEAST_POINTS[Scale.FULL])
    report.count(
        "distinct points killed at with -9", len(matrix.points), at_least=LEAST_POINTS[options.scale]
    )
    report.count("not recovered without a human", len(matrix.points) - matrix.recovered, at_most=0)
    missed = len(jobs) - len(matrix.points)  # what runs beside each other comes in another order now and then
    report.count("points that the process did not come to", missed, at_most=len(jobs) // 20)
    report.count(
        "clock seconds that the dead held anything, at worst",
        matrix.held_seconds,
        at_most=RECOVERED_WITHIN.total_seconds(),
    )
    report.count("clock seconds to the same end as without the crash, at worst", matrix.settled_seconds)


def _kill_at_fsyncs(options: Options, report: Report) -> None:
    report.left_out = crash_fsyncs.why_not()
    if report.left_out is not None:
        return
    tried = crash_fsyncs.run(
        FSYNC_KILLS,
        seed=options.seed,
        progress=lambda done: options.progress(done, FSYNC_KILLS, "killing at fsyncs"),
    )
    report.problems += tried.problems
    report.count("kills of PostgreSQL at its n-th fsync", tried.kills, at_least=FSYNC_KILLS)
    report.count("requests acknowledged beside them", len(tried.acknowledged), at_least=FSYNC_KILLS)
    report.count("acknowledged and lost, or done twice", len(tried.problems), at_most=0)
