"""In every flow, kill the engine with SIGKILL at its statements and external calls, and check that it recovers."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults import place
from tests.faults.crashes import fsyncs
from tests.faults.crashes.acts import Flow
from tests.faults.crashes.flows import FLOWS
from tests.faults.crashes.outcome import differences
from tests.faults.crashes.points import Moment
from tests.faults.crashes.pool import WORKERS, Job, WorkerPool, worker_pool
from tests.faults.crashes.recovery import RECOVERED_WITHIN
from tests.faults.report import Options, Report, Scale

LEAST_POINTS = {Scale.SHORT: 150, Scale.FULL: 2000}
SAMPLES = {Scale.SHORT: 152, Scale.FULL: 2020}
"""Number of points to draw. It exceeds LEAST_POINTS, because a process may not reach some of the points."""
FSYNC_KILLS = 20
SHOWN = 3


@dataclass(slots=True)
class Matrix:
    options: Options
    report: Report
    baseline: dict[str, Any] = field(default_factory=dict[str, Any])
    points: set[str] = field(default_factory=set[str])
    recovered: int = 0
    lease_seconds: float = 0
    settled_seconds: float = 0

    def record(self, job: Job, result: Any) -> None:
        flow = job["flow"]
        at = f"{flow} / {job['point']} / {job['moment']}"
        problems: list[str] = list(result["problems"])
        if not problems:
            problems = _differences(self.baseline[flow], result)
        if result.get("killed"):
            self.points.add(at)
            self.lease_seconds = max(self.lease_seconds, result.get("held_seconds", 0))
            self.recovered += not problems
            settled = result.get("settled_seconds", 0) - self.baseline[flow]["settled_seconds"]
            self.settled_seconds = max(self.settled_seconds, settled)
        self.report.problems += [f"{at}: {each}" for each in problems[:SHOWN]]


def _differences(baseline: Any, result: Any) -> list[str]:
    return differences(baseline["outcome"], result["outcome"]) + differences(
        baseline["answers"], result["answers"], "/answers"
    )


def run(options: Options, *, flows: Sequence[Flow] = FLOWS) -> Report:
    """List the points of all flows, then run one trial for each point of a sample. The seed determines the sample.

    A full run also kills PostgreSQL at its fsyncs.
    """
    report = Report("crashes", options.seed)
    matrix = Matrix(options, report)
    worker = _workers(flows)
    with worker_pool() as workers, place.server() as url:
        workers.open(url)
        known = _prepared(workers, worker, flows, matrix)
        rows = _rows(worker, _chosen(options, known))
        jobs = [job for row in rows for job in row]
        results = workers.do(rows, lambda done: options.progress(done, len(jobs), "killing"))
    for job, result in zip(jobs, (result for row in results for result in row), strict=True):
        matrix.record(job, result)
    _report(matrix, known, jobs)
    if options.scale is Scale.FULL:
        _kill_at_fsyncs(options, report)
    return report


def _workers(flows: Sequence[Flow]) -> dict[str, int]:
    """Assign each flow to a worker process.

    Flows with the same fixture get the same worker, which creates the fixture once.
    """
    fixtures: defaultdict[str, list[Flow]] = defaultdict(list)
    for flow in flows:
        fixtures[flow.fixture].append(flow)
    shares = [0] * WORKERS
    chosen: dict[str, int] = {}
    for group in sorted(fixtures.values(), key=_work, reverse=True):
        least = shares.index(min(shares))
        shares[least] += _work(group)
        chosen |= {flow.name: least for flow in group}
    return chosen


def _work(flows: Sequence[Flow]) -> int:
    """Estimate the duration of flows by their number of steps."""
    return sum(len(flow.acts) + 1 for flow in flows)


def _prepared(
    workers: WorkerPool, worker: dict[str, int], flows: Sequence[Flow], matrix: Matrix
) -> dict[str, list[str]]:
    """Prepare the fixtures, run each flow without a kill, and return the names of each flow's points."""
    rows: list[list[Job]] = [[] for _ in range(WORKERS)]
    fixtures: set[str] = set()
    for flow in flows:
        if flow.fixture not in fixtures:
            fixtures.add(flow.fixture)
            rows[worker[flow.name]].append({"kind": "prepare", "flow": flow.name})
        rows[worker[flow.name]].append({"kind": "try", "flow": flow.name, "number": 0})
    known: dict[str, list[str]] = {}
    for row, results in zip(rows, workers.do(rows), strict=True):
        for job, result in zip(row, results, strict=True):
            doing = "prepared" if job["kind"] == "prepare" else "without a kill"
            matrix.report.problems += [f"{job['flow']}, {doing}: {each}" for each in result["problems"]]
            if job["kind"] == "try" and not result["problems"]:
                matrix.baseline[job["flow"]] = result
                known[job["flow"]] = result["points"]
    return known


