"""A live account with a Pix key, whose merchant imports bank statements (D-257)."""

from datetime import timedelta
from typing import Any

from fatura.domain.calendar import local_date
from fatura.domain.credentials import Mode
from tests.support.world import Answer, Merchant, World, columns

SETTINGS = {"pixKey": "pix@example.com", "merchantName": "Academia Sol", "merchantCity": "Sao Paulo"}
CPF = "52998224725"
BANK_ID = "E18236120202611281530s0123456789"


class Shop:
    """A live account, and its first connection with a Pix key."""

    def __init__(self, world: World, merchant: Merchant, connection_id: str) -> None:
        self.world = world
        self.merchant = merchant
        self.connection_id = connection_id

    @classmethod
    async def opened(cls, world: World) -> "Shop":
        live = await world.another(Mode.LIVE)
        return cls(world, live, await connect(live))

    async def bill(self, *, connection_id: str | None = None, **customer: str) -> Any:
        """Enroll a customer on a connection, by default the shop's first, and return the issued invoice."""
        subscription = await self.merchant.enroll(
            await self.merchant.plan(),
            customer={"externalRef": "ana", "name": "Ana", "email": "ana@example.com", **customer},
            gatewayConnectionId=connection_id or self.connection_id,
        )
        await self.world.run()
        [invoice] = await self.merchant.invoices(subscription)
        return await self.read(invoice)

    async def read(self, invoice: Any) -> Any:
        return (await self.merchant.get(f"/v1/invoices/{invoice['id']}")).json

    def day(self, *, days_ago: int = 0) -> str:
        return (local_date(self.merchant.deps.clock()) - timedelta(days=days_ago)).isoformat()

    async def send(
        self, *rows: str, connection_id: str | None = None, key: str | None = None, **fields: Any
    ) -> Answer:
        """Send a CSV file whose rows have an amount, an id and a text. A row may begin with a date; default: today."""
        dated = [row if row.count(",") == 3 else f"{self.day()},{row}" for row in rows]
        body = {"format": "csv", "statement": "\n".join(("date,amount,id,description", *dated)), **fields}
        path = f"/v1/integration/gateways/{connection_id or self.connection_id}/statement"
        return await self.merchant.post(path, body, **({} if key is None else {"key": key}))

    async def imported(self, *rows: str, **fields: Any) -> list[tuple[str, ...]]:
        """Import a statement and run all lanes. Return the `result` and the `matchedBy` of each credit."""
        answer = await self.send(*rows, **fields)
        assert answer.status == 200, answer.json
        await self.world.run()
        assert await self.world.broken() == []
        return columns(answer.json["data"], "result", "matchedBy")


async def connect(merchant: Merchant) -> str:
    """Connect a Pix key, and return the id of the connection."""
    body = {"provider": "pix_key", "credentials": {}, "settings": SETTINGS}
    return (await merchant.made("/v1/integration/gateways", body))["connectionId"]


def txid(invoice: Any) -> str:
    return invoice["charges"][-1]["gatewayInvoiceId"]
