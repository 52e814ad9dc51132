"""What a flow consists of: requests of a client, lanes run to quiet, and time that passes."""

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
    """A request with a key of its own, which the client repeats until it is answered.

    `path` may name ids that the preparation noted, as `{plan}`; `body` is made of the shop. A route that takes no key
    cannot replay its first answer: then `replays` is false, and `done_by` is the status that says it has happened.
    """

    method: str
    path: str
    body: Callable[[Shop], Json] = lambda _: None
    replays: bool = True
    done_by: int | None = None

    async def __call__(self, shop: Shop) -> Answer:
        """Make the request."""
        path = self.path.format_map(shop.ids)
        answer = await shop.call(self.method, path, self.body(shop), key=f"key-of-{path}")
        if path.endswith("/secret/rotate") and self.is_final(answer):
            shop.share_secret(answer.json["secret"])
        return answer

    def comparable(self, shop: Shop, answer: Answer) -> Json:
        """Return an answer to be compared with another run's: status and body, or that there was one."""
        if self.replays or not self.is_final(answer):
            return [answer.status, outcome.normalized(answer.json, shop)]
        return "answered"

    def is_final(self, answer: Answer) -> bool:
        """Say whether the client need not ask again."""
        return answer.status < 300 or answer.status == self.done_by


@dataclass(frozen=True, slots=True)
class RunLanes:
    """Lanes run until they find no more to do; all of them when none is named."""

    lanes: tuple[str, ...] = ()

    async def __call__(self, shop: Shop) -> None:
        """Run them."""
        await shop.run(*self.lanes)


@dataclass(frozen=True, slots=True)
class Wait:
    """Time that passes on the clock."""

    seconds: float

    async def __call__(self, shop: Shop) -> None:
        """Let it pass."""
        shop.now.move(self.seconds)


@dataclass(frozen=True, slots=True)
class OpenAccount:
    """`fatura account create`, which a person repeats; what the killed one left may be whole or not there at all."""

    async def __call__(self, shop: Shop) -> None:
        """Open it."""
        await accounts.open_account(shop.deps, name="Second", mode=Mode.SANDBOX)


Act = Request | RunLanes | Wait | OpenAccount


class Prepare(Protocol):
    """Prepares a ground; its name is the ground's."""

    __name__: str

    async def __call__(self, shop: Shop) -> None:
        """Leave the account as its flows need it, and nothing on the way."""
        ...


@dataclass(frozen=True, slots=True)
class Flow:
    """One flow: how the ground is prepared, and what is then done by the process that is killed.

    `before` are the lies of the world outside while the ground is prepared, `lies` those of the trial. `days` is how
    long all is followed after the recovery.
    """

    name: str
    prepare: Prepare
    acts: tuple[Act, ...]
    faults: GatewayFaults = HONEST
    before: GatewayFaults = HONEST
    days: int = 1

    @property
    def fixture(self) -> str:
        """Return the name of its ground, which flows that are prepared alike share."""
        name = self.prepare.__name__.replace("_", "-")
        return name if self.before == HONEST else f"{name}-before-{self.name}"

    @property
    def requests(self) -> list[Request]:
        """Return the requests, which the client repeats."""
        return [act for act in self.acts if isinstance(act, Request)]


def run(*lanes: str) -> RunLanes:
    """Return the lanes named, to be run."""
    return RunLanes(lanes)
