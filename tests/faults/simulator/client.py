"""A merchant's API client that repeats each request until it knows whether the request succeeded."""

import json
import random
from collections.abc import Collection
from typing import Any

from tests.faults.simulator.asgi import Answer
from tests.faults.simulator.faults import CLIENT
from tests.faults.simulator.process import ConnectionCutError
from tests.faults.simulator.side import World

TRIES = 60
OUTAGE_LOOKS_SECONDS = 20_000
REPEAT_SECONDS = (1, 4, 20, 60, 300)


class NoAnswerError(Exception):
    """After TRIES attempts, the client still does not know whether a request succeeded."""


class Client:
    """Calls the API of one account. A POST and its repeats have the same Idempotency-Key."""

    def __init__(self, world: World, account_id: str, api_key: str, rng: random.Random) -> None:
        self.world = world
        self.account_id = account_id
        self.api_key = api_key
        self.rng = rng
        self._calls = 0

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        allowed: Collection[int] = (),
        keyed: bool = True,
        key: str | None = None,
    ) -> Answer:
        """Send a request, and repeat it after a lost answer, 429, 503 or `engine.idempotency_in_progress`.

        Raises NoAnswerError if all TRIES attempts end in one of these ways.

        Report a problem if the answer is an error whose status is not in `allowed`. If a POST succeeds twice, both
        responses must have the same bytes (D-14). With `keyed=False`, the responses are not compared. `key` is the
        Idempotency-Key. By default, each call has a new key.
        """
        self._calls += 1
        headers = {"Authorization": f"Bearer {self.api_key}"}
        if method == "POST":
            headers["Idempotency-Key"] = key or f"{self.account_id}-{self._calls}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        raw = b"" if body is None else json.dumps(body).encode()
        first: Answer | None = None
        answer: Answer | None = None
        for _ in range(TRIES):
            while not any(process.host.alive for process in self.world.processes):
                await self.world.schedule.sleep(OUTAGE_LOOKS_SECONDS)
            answer = await self._once(method, path, headers, raw)
            if answer is not None and answer.status < 300 and method == "POST" and keyed:
                if first is not None and first.body != answer.body:
                    self.world.report_problem(f"two answers for one key: {method} {path}")
                first = answer
            lost = answer is not None and self.world.faults.draw(CLIENT) is not None
            if answer is not None and not lost and not _is_to_be_repeated(answer):
                self._judge(f"{method} {path}", answer, allowed)
                return answer
            await self.world.schedule.sleep(self.rng.choice(REPEAT_SECONDS) * (0.5 + self.rng.random()))
        raise NoAnswerError(f"{method} {path}: {answer}")

    async def _once(self, method: str, path: str, headers: dict[str, str], raw: bytes) -> Answer | None:
        process = self.rng.choice(self.world.processes)
        try:
            return await process.call(method, path, headers, raw)
        except ConnectionCutError:
            return None

    def _judge(self, what: str, answer: Answer, allowed: Collection[int]) -> None:
        if answer.status >= 300 and answer.status not in allowed:
            self.world.report_problem(
                f"{what.split('?', maxsplit=1)[0]} answered {answer.status} {answer.body.decode()[:300]}"
            )

    async def get(self, path: str, **options: Any) -> Any:
        return (await self.call("GET", path, **options)).json

    async def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return await self.call("POST", path, body, **options)


def _is_to_be_repeated(answer: Answer) -> bool:
    return answer.status in {429, 503} or answer.type == "engine.idempotency_in_progress"
