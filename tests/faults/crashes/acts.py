"""The steps of a flow: client requests, lane runs and time that passes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fatura.domain.credentials import Mode
from fatura.usecases.accounts import accounts
from tests.faults.crashes import outcome
from tests.faults.crashes.place import Shop
from tests.faults.gateway.faults import GatewayFaults
from tests.support.world import Answer, Json

HONEST = GatewayFaults()


@dataclass(frozen=True, slots=True)
class Request:
    """A request with its own Idempotency-Key. After a kill, its client repeats it until it is answered.

    `path` may contain ids from the preparation, such as `{plan}`. `body` is computed from the shop. If a route takes no
    Idempotency-Key, `replays` is false, and `done_by` is the status of a repeat whose effect already exists.
    """

    method: str
    path: str
    body: Callable[[Shop], Json] = lambda _: None
    replays: bool = True
    done_by: int | None = None

    async def __call__(self, shop: Shop) -> Answer:
        path = self.path.format_map(shop.ids)
        answer = await shop.call(self.method, path, self.body(shop), key=f"key-of-{path}")
        if path.endswith("/secret/rotate") and self.is_final(answer):
            shop.share_secret(answer.json["secret"])
        return answer

    def comparable(self, shop: Shop, answer: Answer) -> Json:
        """Return the part of a response that must be equal in every run."""
        if self.replays or not self.is_final(answer):
            return [answer.status, outcome.normalized(answer.json, shop)]
        return "answered"

    def is_final(self, answer: Answer) -> bool:
        return answer.status < 300 or answer.status == self.done_by


@dataclass(frozen=True, slots=True)
class RunLanes:
    """Runs the named lanes, or all, until nothing is due."""

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
    """The command `fatura account create`. A kill leaves the account complete or absent, and a person repeats it."""

    async def __call__(self, shop: Shop) -> None:
        await accounts.open_account(shop.deps, name="Second", mode=Mode.SANDBOX)


Act = Request | RunLanes | Wait | OpenAccount


class Prepare(Protocol):
    """A function that prepares the fixture of the same name."""

    __name__: str

    async def __call__(self, shop: Shop) -> None: ...


@dataclass(frozen=True, slots=True)
class Flow:
    """A fixture, and the steps during which the process is killed.

    `before` contains the faults of external services during the preparation, and `faults` those during the trial. The
    recovering process runs until `days` days after the kill.
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
