"""A background lane copies (mirrors) products to the catalogs of gateways."""

from datetime import timedelta

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import ProductMirror
from fatura.store.catalog import mirrors
from fatura.usecases.transaction import Work, in_transaction, load_account
from tests.support.captured_logs import captured_logs
from tests.support.refused_writes import refuse
from tests.support.sandbox_steps import connection_id, pass_time, patch_connection, queue_fault
from tests.support.unreadable import make_unusable, mend_connection
from tests.support.world import Json, World


async def mirrored(world: World) -> list[Json]:
    return (await world.get("/v1/sandbox/products")).json["data"]


async def test_a_created_product_is_mirrored_to_the_gateways_catalog(world: World) -> None:
    """[spec 2.2 mirroring, D-46]"""
    await world.set_up_gateway(productCatalog=True)
    product = await world.product(name="Gold", description="All courts")
    assert await mirrored(world) == []

    await world.run("mirroring")

    (shown,) = await mirrored(world)
    assert shown == {
        "id": f"prod_{product['id']}",
        "productId": product["id"],
        "connectionId": await connection_id(world),
        "name": "Gold",
        "description": "All courts",
        "createdAt": shown["createdAt"],
    }
    assert shown["createdAt"] >= product["createdAt"]


async def test_creation_does_not_wait_for_a_gateway_that_is_down(world: World) -> None:
    """[spec 2.2 mirroring]"""
    await world.set_up_gateway(productCatalog=True)
    await queue_fault(world, "create_product", "timeout_before", times=2)

    product = await world.product(name="Gold")
    assert (await world.get(f"/v1/products/{product['id']}")).json == product
    await world.run("mirroring")
    assert await mirrored(world) == []
    await pass_time(world, minutes=10)

    assert [each["productId"] for each in await mirrored(world)] == [product["id"]]


@pytest.mark.parametrize(
    ("changes", "is_queued"),
    [
        ({"label": "Main"}, False),
        ({"active": True}, True),
        ({"settings": {}}, True),
        ({"credentials": {}}, True),
    ],
)
async def test_a_failed_product_is_mirrored_again_when_the_connection_may_work_again(
    world: World, changes: Json, *, is_queued: bool
) -> None:
    """[spec 2.2 mirroring, D-43]"""
    await world.set_up_gateway(productCatalog=True)
    await queue_fault(world, "create_product", "rejected")
    await world.product()
    await world.run("mirroring")

    await patch_connection(world, **changes)

    assert await world.run("mirroring") == is_queued
    assert len(await mirrored(world)) == is_queued


async def test_variable_products_are_mirrored_too(world: World) -> None:
    """[spec 2.2 mirroring]"""
    await world.set_up_gateway(productCatalog=True)
    product = await world.variable_product()

    await world.run("mirroring")

    assert [each["productId"] for each in await mirrored(world)] == [product["id"]]


@pytest.mark.parametrize(
    "connection",
    [{"settings": {"productCatalog": False}}, {"settings": {"productCatalog": True}, "active": False}],
    ids=["no catalog", "inactive"],
)
async def test_inactive_connections_and_those_without_a_catalog_get_no_products(
    world: World, connection: Json
) -> None:
    """[spec 2.2 mirroring]"""
    await patch_connection(world, **connection)
    await world.product()

    await world.run("mirroring")

    assert await mirrored(world) == []


async def test_every_catalog_gets_every_product_once(world: World) -> None:
    """[spec 2.2 mirroring]"""
    await world.set_up_gateway(productCatalog=True)
    second = await world.connect(productCatalog=True)
    await world.connect()
    products = {(await world.product())["id"] for _ in range(3)}

    for _ in range(2):
        await world.run("mirroring")
        await pass_time(world, days=1)

    places = [(each["connectionId"], each["productId"]) for each in await mirrored(world)]
    catalogs = (await connection_id(world), second["connectionId"])
    assert sorted(places) == sorted((catalog, product) for catalog in catalogs for product in products)


async def test_a_new_catalog_gets_the_existing_products(world: World) -> None:
    """[spec 2.2 mirroring]"""
    product = await world.product()
    await world.set_up_gateway(productCatalog=True)
    await world.connect(productCatalog=True)

    await world.run("mirroring")

    assert [each["productId"] for each in await mirrored(world)] == [product["id"]] * 2


async def test_a_reactivated_connection_gets_the_products_created_meanwhile(world: World) -> None:
    """[spec 2.2 mirroring]"""
    await patch_connection(world, settings={"productCatalog": True}, active=False)
    product = await world.product()

    await patch_connection(world, active=True)
    await world.run("mirroring")

    assert [each["productId"] for each in await mirrored(world)] == [product["id"]]


