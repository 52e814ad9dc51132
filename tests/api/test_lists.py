"""The order, totals and limits of pages (spec 2.7, 8, D-16)."""

from collections.abc import Mapping

import pytest

from fatura.store import counters
from fatura.store.db import Tx
from tests.support.expect import invalid
from tests.support.world import World

LISTS = ["/v1/products", "/v1/plans", "/v1/customers", "/v1/subscriptions", "/v1/invoices"]


async def test_the_pages_of_a_list_have_every_record_once(world: World):
    """[spec 2.7 envelope, spec 2.7 newest first, spec 4.2 GET /v1/products 200]"""
    made = [(await world.product())["id"] for _ in range(7)]
    await world.post(f"/v1/products/{made[3]}/archive")

    for size in (1, 3, 7, 100):
        pages = -(-7 // size)
        seen: list[str] = []
        for page in range(1, pages + 1):
            answer = (await world.get(f"/v1/products?page={page}&pageSize={size}")).json
            seen += [product["id"] for product in answer["data"]]
            assert answer["pagination"] == {
                "page": page,
                "pageSize": size,
                "totalRecords": 7,
                "totalPages": pages,
            }
        assert seen == made[::-1]


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_empty_list_has_no_pages(shared_world: World, path):
    """[spec 2.7 envelope, D-16]"""
    for query, page, size in [("", 1, 25), ("?page=1000000000&pageSize=100", 1_000_000_000, 100)]:
        pagination = {"page": page, "pageSize": size, "totalRecords": 0, "totalPages": 0}
        answer = await shared_world.get(path + query)
        assert (answer.status, answer.json) == (200, {"data": [], "pagination": pagination})


async def test_the_default_page_size_is_25(world: World):
    """[spec 8 page size]"""
    for _ in range(26):
        await world.product()
    answer = (await world.get("/v1/products")).json

    assert len(answer["data"]) == 25
    assert answer["pagination"] == {"page": 1, "pageSize": 25, "totalRecords": 26, "totalPages": 2}
    assert len((await world.get("/v1/products?page=2")).json["data"]) == 1


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("page=0", ["page"]),  # [spec 8 page size]
        ("page=-1", ["page"]),
        ("page=1000000001", ["page"]),
        ("page=", ["page"]),
        ("page=one", ["page"]),
        ("page=1.0", ["page"]),
        ("page=1&page=2", ["page"]),
        ("page=%D9%A1", ["page"]),  # an Arabic digit
        ("pageSize=0", ["pageSize"]),
        ("pageSize=101", ["pageSize"]),
        ("pageSize=+5&page=x", ["page", "pageSize"]),
        ("page=99999999999999999999999999999999999999999", ["page"]),
        ("page=%ff", ["query"]),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_every_invalid_parameter_is_named(shared_world: World, path, query, fields):
    """[D-11, spec 7 400]"""
    assert sorted(invalid(await shared_world.get(f"{path}?{query}"))) == fields


@pytest.mark.parametrize("query", ["page=1", "page=1000000000", "pageSize=1", "pageSize=100"])
@pytest.mark.asyncio(loop_scope="module")
async def test_the_limits_of_paging_are_accepted(shared_world: World, query):
    """[spec 8 page size, D-16]"""
    assert (await shared_world.get(f"/v1/products?{query}")).status == 200


async def test_lists_and_totals_exclude_other_accounts(world: World):
    """[spec 5.2, spec 5.4]"""
    await world.enroll(await world.plan())
    await world.run()
    other = await world.another()

    for path in LISTS:
        assert (await other.get(path)).json["pagination"]["totalRecords"] == 0
        assert (await other.get(path)).json["data"] == []


async def test_a_page_and_its_total_come_from_one_snapshot(world: World, monkeypatch: pytest.MonkeyPatch):
    """A record that is committed after the API counted the total is in neither the total nor the page.

    [spec 2.7 envelope, D-122]
    """
    await world.product()
    totals = counters.totals

    async def totals_and_then_another(tx: Tx) -> Mapping[str, int]:
        counted = await totals(tx)
        await world.product()
        return counted

    monkeypatch.setattr(counters, "totals", totals_and_then_another)
    amid = (await world.get("/v1/products")).json
    monkeypatch.undo()
    assert (amid["pagination"]["totalRecords"], len(amid["data"])) == (1, 1)
    assert (await world.get("/v1/products")).json["pagination"]["totalRecords"] == 2
