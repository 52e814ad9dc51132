"""If the database fails while answers are recorded, the engine repeats the recording until the lease ends."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from fatura.usecases.charging import issuance
from tests.support.sandbox_steps import charges, end_leases, pass_time, read, ready_invoice
from tests.support.world import World

UNAVAILABLE, LOCKED = "53100", "55P03"


async def fail_to_issue(world: World, *, times: int, code: str = UNAVAILABLE, invoice_id: str = "") -> None:
    """Make the database fail the next `times` times that an invoice, or only this invoice, becomes `issued`."""
    await world.sql("CREATE SEQUENCE failures")
    await world.sql("GRANT USAGE ON SEQUENCE failures TO PUBLIC")
    # PostgreSQL does not undo `nextval` when it rolls back
    await world.sql(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF NEW.invoice_id::text LIKE '{invoice_id}%' AND nextval('failures') <= {times} "
        f"THEN RAISE EXCEPTION 'at work' USING ERRCODE = '{code}'; END IF; RETURN NEW; END $$"
    )
    await world.sql(
        "CREATE TRIGGER fail BEFORE UPDATE ON invoice FOR EACH ROW WHEN (NEW.status = 'issued') "
        "EXECUTE FUNCTION fail()"
    )


def hide_from_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the gateway's searches show no charge, like those of a gateway that lists new charges late."""

    async def find_charges(_gateway: SandboxGateway, _invoice_id: UUID, _attempt: int) -> Sequence[Charge]:
        return []

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)


@pytest.mark.parametrize("code", [UNAVAILABLE, LOCKED, "57P01", "25006"])
async def test_an_answer_is_recorded_when_the_database_works_again(
    world: World, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """[D-33]"""
    await world.set_up_gateway(behaviour="never_pay")
    hide_from_searches(monkeypatch)
    invoices = [await ready_invoice(world) for _ in range(3)]
    await fail_to_issue(world, times=6, code=code)

    await world.run("issuance")
    await pass_time(world, minutes=5)

    assert [(await read(world, each))["status"] for each in invoices] == ["issued"] * 3
    assert len(await charges(world)) == 3
    assert len(await world.events("invoice.issued")) == 3
    assert await world.broken() == []


async def test_a_person_who_retries_gets_the_recorded_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-33, D-113]"""
    await world.set_up_gateway(behaviour="never_pay")
    hide_from_searches(monkeypatch)
    invoice = await ready_invoice(world)
    await fail_to_issue(world, times=2)

    answer = await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")

    assert (answer.status, answer.json["status"]) == (200, "issued")
    assert len(await charges(world)) == 1


async def test_a_locked_invoice_does_not_delay_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease of the locked invoice ends. The next calls look its charge up. [D-33]"""
    monkeypatch.setattr(issuance, "RECORD_AGAIN_SECONDS", 60.0)  # longer than the rest of the lease
    await world.set_up_gateway(behaviour="never_pay")
    invoices = [await ready_invoice(world) for _ in range(3)]
    locked = invoices[1]
    await fail_to_issue(world, times=100, code=LOCKED, invoice_id=locked["id"])

    await world.run("issuance")
    assert [(await read(world, each))["status"] for each in invoices] == ["issued", "ready", "issued"]

    await world.sql("DROP TRIGGER fail ON invoice")
    await end_leases(world)
    await pass_time(world, minutes=5)
    assert (await read(world, locked))["status"] == "issued"
    assert len(await charges(world)) == 3
    assert await world.broken() == []
