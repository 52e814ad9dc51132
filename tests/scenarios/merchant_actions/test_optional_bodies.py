"""A refund and a reissue need no body."""

from tests.support.refund_steps import paid_invoice
from tests.support.reissue_steps import unpaid_invoice
from tests.support.world import World, columns


async def test_a_refund_without_a_body_returns_everything(world: World) -> None:
    """[D-53]"""
    path = f"/v1/invoices/{(await paid_invoice(world))['id']}/refunds"
    answer = await world.post(path, key="a")
    assert (answer.status, answer.json["refundedCents"]) == (200, 9990)
    assert (await world.post(path, {}, key="a")).status == 200


async def test_a_reissue_without_a_body_keeps_the_method_and_is_due_today(world: World) -> None:
    """[D-51]"""
    invoice = await unpaid_invoice(world)
    answer = await world.post(f"/v1/invoices/{invoice['id']}/reissue")
    assert answer.status == 200
    today = (await world.get("/v1/test-clock")).json["now"][:10]
    assert columns(answer.json["charges"], "paymentMethod", "dueDate")[-1] == ("pix", today)
