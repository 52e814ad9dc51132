"""A client that reads the account's event stream while two operations write to it (D-38)."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from fatura.store.db import Tx
from fatura.store.webhooks import events
from tests.faults.orders.stepping import Step

_PAGE = 200


@dataclass(slots=True)
class Follower:
    """A polling client. After every commit, it reads the events after its cursor."""

    connection: Any
    account_id: UUID
    since: int
    """The number of the last event of the fixture."""
    cursor: int = field(init=False)
    read: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self.cursor = self.since

    async def after_step(self, step: Step) -> None:
        if step.label.startswith("COMMIT"):
            await self.read_on()

    async def read_on(self) -> None:
        while found := await events.after(self._tx, self.cursor, limit=_PAGE):
            self.read += [each.sequence for each in found]
            self.cursor = found[-1].sequence

    async def missed_events(self) -> list[str]:
        """Read the remaining events. Return a message for each event that the client never received."""
        await self.read_on()
        there = await events.after(self._tx, self.since, limit=_PAGE)
        return [
            f"a reader of the stream missed {each.type}, number {each.sequence}: {self.read}"
            for each in there
            if each.sequence not in self.read
        ]

    @property
    def _tx(self) -> Tx:
        return Tx(self.connection, self.account_id)
