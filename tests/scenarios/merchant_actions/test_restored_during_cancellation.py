"""After a restore, an account is frozen while a gateway cancels a charge for a merchant's request (D-123)."""

import pytest

from tests.support.cancellation_steps import around_the_cancellation
from tests.support.expect import problem
from tests.support.sandbox_steps import charges, issued_invoice, read
from tests.support.world import Answer, Json, World


async def send(world: World, invoice: Json, deed: str) -> Answer:
    body = {"method": "cash"} if deed == "payments" else {}
    return await world.post(f"/v1/invoices/{invoice['id']}/{deed}", body, key="once")


@pytest.mark.parametrize(
    ("deed", "status"), [("cancel", "canceled"), ("reissue", "ready"), ("payments", "paid")]
)
async def test_the_key_stays_bound_to_the_request(world: World, deed: str, status: str) -> None:
    """The gateway has canceled the charge. Only a repeat of the request can use the key. [D-14, D-123]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice, other = await issued_invoice(world), await issued_invoice(world)

    async def freeze() -> None:
        await world.sql("UPDATE account SET recovering_since = now()")

    with around_the_cancellation(after=freeze):
        refused = await send(world, invoice, deed)
    assert problem(refused)[:2] == (503, "engine.account_recovering")
    await world.sql("UPDATE account SET recovering_since = NULL")

    assert problem(await send(world, other, deed))[:2] == (422, "engine.idempotency_key_reused")
    assert [each["status"] for each in await charges(world, other)] == ["open"]

    repeat = await send(world, invoice, deed)
    assert (repeat.status, repeat.json["status"]) == (200, status), repeat.body
    assert (await send(world, invoice, deed)).body == repeat.body
    assert (await read(world, other))["status"] == "issued"
    assert await world.broken() == []
