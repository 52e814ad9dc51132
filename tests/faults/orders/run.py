"""Run two operations on the same rows in many interleavings, one statement at a time.

A schedule determines the interleaving of one trial (see `schedules`). Afterwards, the responses and rows must equal the
outcome of one of the two serial orders, or a named outcome (see `named_outcomes`).

`python -m tests.faults.orders.run "generation | cancel" "a3 b a"` repeats one schedule of a pair and prints the result.
"""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context

import structlog.testing

from tests.conftest import FAST
from tests.faults import breaks, place
from tests.faults.orders.operations import Act
from tests.faults.orders.outcome import Outcome, outcome_of
from tests.faults.orders.pairs import PAIRS, Pair
from tests.faults.orders.schedules import SERIAL, Schedule, chosen, of_trace
from tests.faults.orders.setup import Fixture, MakeFixture, Setup, open_setup
from tests.faults.orders.stepping import LOCK_SETTINGS, Step
from tests.faults.orders.stream import Follower
from tests.faults.report import Options, Report, Scale
from tests.support.world import Json

TRIES_FOR_ONE = 20
"""Maximum number of random draws per executed schedule. Many draws repeat a schedule that was already executed."""


@dataclass(frozen=True, slots=True)
class Trial:
    outcome: Outcome
    trace: Sequence[Step]
    wrong: tuple[str, ...]
    """Violated invariants, 5xx responses, exceptions, logged errors, and events that a polling client missed."""

    @property
    def schedule(self) -> Schedule:
        """Return the schedule that was executed. It differs from the given schedule if an operation was blocked."""
        return of_trace([step.thread for step in self.trace])

    def steps_of(self, side: str) -> int:
        return sum(step.thread[0] == side for step in self.trace)


async def try_order(
    setup: Setup, pair: Pair, fixture: Fixture, schedule: Schedule, *, sides: str = "ab"
) -> Trial:
    """Run one trial: restore the fixture, and run one or both operations in the order of a schedule.

    Afterwards, run the lanes that the operations name.
    """
    await setup.reset(fixture)
    acts = {"a": pair.a.act, "b": pair.b.act}
    follower = Follower(setup.root, fixture.merchant.account_id, since=fixture.last_event)
    with structlog.testing.capture_logs() as logs:
        tasks = {side: _start(setup, fixture, side, act=acts[side]) for side in sides}
        trace = tuple(await setup.stepper.run(schedule.chooser(), after=follower.after_step))
        ended = await asyncio.gather(*tasks.values(), return_exceptions=True)
        for lane in dict.fromkeys(filter(None, (pair.a.lane, pair.b.lane))):
            await setup.run_lane(fixture, lane)
    answers: dict[str, Json] = {
        side: {"raised": repr(answer)} if isinstance(answer, BaseException) else answer
        for side, answer in zip(tasks, ended, strict=True)
    }
    account_id = fixture.merchant.account_id
    wrong = [f"{side} raised {answer['raised']}" for side, answer in answers.items() if "raised" in answer]
    wrong += [
        f"{side} answered {answer}" for side, answer in answers.items() if answer.get("status", 0) >= 500
    ]
    wrong += [f"logged {each}" for each in logs if each["log_level"] in {"error", "critical"}]
    wrong += await follower.missed_events()
    wrong += [f"`fatura check` finds {name}" for name in await setup.violated(account_id)]
    outcome = outcome_of(answers, await setup.rows(account_id), saved=fixture.saved, base=setup.clock.base)
    return Trial(outcome, trace, tuple(wrong))


def _start(setup: Setup, fixture: Fixture, side: str, *, act: Act) -> "asyncio.Task[Json]":
    return setup.stepper.act(side, lambda: act(setup.merchant(side, fixture), fixture))


@dataclass(slots=True)
class Tally:
    schedules: int = 0
    waits: int = 0
    named_outcomes: Counter[str] = field(default_factory=Counter[str])
    """The number of schedules with a named outcome, by pair and reason."""
    problems: list[str] = field(default_factory=list[str])

    def add(self, pair: Pair, trial: Trial, references: Mapping[str, Outcome]) -> None:
        """Count one trial. Add to `problems` what went wrong, and any outcome that is not serial and has no name."""
        self.schedules += 1
        self.waits += any(step.waited for step in trial.trace)
        self.problems += [_described(pair, trial, each) for each in trial.wrong]
        serial = [references[str(order)] for order in SERIAL]
        if trial.outcome in serial:
            return
        met = (each for each in pair.named_outcomes if each.is_met(trial.outcome, references))
        if (named := next(met, None)) is not None:
            self.named_outcomes[f"{pair.name}: {named.reason}"] += 1
        else:
            nearest = min((trial.outcome.difference(each) for each in serial), key=len)
            self.problems.append(_described(pair, trial, f"an outcome that no serial order has:\n{nearest}"))


