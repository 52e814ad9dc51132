"""Read the audit log by cursor and with filters (D-63, D-224)."""

import pytest

from tests.support.expect import UNKNOWN_ID, invalid
from tests.support.world import Json, Merchant, World


async def found(merchant: Merchant, query: str) -> list[str]:
    """Return the actions of the entries that the first page shows."""
    return [each["action"] for each in (await merchant.get(f"/v1/audit?{query}")).json["data"]]


async def test_the_log_is_read_oldest_first_in_pages(world: World):
    """[D-63, D-224]"""
    products = [await world.product() for _ in range(5)]
    cursor, seen = "0", list[Json]()
    for _ in range(4):
        page = (await world.get(f"/v1/audit?limit=2&cursor={cursor}")).json
        seen += page["data"]
        cursor = page["nextCursor"]
    assert [each["action"] for each in seen] == ["account.create", *["product.create"] * 5]
    assert [each["resource"]["id"] for each in seen[1:]] == [each["id"] for each in products]
    assert len({each["id"] for each in seen}) == 6

    await world.product()
    page = (await world.get(f"/v1/audit?cursor={cursor}")).json
    assert [each["action"] for each in page["data"]] == ["product.create"]
    assert (await world.get("/v1/audit?cursor=999999")).json == {"data": [], "nextCursor": "999999"}


async def test_the_first_entry_says_who_opened_the_account(world: World):
    """[D-223]"""
    [entry] = (await world.get("/v1/audit")).json["data"]
    assert entry["actor"] == {"kind": "operator", "id": None, "name": "tests"}
    assert entry["resource"] == {"type": "account", "id": str(world.account_id)}
    assert (entry["requestId"], entry["address"], entry["before"]) == (None, None, None)
    assert entry["after"] == {"name": "Test", "mode": "sandbox", "currency": "BRL"}


async def test_filters_select_entries(world: World):
    """[D-63, D-224]"""
    one, two = await world.product(), await world.product()
    assert (await world.patch(f"/v1/products/{one['id']}", {"name": "Pool"})).status == 200
    await world.advance(days=2)
    later = (await world.get("/v1/test-clock")).json["now"]
    assert (await world.patch(f"/v1/products/{two['id']}", {"name": "Pool"})).status == 200
    [own] = (await world.get("/v1/integration/api-keys")).json["data"]

    assert await found(world, f"resourceId={one['id']}") == ["product.create", "product.update"]
    assert await found(world, "action=product.update") == ["product.update"] * 2
    assert await found(world, "actor=operator") == ["account.create"]
    by_key = await found(world, f"actor={own['id']}")
    assert by_key == await found(world, "actor=api_key")
    assert by_key.count("product.create") == 2
    assert await found(world, f"actor={UNKNOWN_ID}") == []
    assert await found(world, f"from={later}&action=product.update") == ["product.update"]
    assert await found(world, f"to={later}&action=product.update&resourceId={two['id']}") == []
    assert await found(world, f"from={later}&to=2099-01-01") == ["product.update"]
    assert await found(world, f"from={later}&to=9999-12-31T23:59:59.999Z") == ["product.update"]
    assert await found(world, "from=2099-01-01") == []
    assert await found(world, "to=2001-01-01") == []
    at = (await world.audit("product.update"))[0]["at"]
    assert "product.update" in await found(world, f"from={at}&to={at}")


async def test_a_filtered_reader_gets_later_entries_once(world: World):
    """[D-224]"""
    await world.product()
    page = (await world.get("/v1/audit?action=product.update&from=2001-01-01")).json
    assert page["data"] == []
    product = await world.product()
    assert (await world.patch(f"/v1/products/{product['id']}", {"name": "Pool"})).status == 200
    page = (await world.get(f"/v1/audit?action=product.update&cursor={page['nextCursor']}")).json
    assert [each["resource"]["id"] for each in page["data"]] == [product["id"]]
    page = (await world.get(f"/v1/audit?action=product.update&cursor={page['nextCursor']}")).json
    assert page["data"] == []


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("cursor=x", "cursor"),
        ("cursor=1234567890123456789", "cursor"),
        ("actor=nobody", "actor"),
        ("action=product.delete", "action"),
        ("resourceId=", "resourceId"),
        (f"resourceId={'x' * 256}", "resourceId"),
        ("from=yesterday", "from"),
        ("to=2026-13-01", "to"),
        ("from=2026-02-01&to=2026-01-01", "to"),
        ("action=product.create&action=plan.create", "action"),
        ("actors=api_key", "actors"),
    ],
)
async def test_an_invalid_query_is_refused(world: World, query: str, path: str):
    """[D-224, D-11, D-60]"""
    assert list(invalid(await world.get(f"/v1/audit?{query}"))) == [path]


async def test_another_account_s_entries_are_not_shown(world: World):
    """[D-63, spec 5.2]"""
    other = await world.another()
    product = await other.product()
    assert await found(world, f"resourceId={product['id']}") == []
    assert await found(world, "actor=api_key") == []
    assert await found(other, "actor=api_key") == ["product.create"]


async def test_times_never_go_back(world: World):
    """If the clock is behind the previous entry's time, a new entry repeats that time. [D-224]"""
    await world.product()
    await world.sql("UPDATE account_counter SET last_audited_at = last_audited_at + interval '1 hour'")
    await world.product()
    first, late = await world.audit("product.create")
    assert first["at"] < late["at"]
    assert await found(world, f"from={late['at']}") == ["product.create"]
    assert await world.broken() == []
