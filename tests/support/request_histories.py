"""Random histories of requests and polls of one invoice, with suspended and dead processes and lost answers (D-171).

Requests and polls stop where they wait for the gateway: a request before its call, a poll after its reads. The history
then lets any of them continue. It can thus produce every order in which concurrent processes take their turns. The
same seed produces the same order again.
"""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

import pytest

from fatura.gateways.port import Charge, ChargeState, UnknownOutcomeError
from fatura.usecases.merchant_actions import charge_release
from fatura.usecases.payments import replacement
from fatura.usecases.reconciliation import polling
from tests.support.cancellation_steps import end_requests
from tests.support.changing_charges import ChangingCharges
from tests.support.reissue_steps import ask
from tests.support.sandbox_steps import cancel, end_leases, queue_fault
from tests.support.world import Answer, Json, World

STEPS = (
    *("begin",) * 6 + ("repeat",) * 3 + ("continue",) * 6,
    *("poll", "read", "read", "issue", "issue", "hour", "change", "change", "change"),
)
BEGINNINGS = (*("nothing",) * 6, "expired", "missing")
"""What happened to the first charge before the requests began: it may have expired, or the gateway forgot it."""
ACTIONS = ("reissue", "reissue", "payment", "payment", "cancel", "cancel", "part_payment")
FAULTS = (
    *(None, None, None, "timeout_before", "timeout_after", "rate_limited", "dies before", "dies after"),
    "does nothing",
)
"""What happens to a request at the gateway. If it "does nothing", the gateway confirms without canceling."""
QUEUED = frozenset({"timeout_before", "timeout_after", "rate_limited"})
MAX_RUNNING = 4


