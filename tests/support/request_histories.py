"""Random histories of requests and polls of one invoice, with suspended and dead processes and lost answers (D-171).

Each request stops before its call to the gateway, and some polls stop after their reads. `History` then chooses at
random which of them continues. Every order of the steps of concurrent processes can thus occur. A seed determines the
order.
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
"""What happened to the first charge before the first request: nothing, or it expired, or the gateway forgot it."""
ACTIONS = ("reissue", "reissue", "payment", "payment", "cancel", "cancel", "part_payment")
FAULTS = (
    *(None, None, None, "timeout_before", "timeout_after", "rate_limited", "dies before", "dies after"),
    "does nothing",
)
"""What happens when a request cancels a charge. With "does nothing", the gateway confirms but does not cancel."""
QUEUED = frozenset({"timeout_before", "timeout_after", "rate_limited"})
MAX_RUNNING = 4


@dataclass(slots=True)
class Attempt:
    """A request that began to cancel a charge. `outcome` is what its process learned from the gateway."""

    action: str
    key: str
    charge_id: str
    outcome: str = "suspended"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A stopped request or poll. It continues when `continues` gets a result: one of FAULTS."""

    name: str
    continues: asyncio.Future[str | None]


class History:
    """The requests and polls of one invoice, with their answers. `log` lists all steps, and is shown if a test fails.

    `actions` and `answers` have the action and the newest answer for each Idempotency-Key. An answer is None if the
    process of the request died.
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
        """Stop each request before it cancels a charge.

        Also stop each poll that `_read` begins, after the poll has read the charges.
        """
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
        """Start a request or a poll, and wait until it ends or stops at its call to the gateway."""
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
        """Let the first charge expire, or let the gateway forget it, and poll until the engine knows (see BEGINNINGS).

        Then cancel the charge at the gateway, and begin another poll. For "nothing", do none of these steps.
        """
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
        """Expire all requests and leases, as if half a minute of real time had passed."""
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
        """Let the gateway show all charges again. Let 32 hours pass in five steps, and run the engine after each."""
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
