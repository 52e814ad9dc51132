"""The steps of a flow. A step sends a request, runs lanes, lets time pass, or creates an account."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fatura.domain.credentials import Mode
from fatura.usecases.accounts import accounts
from tests.faults.crashes import outcome
from tests.faults.crashes.place import Shop
from tests.faults.gateway.faults import GatewayFaults
from tests.support.operator import OPERATOR
from tests.support.world import Answer, Json

HONEST = GatewayFaults()


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request. After a kill, the client repeats the request with the same Idempotency-Key.

    `path` may contain the names of ids that the fixture created, such as `{plan}`. `body` computes the JSON body.
    `replays` is true if a repeat gets the answer of the first request. `replays` is false if the engine ignores the
    Idempotency-Key on this route (D-14), or if the answer shows the progress of the work. `done_by` and
    `pending` are HTTP statuses. If the request took effect before the kill, a repeat may get `done_by`. While the
    client gets `pending`, it repeats the request.
    """

    method: str
    path: str
    body: Callable[[Shop], Json] = lambda _: None
    replays: bool = True
    done_by: int | None = None
    pending: int | None = None

    async def __call__(self, shop: Shop) -> Answer:
        path = self.path.format_map(shop.ids)
        answer = await shop.call(self.method, path, self.body(shop), key=f"key-of-{path}")
        if path.endswith("/secret/rotate") and self.is_final(answer):
            shop.share_secret(answer.json["secret"])
        return answer

    def comparable(self, shop: Shop, answer: Answer) -> Json:
        """Return the part of a response that a kill must not change."""
        if self.replays or not self.is_final(answer):
            return [answer.status, outcome.normalized(answer.json, shop)]
        return "answered"

    def is_final(self, answer: Answer) -> bool:
        is_success = answer.status < 300 and answer.status != self.pending
        return is_success or answer.status == self.done_by


@dataclass(frozen=True, slots=True)
class RunLanes:
    """Runs the named lanes, or all lanes if none is named, until no work is due."""

    lanes: tuple[str, ...] = ()

    async def __call__(self, shop: Shop) -> None:
        await shop.run(*self.lanes)


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float

    async def __call__(self, shop: Shop) -> None:
        shop.now.move(self.seconds)


@dataclass(frozen=True, slots=True)
class OpenAccount:
    """Does the same as `fatura account create`.

    After a kill, the account must exist completely or not at all. The recovery executes this step again, as a person
    would repeat the command.
    """

    async def __call__(self, shop: Shop) -> None:
        await accounts.open_account(shop.deps, name="Second", mode=Mode.SANDBOX, opened_by=OPERATOR)


Act = Request | RunLanes | Wait | OpenAccount


class Prepare(Protocol):
    """A function that creates a fixture: the account in which a flow starts. The function's name names the fixture."""

    __name__: str

    async def __call__(self, shop: Shop) -> None: ...


@dataclass(frozen=True, slots=True)
class Flow:
    """One operation of the engine: the fixture in which it starts, and its steps `acts`.

    A trial kills the process during one step. Afterwards another process runs the lanes until `days` days after the
    kill. The test gateway and merchants have the faults `before` while the fixture is created, and `faults` afterwards.
    """

    name: str
    prepare: Prepare
    acts: tuple[Act, ...]
    faults: GatewayFaults = HONEST
    before: GatewayFaults = HONEST
    days: int = 1

    @property
    def fixture(self) -> str:
        name = self.prepare.__name__.replace("_", "-")
        return name if self.before == HONEST else f"{name}-before-{self.name}"

    @property
    def requests(self) -> list[Request]:
        return [act for act in self.acts if isinstance(act, Request)]


def run(*lanes: str) -> RunLanes:
    return RunLanes(lanes)
