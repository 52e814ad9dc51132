"""Execute the fault runs (`make faults`), each in its own process, and print one table of their results.

`python -m tests.faults [NAME ...] [--seed N] [--short]` executes the named runs, or all runs. The exit code is 1 if a
run fails.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from fatura.observability import configure_logs
from tests.faults import breaks
from tests.faults.report import Figure, Options, Report, Scale
from tests.faults.runs import RUNS, Run

EXIT_INTERRUPTED = 130
AT_ONCE = 2
"""Maximum number of concurrent runs, not counting runs with `waits` (see `runs.Run`).

Each counted run is bound to its own cores. If the runs shared all cores instead, each run would take a fifth longer.
"""


def main() -> int:
    listed = "\n".join(f"  {run.name:13} {run.description}" for run in RUNS)
    parser = argparse.ArgumentParser(
        prog="make faults",
        description=__doc__,
        epilog=f"runs:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="the runs to start; all if none is named")
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="seed of all random choices; a run with the same seed is repeatable",
    )
    parser.add_argument("--short", action="store_true", help="the size that `make test-faults` runs")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, action="append", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {run.name for run in RUNS}
    if unknown:
        parser.error(f"no run is called {', '.join(sorted(unknown))}")
    chosen = [run for run in RUNS if not arguments.names or run.name in arguments.names]
    scale = Scale.SHORT if arguments.short else Scale.FULL
    if arguments.child:
        if arguments.core:
            os.sched_setaffinity(0, arguments.core)
        return _run_here(chosen[0], seed=arguments.seed, scale=scale)
    return asyncio.run(_run_all(chosen, seed=arguments.seed, scale=scale))


def _run_here(run: Run, *, seed: int, scale: Scale) -> int:
    def progress(done: int, total: int, doing: str) -> None:
        print(json.dumps({"done": done, "total": total, "doing": doing}), flush=True)  # noqa: T201 - the parent reads it

    configure_logs(level="error")
    breaks.apply()
    report = run.load()(Options(seed, scale, progress))
    print(json.dumps({"report": asdict(report)}), flush=True)  # noqa: T201 - as above
    return 0


async def _run_all(chosen: Sequence[Run], *, seed: int, scale: Scale) -> int:
    began = time.monotonic()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    slots: asyncio.Queue[Sequence[int]] = asyncio.Queue()
    for share in _shares_of_cores():
        slots.put_nowait(share)
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:

        async def one(run: Run) -> tuple[Report, float]:
            async with _turn(run, slots) as cores:
                report, seconds = await _run_apart(run, progress, seed=seed, scale=scale, cores=cores)
            result = f"{len(report.failures)} found" if report.failures else report.left_out or "passed"
            for line in (f"{run.name}: {result}, {seconds:.0f} s", *report.failures):
                progress.console.print(line, soft_wrap=True, markup=False)
            return report, seconds

        concurrent = [run for run in chosen if not run.alone]
        reports = dict(zip(concurrent, await asyncio.gather(*map(one, concurrent)), strict=True))
        reports |= {run: await one(run) for run in chosen if run.alone}
    Console().print(_table({run: reports[run] for run in chosen}))
    found = sum(len(reports[run][0].failures) for run in chosen)
    minutes, seconds = divmod(int(time.monotonic() - began), 60)
    Console().print(f"seed {seed}, {minutes}:{seconds:02} in total, {found} found")
    return 1 if found else 0


def _shares_of_cores() -> Sequence[Sequence[int]]:
    """Return one share of the cores for each concurrent run.

    The shares are empty on systems that cannot bind a process to cores.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    return [cores[slot::AT_ONCE] for slot in range(AT_ONCE)]


@asynccontextmanager
async def _turn(run: Run, slots: asyncio.Queue[Sequence[int]]) -> AsyncGenerator[Sequence[int]]:
    """Reserve cores for a run during the block, and yield the numbers of these cores.

    For a run that is `alone` or `waits` (see `runs.Run`), reserve no cores and yield no numbers: the run may use all
    cores.
    """
    if run.alone or run.waits:
        yield ()
        return
    cores = await slots.get()
    try:
        yield cores
    finally:
        slots.put_nowait(cores)


async def _run_apart(
    run: Run, progress: Progress, *, seed: int, scale: Scale, cores: Sequence[int]
) -> tuple[Report, float]:
    """Execute a run in a child process. The run fails if the process fails or exits without a report."""
    began = time.monotonic()
    task = progress.add_task(run.name, total=None)
    words = [run.name, "--child", "--seed", str(seed), *(["--short"] if scale is Scale.SHORT else [])]
    words += [word for core in cores for word in ("--core", str(core))]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults", *words, stdout=asyncio.subprocess.PIPE, limit=1 << 24
    )
    report = await _follow(process, run, progress, task)
    if await process.wait() or report is None:
        report = Report(run.name, seed, problems=[f"the run ended with exit code {process.returncode}"])
    progress.update(task, description=f"{run.name}: {'passed' if not report.failures else 'FAILED'}")
    progress.stop_task(task)
    return report, time.monotonic() - began


async def _follow(
    process: asyncio.subprocess.Process, run: Run, progress: Progress, task: TaskID
) -> Report | None:
    assert process.stdout is not None
    report: Report | None = None
    async for raw in process.stdout:
        try:
            line = json.loads(raw)
        except ValueError:
            sys.stderr.buffer.write(raw)
            continue
        if "report" in line:
            report = msgspec.convert(line["report"], Report)
        else:
            progress.update(
                task, completed=line["done"], total=line["total"], description=f"{run.name}: {line['doing']}"
            )
    return report


def _table(reports: dict[Run, tuple[Report, float]]) -> Table:
    table = Table("run", "figure", "value", "bounds", "result", title="Fault runs")
    for run, (report, seconds) in reports.items():
        name = f"{run.name}\n[dim]{seconds:.0f} s[/]"
        for figure in report.figures:
            table.add_row(
                name,
                figure.what,
                f"{figure.value:,.2f}".rstrip("0").rstrip("."),
                _bounds(figure),
                "passed" if figure.holds else "[red]FAILED[/]",
            )
            name = ""
        if report.left_out:
            table.add_row(name, f"[yellow]skipped: {report.left_out}[/]", "", "", "")
        for problem in report.problems[:5]:
            table.add_row("", f"[red]{problem}[/]", "", "", "[red]FAILED[/]")
        table.add_section()
    return table


def _bounds(figure: Figure) -> str:
    if figure.at_least is not None and figure.at_least == figure.at_most:
        return f"{figure.at_least:,g}"
    least = f"≥ {figure.at_least:,g}" if figure.at_least is not None else ""
    most = f"≤ {figure.at_most:,g}" if figure.at_most is not None else ""
    return f"{least} {most}".strip()


if __name__ == "__main__":
    os.environ.setdefault("FATURA_LOG_LEVEL", "error")
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # the terminal sends Ctrl-C to each run's process, too
        sys.exit(EXIT_INTERRUPTED)
