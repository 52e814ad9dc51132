"""The engine treats a search that shows only stored charges of other attempts like an empty search (D-181)."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from tests.scenarios.reconciliation.test_scheduled_looks import looked_at, notify
from tests.support.reissue_steps import ask
from tests.support.sandbox_steps import charges, end_leases, issued_invoice, pass_time, queue_fault, read
from tests.support.sweep_steps import NO_SWEEP, double_silently
from tests.support.webhook_steps import SECRET
from tests.support.world import Json, World


async def _reissued_with_copy(world: World) -> tuple[Json, str, str]:
    """Return a reissued invoice, the id of its second charge and the id of an open copy of this charge.

    The engine got no answer to its request for the second charge. Then a webhook named the second charge.
    """
    await world.set_up_gateway(behaviour="never_pay", webhookSecret=SECRET)
    invoice = await issued_invoice(world)
    first = invoice["gatewayInvoiceId"]
    await queue_fault(world, "create_charge", "timeout_after")
    assert (await ask(world, invoice)).status == 200
    await world.run("issuance")
    await world.sql(NO_SWEEP)
    [second] = [each["chargeId"] for each in await charges(world) if each["chargeId"] != first]
    copy = await double_silently(world, {"gatewayInvoiceId": second})
    await world.sql("UPDATE late_charge_check SET next_check_at = '2900-01-01'")
    await notify(world, second)
    await end_leases(world)
    await looked_at(world)
    return invoice, second, copy


@pytest.mark.parametrize("shows_first", [True, False])
async def test_a_search_that_shows_only_a_stored_charge_is_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch, *, shows_first: bool
) -> None:
    """A merchant cancels the second charge of a reissued invoice as a duplicate. A copy of this charge is open.

    One search shows nothing, or only the first charge, which the engine has stored. The engine searches again, and the
    invoice adopts the copy. [D-33, D-181]
    """
    invoice, second, copy = await _reissued_with_copy(world)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled' WHERE charge_id = $1", second)
    find, searches = SandboxGateway.find_charges, list[int]()

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        searches.append(attempt)
        if searches.count(2) > 1 or attempt != 2:
            return await find(self, invoice_id, attempt)
        return await find(self, invoice_id, 1) if shows_first else []

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, days=2)
    assert (await read(world, invoice))["gatewayInvoiceId"] == copy
