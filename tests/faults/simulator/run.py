"""Run the whole engine in many simulations, which are called worlds.

A world's seed determines its clock, the order of its tasks, its random numbers, and the behaviour of external services.

`python -m tests.faults simulator --seed N` runs only the world with seed N if N is 1,000 or more. With a smaller N, the
command runs many worlds, whose seeds begin at N times 1,000. `--short` runs fewer and smaller worlds.
"""

import asyncio
import gc
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from itertools import cycle

from tests.faults import breaks, place
from tests.faults.report import Options, Report, Scale
from tests.faults.simulator.faults import KINDS
from tests.faults.simulator.machines import WorldLoop
from tests.faults.simulator.world import Outcome, run_in_database

FIRST_OF_SEED = 1000
SERVER = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "track_activities": "off",
    "track_counts": "off",
    "update_process_title": "off",
    "deadlock_timeout": "1h",  # PostgreSQL never checks, because the schedule ends deadlocks itself
}


def run(options: Options) -> Report:
    """Run many worlds.

    Run the first world twice, and check that both executions have the same steps in the same order.
    """
    seeds = _seeds(options)
    report = Report("simulator", options.seed)
    outcomes = list(_outcomes(seeds, options))
    first, again = (each for each in sorted(outcomes, key=_by_seed) if each.seed == seeds[0])
    worlds = [each for each in outcomes if each is not again]
    if first.digest != again.digest:
        report.problems.append(f"world {first.seed} had two traces: {first.steps} steps, then {again.steps}")
    short = " --short" if options.scale is Scale.SHORT else ""
    for world in sorted(worlds, key=_by_seed):
        repeat = f"python -m tests.faults simulator --seed {world.seed}{short}"
        report.problems += [f"world {world.seed}: {each} ({repeat})" for each in world.problems]
    _count(report, worlds, options, alone=len(seeds) == 1)
    return report


def _by_seed(outcome: Outcome) -> int:
    return outcome.seed


def _seeds(options: Options) -> Sequence[int]:
    if options.seed >= FIRST_OF_SEED:
        return [options.seed]
    first = options.seed * FIRST_OF_SEED
    return range(first, first + options.pick(short=5, full=300))


def _count(report: Report, worlds: Sequence[Outcome], options: Options, *, alone: bool) -> None:
    full = options.scale is Scale.FULL and not alone
    faults = sum((each.faults for each in worlds), Counter[str]())
    invoice_count = sum(each.invoice_count for each in worlds)
    report.count("worlds", len(worlds), at_least=300 if full else None)
    report.count("virtual days, each checked", sum(each.days for each in worlds))
    report.count("invoices", invoice_count, at_least=30_000 if full else None)
    report.count("faults", faults.total(), at_least=100_000 if full else None)
    report.count("kinds of faults injected", len(faults), at_least=len(KINDS) if full else None)
    for what, many in sorted(sum((each.money for each in worlds), Counter[str]()).items()):
        report.count(what, many, at_least=100 if full else None)
    report.count("steps", sum(each.steps for each in worlds))
    report.count("worlds with problems", sum(bool(each.problems) for each in worlds), at_most=0)


def _outcomes(seeds: Sequence[int], options: Options) -> Iterator[Outcome]:
    """Run all worlds, and the first world again in another process.

    Concurrent worlds have separate servers. Other transactions on a server would affect when PostgreSQL prunes pages,
    and therefore the order of rows without ORDER BY.
    """
    os.environ["PYTHONHASHSEED"] = "0"  # child processes inherit it; it determines the order of sets
    context = multiprocessing.get_context("spawn")
    small = options.scale is Scale.SHORT
    with ExitStack() as open_ones:
        at_once = min(len(seeds) // 2 + 1, place.process_count())
        urls = [open_ones.enter_context(place.server(SERVER)) for _ in range(at_once)]
        pools = [open_ones.enter_context(ProcessPoolExecutor(1, mp_context=context)) for _ in urls]
        places = cycle(zip(pools, urls, strict=True))
        chosen = zip(places, (seeds[0], *seeds), strict=False)
        running = [pool.submit(run_world, url, seed, small=small) for (pool, url), seed in chosen]
        for number, done in enumerate(as_completed(running), start=1):
            options.progress(number, len(running), "simulating")
            yield done.result()


def run_world(server_url: str, seed: int, *, small: bool = False) -> Outcome:
    breaks.apply()
    gc.collect()
    gc.disable()  # with automatic collection, finalizers would run at random times

    async def on_a_database() -> Outcome:
        async with place.database(server_url) as url:
            return await run_in_database(url, seed, small=small)

    with asyncio.Runner(loop_factory=WorldLoop) as runner:
        return runner.run(on_a_database())


def _print_outcome(outcome: Outcome) -> None:
    met = dict(outcome.faults.most_common())
    head = f"{outcome.seed} {outcome.digest}: {outcome.invoice_count} invoices, {outcome.steps} steps"
    print(*outcome.tail, head, met, *outcome.problems, sep="\n")  # noqa: T201 - command line output


if __name__ == "__main__":
    with place.server(SERVER) as server_url:
        for text in sys.argv[1:]:
            _print_outcome(run_world(server_url, int(text)))