async def try_pair(
    setup: Setup, pair: Pair, fixture: Fixture, tally: Tally, *, rng: random.Random, share: int
) -> None:
    """Run trials of a pair: first both serial orders, then other schedules, at most `share` in total."""
    serial = [await try_order(setup, pair, fixture, schedule) for schedule in SERIAL]
    references = await _references(setup, pair, fixture, serial)
    for trial in serial:
        tally.add(pair, trial, references)
    steps = {side: trial.steps_of(side) for side, trial in zip("ab", serial, strict=True)}
    done, tried = len(serial), {str(trial.schedule) for trial in serial}
    for schedule in islice(chosen(steps, rng, share=share), TRIES_FOR_ONE * share):
        if done == share:
            return
        if str(schedule) not in tried:
            trial = await try_order(setup, pair, fixture, schedule)
            tried |= {str(schedule), str(trial.schedule)}
            done += 1
            tally.add(pair, trial, references)


async def _references(
    setup: Setup, pair: Pair, fixture: Fixture, serial: Sequence[Trial]
) -> dict[str, Outcome]:
    """Return the outcomes of both serial orders, and of one operation alone if a named outcome refers to it."""
    references = {str(order): trial.outcome for order, trial in zip(SERIAL, serial, strict=True)}
    for side in {each for named in pair.named_outcomes for each in named.references} - set(references):
        references[side] = (await try_order(setup, pair, fixture, SERIAL[0], sides=side)).outcome
    return references


def _described(pair: Pair, trial: Trial, what: str) -> str:
    again = f'python -m tests.faults.orders.run "{pair.name}" "{trial.schedule}"'
    return f"{pair.name}, {trial.schedule}: {what}\n({again})"


async def _try_all(server_url: str, options: Options, pairs: Sequence[Pair]) -> Tally:
    breaks.apply()
    tally, fixtures = Tally(), dict[MakeFixture, Fixture]()
    async with place.database(server_url) as url, open_setup(url) as setup:
        for number, pair in enumerate(pairs):
            options.progress(number, len(pairs), pair.name)
            if pair.fixture not in fixtures:
                fixtures[pair.fixture] = await setup.make(pair.fixture)
            rng = random.Random(f"{options.seed} {pair.name}")  # noqa: S311 - trials are repeatable by seed
            share = options.pick(short=5 * pair.weight, full=62)
            await try_pair(setup, pair, fixtures[pair.fixture], tally, rng=rng, share=share)
    return tally


def _try_half(server_url: str, seed: int, half: int) -> Tally:
    """Try half of the pairs at full scale: those with even numbers (`half` 0) or those with odd numbers (`half` 1)."""
    return asyncio.run(_try_all(server_url, Options(seed, Scale.FULL), PAIRS[half::2]))


def _try_halves(server_url: str, options: Options) -> list[Tally]:
    """Try both halves concurrently, because each process often waits for PostgreSQL."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        halves = [processes.submit(_try_half, server_url, options.seed, half) for half in (0, 1)]
        tallies: list[Tally] = []
        for half in halves:
            options.progress(len(tallies), len(halves), "pairs, in two halves")
            tallies.append(half.result())
    return tallies


def run(options: Options) -> Report:
    report = Report("orders", options.seed)
    with place.server({**FAST, **LOCK_SETTINGS}) as server_url:
        if options.scale is Scale.FULL:
            tallies = _try_halves(server_url, options)
        else:
            tallies = [asyncio.run(_try_all(server_url, options, PAIRS))]
    report.problems = [problem for tally in tallies for problem in tally.problems]
    report.count("pairs of operations", len(PAIRS), at_least=25)
    report.count(
        "schedules", sum(tally.schedules for tally in tallies), at_least=options.pick(short=300, full=4000)
    )
    report.count("schedules with a lock wait", sum(tally.waits for tally in tallies), at_least=1)
    for reason, count in sorted(sum((tally.named_outcomes for tally in tallies), Counter[str]()).items()):
        report.count(f"schedules with the named outcome of {reason}", count)
    return report


async def repeat(server_url: str, name: str, schedule: Schedule) -> bool:
    """Run one schedule of each pair with the given name. Print each trace and outcome.

    Pairs with the same name have different fixtures. Return whether all outcomes are correct.
    """
    tally = Tally()
    async with place.database(server_url) as url, open_setup(url) as setup:
        for pair in [each for each in PAIRS if each.name == name]:
            fixture = await setup.make(pair.fixture)
            serial = [await try_order(setup, pair, fixture, each) for each in SERIAL]
            references = await _references(setup, pair, fixture, serial)
            trial = await try_order(setup, pair, fixture, schedule)
            tally.add(pair, trial, references)
            texts = (*trial.trace, *trial.outcome.answers.items(), *trial.outcome.rows)
            sys.stdout.writelines(f"{each}\n" for each in texts)
    sys.stdout.writelines(f"{each}\n" for each in tally.problems)
    return not tally.problems


def main() -> int:
    """Repeat the schedule given on the command line. Return 1 if its outcome is wrong."""
    with place.server({**FAST, **LOCK_SETTINGS}) as server_url:
        return 0 if asyncio.run(repeat(server_url, sys.argv[1], Schedule.read(sys.argv[2]))) else 1


if __name__ == "__main__":
    sys.exit(main())
