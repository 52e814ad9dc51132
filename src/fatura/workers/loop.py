"""Run lanes until stopped. A lane polls for due work after a notification, and otherwise about every second."""

import asyncio
import random
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from uuid import UUID

from fatura import tracing
from fatura.domain.account import Account
from fatura.observability import log
from fatura.tracing import Kind
from fatura.usecases.deps import Deps
from fatura.usecases.lane_polls import STUCK_AFTER_SECONDS
from fatura.usecases.transaction import DatabaseUnavailableError
from fatura.workers.lanes import Lane

POLL_SECONDS = 1
"""Time between two polls for due work when no notification arrives."""
IDLE_PAUSE_SECONDS = 0.05
"""Minimum pause after an empty poll. A notification does not end it: all workers are notified, but few find work."""
MOST_BACK_OFF_SECONDS = 5
"""Maximum pause after a failed poll. The first pause is about one second; each further failure doubles the pause."""
POLL_SHARE = 0.2
"""Maximum share of time that a lane spends on polls, so that long polls do not keep the database busy."""
MOST_PAUSE_SECONDS = 5
"""Maximum pause after a long poll."""


class LaneRunner:
    """Runs one lane: accounts take turns, each with at most `batches_an_account` concurrent batches."""

    def __init__(self, deps: Deps, lane: Lane) -> None:
        self._transactions: asyncio.Semaphore | None = None
        self._unlimited = deps  # a poll for due work must not wait for the lane's own batches
        if lane.transactions_at_once is not None:
            self._transactions = asyncio.Semaphore(lane.transactions_at_once)
            deps = replace(deps, db=deps.db.limited(self._transactions))
        self._deps = deps
        self._lane = lane
        self._running: dict[asyncio.Task[None], UUID] = {}
        self._busy: set[UUID] = set()  # accounts whose most recent batch found work
        # the salt gives each worker its own order of accounts, so two workers rarely serve one account concurrently
        self._salt = secrets.token_bytes(16)
        self._last_place: bytes | None = None
        self._failures = 0
        self._is_stuck = False
        self.notified = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Run batches of due accounts until `stop` is set, then finish the running ones."""
        while not stop.is_set():
            self.notified.clear()
            began = time.monotonic()
            due = await self._find_due()
            if due is None:
                await self._back_off(stop)
                continue
            next_at = began + min((time.monotonic() - began) / POLL_SHARE, MOST_PAUSE_SECONDS)
            await self._pass(self._in_turn(due), stop)
            if not due:
                await asyncio.sleep(IDLE_PAUSE_SECONDS)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), max(next_at - time.monotonic(), 0))
            with suppress(TimeoutError):
                await asyncio.wait_for(self.notified.wait(), POLL_SECONDS)
        await asyncio.gather(*self._running)

    async def _pass(self, due: Sequence[Account], stop: asyncio.Event) -> None:
        """Start a batch for each due account, at most `batches_at_once` concurrently.

        After POLL_SECONDS, return without starting the remaining batches. The lane then polls at once.
        """
        polled_at = time.monotonic()
        for account in due:
            while len(self._running) >= self._lane.batches_at_once:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            if self._transactions is not None:
                async with self._transactions:
                    pass  # wait for a free transaction, so that running batches can record their answers first
            if stop.is_set() or time.monotonic() - polled_at > POLL_SECONDS:
                self.notified.set()
                return
            self._start(account)

    async def _find_due(self) -> Sequence[Account] | None:
        """Return the accounts with due work, or None if the poll fails. Log only the first failure in a row."""
        name, polls = self._lane.name, self._deps.lane_polls
        try:
            due = await self._lane.due(self._unlimited)
        except DatabaseUnavailableError as error:
            if polls.note_failure(name):
                log.warning("lane.database_unavailable", lane=name, error=error)
        except Exception:  # noqa: BLE001 - logged with its traceback; other lanes must continue
            if polls.note_failure(name):
                log.exception("lane.poll_failed", lane=name)
        else:
            self._failures, self._is_stuck = 0, False
            if polls.note_success(name):
                log.info("lane.polls_again", lane=name)
            return due
        return None

    async def _back_off(self, stop: asyncio.Event) -> None:
        """Pause after a failed poll; a notification does not end the pause. Log once that the lane is stuck."""
        if not self._is_stuck and self._lane.name in self._deps.lane_polls.stuck():
            self._is_stuck = True
            log.error("lane.stuck", lane=self._lane.name, seconds=STUCK_AFTER_SECONDS)
        pause = min(2**self._failures, MOST_BACK_OFF_SECONDS) * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load
        self._failures += 1
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause)

    def _in_turn(self, due: Sequence[Account]) -> list[Account]:
        """Return the accounts that may run another batch, starting after the account that got the previous batch.

        A worker keeps the same order of accounts in each pass; other workers have other orders. Each account has one
        turn. If an account's previous batch found work, and `batches_an_account` allows two more batches, the account
        gets a second turn at the end.
        """
        limit, batches = self._lane.batches_an_account, Counter(self._running.values())
        free = [each for each in due if batches[each.account_id] < limit]
        last = self._last_place
        turns = sorted(
            free, key=lambda each: (last is not None and self._place(each) <= last, self._place(each))
        )
        self._busy.intersection_update(each.account_id for each in due)
        again = [
            each for each in turns if each.account_id in self._busy and batches[each.account_id] + 1 < limit
        ]
        return [*turns, *again]

    def _place(self, account: Account) -> bytes:
        # with the built-in hash of a tuple, two workers would have the same order in one of 600 cases
        return blake2b(account.account_id.bytes, key=self._salt, digest_size=8).digest()

    def _start(self, account: Account) -> None:
        self._last_place = self._place(account)
        name = f"{self._lane.name} {account.account_id}"
        task = asyncio.get_running_loop().create_task(self._serve(account), name=name)
        self._running[task] = account.account_id
        task.add_done_callback(self._running.pop)

    async def _serve(self, account: Account) -> None:
        if await run_batch(self._deps, self._lane, account):
            self._busy.add(account.account_id)
            self.notified.set()
        else:
            self._busy.discard(account.account_id)


async def run_batch(deps: Deps, lane: Lane, account: Account) -> int:
    """Run one batch and return what `lane.run` returns. If the batch raises an exception, log it and return 0."""
    account_id = str(account.account_id)
    name = f"lane {lane.name}"
    try:
        with tracing.begin_trace(name, kind=Kind.INTERNAL, fatura__account_id=account_id) as span:
            done = await lane.run(deps, account)
            span.set(fatura__items=done)
            return done
    except Exception:  # noqa: BLE001 - logged with its traceback; the next poll retries
        log.exception("lane.batch_failed", lane=lane.name, account_id=account_id)
        return 0


class Loop:
    def __init__(self, deps: Deps, lanes: Sequence[Lane]) -> None:
        self._runners = {lane.name: LaneRunner(deps, lane) for lane in lanes}

    def notify(self, lane: str) -> None:
        """Make a lane poll now. Unknown names are ignored, because processes of a newer version may send them."""
        if lane in self._runners:
            self._runners[lane].notified.set()

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for name, runner in self._runners.items():
                group.create_task(runner.run(stop), name=f"lane {name}")
            await stop.wait()
            for runner in self._runners.values():
                runner.notified.set()
