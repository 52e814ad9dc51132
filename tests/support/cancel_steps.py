"""A step for scenarios in which canceling an invoice is refused."""

from tests.support.sandbox_steps import read
from tests.support.world import Answer, Json, World

NOT_CANCELABLE = (409, "engine.invoice_not_cancelable")


async def cancel(world: World, invoice: Json, *, key: str = "fresh") -> Answer:
    return await world.post(f"/v1/invoices/{invoice['id']}/cancel", key=key)


async def refused(world: World, invoice: Json) -> str:
    """Cancel an invoice, check that it is refused and unchanged, and return the error's detail."""
    before = await read(world, invoice)
    answer = await cancel(world, invoice)
    assert (answer.status, answer.type) == NOT_CANCELABLE
    assert await read(world, invoice) == before
    return answer.json["detail"]