@dataclass(slots=True)
class Attempt:
    """A request that reached the gateway. `outcome` is what its process knows of the cancellation at the end."""

    action: str
    key: str
    charge_id: str
    outcome: str = "suspended"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request or a poll that waits for the gateway. The result of `continues` ends the wait, and names the fault."""

    name: str
    continues: asyncio.Future[str | None]


class History:
    """The requests and polls of one invoice, and what became of them. `log` explains a failure.

    `actions` and `answers` have the action and the most recent answer of each Idempotency-Key. The answer is None if
    the process died.
    """

    def __init__(self, world: World, invoice: Json, random: Random, *, connections: tuple[str, str]) -> None:
        self.world, self.invoice, self.random = world, invoice, random
        self.charges = ChangingCharges(world, invoice, connections)
        self.attempts: list[Attempt] = []
        self.actions: dict[str, str] = {}
        self.answers: dict[str, Answer | None] = {}
        self.log: list[str] = []
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._waiting: list[Waiting] = []
        self._current = ""

    async def run(self) -> None:
        with self.charges.shown(), self._stopping():
            await self._begin(self.random.choice(BEGINNINGS))
            for _ in range(self.random.randrange(4, 16)):
                await self._step(self.random.choice(STEPS))
            while self._waiting:
                await self._continue()
            await self._settle()

    @contextmanager
    def _stopping(self) -> Generator[None]:
        """Stop requests before their cancellation of a charge, and polls whose name is "read" after their reads."""
        cancel_charge, ask_gateway = charge_release.cancel, polling.ask

        async def wait_and_cancel(gateway: Any, gateway_id: str, **named: Any) -> Any:
            attempt = Attempt(*self._current.split()[:2], charge_id=gateway_id)
            self.attempts.append(attempt)
            fault = await self._wait()
            attempt.outcome = "dead"
            if fault == "dies before":
                raise asyncio.CancelledError
            if fault in QUEUED:
                await queue_fault(self.world, "cancel_charge", fault)
            answer = await cancel_charge(gateway, gateway_id, **named)
            if fault == "does nothing":
                reopen = (
                    "UPDATE sandbox_charge SET status = 'open' WHERE charge_id = $1 AND status = 'canceled'"
                )
                await self.world.sql(reopen, gateway_id)
            if fault == "dies after":
                raise asyncio.CancelledError
            attempt.outcome = _outcome(attempt.action, answer)
            return answer

        async def read_and_wait(poll: Any) -> Any:
            answered = await ask_gateway(poll)
            is_stopped = self._current.startswith("read") and poll.invoice.invoice_id == UUID(
                self.invoice["id"]
            )
            if is_stopped and (await self._wait() or "").startswith("dies"):
                raise asyncio.CancelledError
            return answered

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(charge_release, "cancel", wait_and_cancel)
            patch.setattr(polling, "ask", read_and_wait)
            yield

    async def _wait(self) -> str | None:
        continues = asyncio.get_running_loop().create_future()
        self._waiting.append(Waiting(self._current, continues))
        return await continues

    async def _start(self, name: str, task: Coroutine[Any, Any, Any]) -> None:
        """Run a request or a poll until it ends or waits for the gateway."""
        self.log.append(name)
        self._current = name
        self._tasks[name] = asyncio.create_task(task)
        await self._until_waiting(name)

    async def _continue(self) -> None:
        chosen = self._waiting.pop(self.random.randrange(len(self._waiting)))
        fault = self.random.choice(FAULTS)
        self.log.append(f"{chosen.name} continues: {fault}")
        self._current = chosen.name
        chosen.continues.set_result(fault)
        await self._until_waiting(chosen.name)

    async def _until_waiting(self, name: str) -> None:
        task = self._tasks[name]
        while not task.done() and name not in {each.name for each in self._waiting}:  # noqa: ASYNC110 - two conditions
            await asyncio.sleep(0.002)
        if not task.done():
            return
        del self._tasks[name]
        if not name.startswith("read"):
            answer: Answer | None = None if task.cancelled() else task.result()
            if answer is not None and "The server is stopping" in answer.json.get("detail", ""):
                answer = None
            self.answers[name.split()[1]] = answer
            shown = "dead" if answer is None else f"{answer.status} {answer.json.get('detail', '')}"
            self.log.append(f"  {name} -> {shown}")

    async def _begin(self, beginning: str) -> None:
        """Let the charge be expired or missing, show it as canceled, and begin a poll."""
        self.log.append(f"beginning: {beginning}")
        if beginning == "nothing":
            return
        if beginning == "expired":
            await self.charges.expire()
            await self._poll()
        else:
            await self.charges.forget_or_show()
            await self._poll()
            await self._pass_minutes(61)
            await self._poll()
            await self.charges.forget_or_show()
        await self.charges.cancel()
        await self._read()

    async def _step(self, step: str) -> None:
        match step:
            case "begin" | "repeat" if len(self._tasks) < MAX_RUNNING:
                await self._request(step)
            case "continue" if self._waiting:
                await self._continue()
            case "poll":
                await self._poll()
            case "read" if not any(name.startswith("read") for name in self._tasks):
                await self._read()
            case "issue":
                self.log.append("issue")
                await self._work("issuance")
            case "hour":
                await self._pass_minutes(61)
            case "change":
                self.log.append(f"at the gateway: {await self.charges.change(self.random)}")
            case _:
                pass

    async def _request(self, step: str) -> None:
        """Send a new request, or repeat one that was refused or whose process died."""
        unfinished = [key for key, each in self.answers.items() if each is None or each.status != 200]
        if step == "begin":
            action = self.random.choice(ACTIONS)
            key = f"{action}-{len(self.actions)}-{self.invoice['id']}"
            self.actions[key] = action
        elif unfinished:
            key = self.random.choice(unfinished)
        else:
            return
        if step == "repeat" or self.random.random() < 0.7:
            await self._half_a_minute()
        await self._start(f"{self.actions[key]} {key} {len(self.log)}", self._send(self.actions[key], key))

    async def _send(self, action: str, key: str) -> Answer:
        path, payment = f"/v1/invoices/{self.invoice['id']}/payments", {"method": "cash", "reference": key}
        match action:
            case "reissue":
                return await ask(self.world, self.invoice, key=key)
            case "payment":
                return await self.world.post(path, payment, key=key)
            case "part_payment":
                return await self.world.post(path, {**payment, "amountCents": 1000}, key=key)
            case _:
                return await cancel(self.world, self.invoice, key=key)

    async def _half_a_minute(self) -> None:
        """Let half a minute of real time pass, so that requests and leases end."""
        self.log.append("half a minute")
        await end_requests(self.world)
        await end_leases(self.world)

    async def _make_due(self) -> None:
        due = "UPDATE invoice SET next_attempt_at = created_at WHERE status <> 'ready' AND invoice_id = $1"
        await self.world.sql(due, UUID(self.invoice["id"]))

    async def _poll(self) -> None:
        self.log.append("poll")
        await self._make_due()
        await self._work("reconciliation")

    async def _work(self, *lanes: str) -> None:
        self._current = "work"
        await self.world.run(*lanes)

    async def _read(self) -> None:
        await self._make_due()
        await self._start(f"read {len(self.log)}", self.world.run("reconciliation"))

    async def _pass_minutes(self, minutes: int) -> None:
        self.log.append(f"{minutes} minutes")
        passed = "UPDATE account SET clock_offset = clock_offset + $1 * interval '1 minute'"
        await self.world.sql(passed, minutes)

    async def _settle(self) -> None:
        """Let the engine do all that it has planned for the next day."""
        await self._half_a_minute()
        if self.charges.is_forgotten:
            await self.charges.forget_or_show()
        for minutes in (1, 11, 60, 6 * 60, 25 * 60):
            await self._pass_minutes(minutes)
            await self._work()


def _outcome(action: str, answer: object) -> str:
    if isinstance(answer, UnknownOutcomeError | TimeoutError):
        return "lost"
    accepted = {ChargeState.CANCELED} if action == "cancel" else replacement.RELEASED
    return "released" if isinstance(answer, Charge) and answer.state in accepted else "refused"
