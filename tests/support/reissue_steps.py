"""Steps of the reissue scenarios."""

from tests.support.sandbox_steps import charges, issued_invoice, read
from tests.support.world import Answer, Json, World


async def ask(world: World, invoice: Json, *, key: str = "fresh", **body: Json) -> Answer:
    return await world.post(f"/v1/invoices/{invoice['id']}/reissue", body, key=key)


async def refused(world: World, invoice: Json, **body: Json) -> str:
    """Try to reissue. Check that the API refuses and nothing changes. Return the error's detail."""
    before, events = await read(world, invoice), len(await world.events())
    answer = await ask(world, invoice, **body)
    assert (answer.status, answer.type) == (409, "engine.invoice_not_reissuable")
    assert await read(world, invoice) == before
    assert len(await world.events()) == events
    return answer.json["detail"]


async def unpaid_invoice(world: World, **terms: Json) -> Json:
    await world.set_up_gateway(behaviour="never_pay")
    return await issued_invoice(world, **terms)


async def payable(world: World) -> list[Json]:
    return [each for each in await charges(world) if each["status"] in {"open", "refused", "paid"}]