async def test_a_product_that_changes_during_a_failing_copy_is_copied_again(world: World) -> None:
    """[spec 2.2 mirroring]"""
    await world.set_up_gateway(productCatalog=True)
    product = await world.product(name="Gold")

    async def claim(work: Work) -> mirrors.ClaimedMirror:
        now = work.deps.clock()
        lease_until = now + timedelta(minutes=1)
        keys = await mirrors.claim(work.tx, now=work.now, real_now=now, lease_until=lease_until, limit=1)
        return (await mirrors.claimed(work.tx, keys))[0]

    async def fail(work: Work, claimed: mirrors.ClaimedMirror) -> None:
        await mirrors.record_failure(work.tx, claimed, error="refused", next_attempt_at=None)

    account = await load_account(world.deps, world.account_id)
    claimed = await in_transaction(world.deps, account, claim)
    assert (await world.patch(f"/v1/products/{product['id']}", {"name": "Silver"})).status == 200
    await in_transaction(world.deps, account, fail, claimed)
    await world.run("mirroring")

    assert [each["name"] for each in await mirrored(world)] == ["Silver"]


async def test_a_product_that_cannot_be_read_delays_no_other(world: World) -> None:
    """[spec 2.2 mirroring, D-186]"""
    await world.set_up_gateway(productCatalog=True)
    _, failing, _ = [await world.product(name=name) for name in ("Gold", "Silver", "Bronze")]
    await world.sql("ALTER TABLE product ALTER COLUMN name DROP NOT NULL")
    await world.sql("UPDATE product SET name = NULL WHERE product_id = $1::text::uuid", failing["id"])

    with captured_logs() as logs:
        await world.run("mirroring")

    assert logs.getvalue().count("mirroring.put_off") == 1
    assert sorted(each["name"] for each in await mirrored(world)) == ["Bronze", "Gold"]
    await world.sql("UPDATE product SET name = 'Silver' WHERE name IS NULL")
    await pass_time(world, minutes=11)
    assert sorted(each["name"] for each in await mirrored(world)) == ["Bronze", "Gold", "Silver"]


async def test_a_connection_that_cannot_be_opened_delays_no_copies_to_others(world: World) -> None:
    """[spec 2.2 mirroring, D-186]"""
    await world.set_up_gateway(productCatalog=True)
    other = (await world.connect(productCatalog=True))["connectionId"]
    failing = await connection_id(world)
    await world.product(name="Gold")
    await make_unusable(world, failing)

    with captured_logs() as logs:
        await world.run("mirroring")

    assert logs.getvalue().count("mirroring.put_off") == 1
    done = await world.sql("SELECT connection_id::text FROM product_mirror WHERE mirrored_at IS NOT NULL")
    assert [row["connection_id"] for row in done] == [other]
    await mend_connection(world, failing)
    await pass_time(world, minutes=11)
    assert {each["connectionId"] for each in await mirrored(world)} == {failing, other}


@pytest.mark.parametrize("defect", ["call", "recording"])
async def test_a_copy_that_fails_unexpectedly_is_repeated_with_growing_pauses(
    world: World, monkeypatch: pytest.MonkeyPatch, defect: str
) -> None:
    """The adapter fails, or PostgreSQL refuses to record that the copy was made. [spec 2.2 mirroring, D-186]"""
    await world.set_up_gateway(productCatalog=True)
    copy, calls = SandboxGateway.mirror_product, list[ProductMirror]()

    async def mirror_product(self: SandboxGateway, product: ProductMirror) -> str:
        calls.append(product)
        if defect == "call":
            raise KeyError("id")
        return await copy(self, product)

    if defect == "recording":
        await refuse(world, "product_mirror", "UPDATE", "NEW.mirrored_at IS NOT NULL")
    with monkeypatch.context() as patched:
        patched.setattr(SandboxGateway, "mirror_product", mirror_product)
        product = await world.product(name="Gold")
        for _ in range(60):
            await world.sql("UPDATE product_mirror SET lease_until = NULL")
            await world.sql("UPDATE account SET clock_offset = clock_offset + interval '1 minute'")
            await world.run("mirroring")
    assert 3 <= len(calls) < 10
    await world.sql("DROP TRIGGER IF EXISTS refuse ON product_mirror")
    await pass_time(world, hours=1, minutes=10)
    assert [each["productId"] for each in await mirrored(world)] == [product["id"]]
    assert await world.sql("SELECT FROM product_mirror WHERE mirrored_at IS NULL") == []