def _chosen(options: Options, known: dict[str, list[str]]) -> list[tuple[str, str, Moment]]:
    """Draw points from every flow: all points of short flows, and a sample of the points of long flows.

    A point's random number depends only on the seed and the point. If a flow gets a new point, the rest of the sample
    therefore hardly changes.
    """
    ranked: list[tuple[int, str, str, Moment]] = []
    for flow, points in known.items():
        lots = [
            (random.Random(f"{options.seed} {flow} {point} {moment}").random(), point, moment)  # noqa: S311 - not for security
            for point in points
            for moment in Moment
        ]
        ranked += [(rank, flow, point, moment) for rank, (_, point, moment) in enumerate(sorted(lots))]
    return [(flow, point, moment) for _, flow, point, moment in sorted(ranked)[: SAMPLES[options.scale]]]


def _rows(worker: dict[str, int], chosen: Sequence[tuple[str, str, Moment]]) -> list[list[Job]]:
    rows: list[list[Job]] = [[] for _ in range(WORKERS)]
    for number, (flow, point, moment) in enumerate(chosen, 1):
        job: Job = {"kind": "try", "flow": flow, "number": number, "point": point, "moment": moment}
        rows[worker[flow]].append(job)
    return rows


def _report(matrix: Matrix, known: dict[str, list[str]], jobs: Sequence[Job]) -> None:
    report, options = matrix.report, matrix.options
    report.count("flows killed", len(known), at_least=len(FLOWS))
    report.count(
        "crash points in these flows", 3 * sum(map(len, known.values())), at_least=LEAST_POINTS[Scale.FULL]
    )
    report.count("distinct points killed at", len(matrix.points), at_least=LEAST_POINTS[options.scale])
    report.count("kills without automatic recovery", len(matrix.points) - matrix.recovered, at_most=0)
    # on a slow machine, lanes poll more often in the listing than in the trials, so trials miss some listed points
    missed = len(jobs) - len(matrix.points)
    report.count("points that the process did not reach", missed, at_most=max(len(jobs) // 100, 2))
    report.count(
        "longest lease of a killed process (clock seconds)",
        matrix.lease_seconds,
        at_most=RECOVERED_WITHIN.total_seconds(),
    )
    report.count("longest delay of the final state by a crash (clock seconds)", matrix.settled_seconds)


def _kill_at_fsyncs(options: Options, report: Report) -> None:
    report.left_out = fsyncs.missing_requirement()
    if report.left_out is not None:
        return
    tried = fsyncs.run(
        FSYNC_KILLS,
        seed=options.seed,
        progress=lambda done: options.progress(done, FSYNC_KILLS, "killing at fsyncs"),
    )
    report.problems += tried.problems
    report.count("kills of PostgreSQL at its n-th fsync", tried.kills, at_least=FSYNC_KILLS)
    report.count("requests acknowledged meanwhile", len(tried.acknowledged), at_least=FSYNC_KILLS)
    report.count("acknowledged requests lost or done twice", len(tried.problems), at_most=0)
