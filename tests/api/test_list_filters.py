"""A filtered list shows exactly the records that match, and their number. Invalid filters get 400 (D-16)."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import product as every
from urllib.parse import urlencode

import pytest
import pytest_asyncio

from fatura.usecases.billing import invoices
from tests.conftest import fresh_database
from tests.support.expect import UNKNOWN_ID, invalid
from tests.support.world import Json, World, open_world, rows

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.faults]
LISTS = ("products", "plans", "customers", "subscriptions", "invoices")


@dataclass(frozen=True, slots=True)
class FilledWorld:
    """An engine whose lists all contain records. `shown` has the records of each list, newest first."""

    world: World
    shown: dict[str, list[Json]]

    async def found(self, noun: str, **query: str | None) -> tuple[list[str], int]:
        """Return the ids on all pages of a filtered list, and the total that the list shows."""
        asked = {name: value for name, value in query.items() if value is not None}
        ids: list[str] = []
        page, pages, total = 1, 1, 0
        while page <= pages:
            answer = await self.world.get(f"/v1/{noun}?{urlencode(asked | {'page': page, 'pageSize': 3})}")
            assert answer.status == 200, answer.body
            ids += [each["id"] for each in answer.json["data"]]
            pagination = answer.json["pagination"]
            page, pages, total = page + 1, pagination["totalPages"], pagination["totalRecords"]
        return ids, total

    def expected(self, noun: str, holds: Callable[[Json], bool]) -> tuple[list[str], int]:
        """Return the ids of the records for which `holds` is true, and the number of these records."""
        ids = [each["id"] for each in self.shown[noun] if holds(each)]
        return ids, len(ids)

    async def check(
        self,
        noun: str,
        names: Sequence[str],
        wanted: Sequence[str | None],
        has: Callable[[Json], Sequence[str | None]],
    ) -> int:
        """Filter a list, check which records it shows, and return its total.

        The filter sets each query parameter in `names` to the value at the same position in `wanted`. For the value
        None, the request omits the parameter. `has` returns the values of a record that the API compares with `wanted`.
        """
        found = await self.found(noun, **dict(zip(names, wanted, strict=True)))
        assert found == self.expected(noun, lambda each: matches(wanted, has(each))), (noun, wanted)
        return found[1]


async def fill(world: World) -> None:
    """Bill a few customers for two months, and pay some of their charges."""
    await world.set_up_gateway(behaviour="never_pay")
    products = [await world.product(externalRef=ref) for ref in ("p-1", "p-1", "p-2", "50%", None)]
    plans = [await world.plan(each) for each in products[:3]]
    for each in (products[1], products[3]):
        await world.made(f"/v1/products/{each['id']}/archive")
    made: list[Json] = []
    for number, plan in enumerate([plans[0], plans[0], plans[1], plans[2], plans[0], plans[1]]):
        customer = {"externalRef": f"c-{number % 4}", "name": "Ana", "email": "ana@example.com"}
        own = {"externalRef": f"s-{number % 3}"} if number % 3 else {}
        made.append(await world.enroll(plan, customer=customer, chargeDay=4 * number + 1, **own))
    await world.made(f"/v1/plans/{plans[1]['id']}/archive")
    await world.advance(days=35)
    await world.made(f"/v1/subscriptions/{made[0]['id']}/cancel")
    await world.advance(days=25)
    for charge in (await world.get("/v1/sandbox/charges")).json["data"][1::3]:
        await world.made(f"/v1/sandbox/charges/{charge['chargeId']}/pay")
    await world.run()


def matches(wanted: Sequence[str | None], found: Sequence[str | None]) -> bool:
    """Return whether a record with the values `found` matches the filter. A None in `wanted` matches any value."""
    return all(want in {None, value} for want, value in zip(wanted, found, strict=True))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filled(server_url: str) -> AsyncIterator[FilledWorld]:
    """An engine with a filled account, shared by all tests of this module. No test may change the account."""
    async with fresh_database(server_url) as url, open_world(url) as world:
        await fill(world)
        yield FilledWorld(world, {noun: (await world.all(f"/v1/{noun}"))[::-1] for noun in LISTS})


async def test_every_filter_has_records_that_match_and_records_that_do_not(filled: FilledWorld):
    subscriptions, invoices = filled.shown["subscriptions"], filled.shown["invoices"]
    assert {each["status"] for each in subscriptions} == {"active", "canceled"}
    assert {each["status"] for each in invoices} >= {"issued", "paid", "overdue"}
    assert len(filled.shown["customers"]) == 4
    assert len({each["dueDate"] for each in invoices}) > 8


async def test_products_are_filtered_by_external_ref_and_archived(filled: FilledWorld):
    """[D-16]"""

    def has(each: Json) -> tuple[str | None, ...]:
        return each["externalRef"], "true" if each["archivedAt"] else "false"

    for wanted in every((None, "p-1", "p-2", "50%", "P-1", "p-"), (None, "true", "false")):
        await filled.check("products", ("externalRef", "archived"), wanted, has)


async def test_plans_are_filtered_by_archived(filled: FilledWorld):
    """[D-16]"""
    for archived in ("true", "false"):
        total = await filled.check(
            "plans", ("archived",), (archived,), lambda each: ("true" if each["archivedAt"] else "false",)
        )
        assert total > 0


async def test_customers_are_filtered_by_external_ref(filled: FilledWorld):
    """[D-15]"""
    for ref, total in (("c-0", 1), ("c-3", 1), ("c-4", 0), ("C-0", 0)):
        assert total == await filled.check(
            "customers", ("externalRef",), (ref,), lambda each: (each["externalRef"],)
        )


@pytest.mark.faults
async def test_subscriptions_are_filtered_by_each_parameter_and_by_all(filled: FilledWorld):
    """[D-16, D-17, D-109]"""
    first, last = filled.shown["subscriptions"][0], filled.shown["subscriptions"][-1]
    names = ("status", "externalRef", "planId", "customerId", "customerExternalRef")
    asked = every(
        (None, "active", "canceled"),
        (None, "s-1", "s-9"),
        (None, first["planId"], last["planId"], UNKNOWN_ID),
        (None, first["customer"]["id"], last["customer"]["id"], UNKNOWN_ID),
        (None, first["customer"]["externalRef"], "c-9"),
    )

    def has(each: Json) -> tuple[str | None, ...]:
        own = each["customer"]
        return each["status"], each["externalRef"], each["planId"], own["id"], own["externalRef"]

    for wanted in asked:
        await filled.check("subscriptions", names, wanted, has)


async def test_invoices_are_filtered_by_each_parameter_and_by_all(filled: FilledWorld):
    """[D-16, D-109, spec 4.5 GET /v1/invoices status]"""
    newest, oldest = filled.shown["invoices"][0], filled.shown["invoices"][-1]
    names = ("status", "subscriptionId", "customerId", "customerExternalRef")
    asked = every(
        (None, "paid", "overdue", "draft"),
        (None, newest["subscriptionId"], oldest["subscriptionId"], UNKNOWN_ID),
        (None, newest["customer"]["id"], oldest["customer"]["id"], UNKNOWN_ID),
        (None, newest["customer"]["externalRef"], "C-0", "c-9"),
    )

    def has(each: Json) -> tuple[str | None, ...]:
        own = each["customer"]
        return each["status"], each["subscriptionId"], own["id"], own["externalRef"]

    totals = [await filled.check("invoices", names, wanted, has) for wanted in asked]
    assert sum(total > 0 for total in totals) > 10


@pytest.mark.parametrize("most_sorted", [invoices.MAX_SORTED, 0], ids=["sorted", "in index order"])
async def test_invoices_are_filtered_by_due_dates(
    filled: FilledWorld, monkeypatch: pytest.MonkeyPatch, most_sorted: int
) -> None:
    """[D-16]"""
    monkeypatch.setattr(invoices, "MAX_SORTED", most_sorted)
    days = sorted({each["dueDate"] for each in filled.shown["invoices"]})
    first, last = days[2], days[-2]
    day_before_last = str(date.fromisoformat(last) - timedelta(days=1))
    for (start, end), status in every(
        [(None, None), (first, None), (None, first), (first, last), (first, first), (first, day_before_last)],
        (None, "paid", "issued"),
    ):
        inside = {each for each in days if (start or "") <= each <= (end or "9")}
        expected = filled.expected(
            "invoices",
            lambda each, days=inside, status=status: (
                each["dueDate"] in days and matches([status], [each["status"]])
            ),
        )
        found = await filled.found("invoices", dueFrom=start, dueTo=end, status=status)
        assert found == expected, (start, end, status)


async def test_a_page_past_the_end_is_empty(filled: FilledWorld):
    """[D-16, spec 2.7 envelope]"""
    answer = (await filled.world.get("/v1/products?externalRef=p-1&page=7&pageSize=2")).json
    assert answer == {
        "data": [],
        "pagination": {"page": 7, "pageSize": 2, "totalRecords": 2, "totalPages": 1},
    }
    nothing = (await filled.world.get("/v1/invoices?dueFrom=2099-01-01")).json
    assert nothing == {
        "data": [],
        "pagination": {"page": 1, "pageSize": 25, "totalRecords": 0, "totalPages": 0},
    }


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
@pytest.mark.parametrize("query", ["", "status=overdue", "dueFrom=2033-12-01"])
async def test_pages_read_from_the_end_are_the_same(filled: FilledWorld, size, query):
    """To find a page in the second half of a list, the engine counts records from the end of the list.
    [D-16, spec 2.7 newest first]
    """
    path = f"/v1/invoices?{query}&pageSize="
    all_at_once = (await filled.world.get(f"{path}100")).json["data"]
    assert len(all_at_once) > 3
    for first in range(0, len(all_at_once) + size, size):
        answer = (await filled.world.get(f"{path}{size}&page={first // size + 1}")).json
        assert answer["data"] == all_at_once[first : first + size]
        assert answer["pagination"]["totalRecords"] == len(all_at_once)


async def test_another_account_s_ids_match_nothing(filled: FilledWorld):
    """[D-16, spec 5.4]"""
    other = await filled.world.another()
    subscription = await other.enroll(await other.plan())
    await filled.world.run()
    for noun, name, value in [
        ("subscriptions", "planId", subscription["planId"]),
        ("subscriptions", "customerId", subscription["customer"]["id"]),
        ("subscriptions", "customerExternalRef", subscription["customer"]["externalRef"]),
        ("invoices", "subscriptionId", subscription["id"]),
        ("invoices", "customerId", subscription["customer"]["id"]),
        ("invoices", "customerExternalRef", subscription["customer"]["externalRef"]),
        ("customers", "externalRef", subscription["customer"]["externalRef"]),
    ]:
        assert await filled.found(noun, **{name: value}) == ([], 0), name
        assert len((await other.get(f"/v1/{noun}?{name}={value}")).json["data"]) == 1, name


REFUSED = rows("""
    noun          | query                                  | fields
    products      | externalRef=                           | externalRef
    products      | externalRef=%20                        | externalRef
    products      | archived=                              | archived
    products      | archived=1                             | archived
    products      | archived=True                          | archived
    products      | archived=true&archived=true            | archived
    products      | externalRef=%00                        | externalRef
    plans         | archived=yes                           | archived
    plans         | archived=null&page=0                   | archived page
    customers     | externalRef=                           | externalRef
    customers     | email=                                 | email
    customers     | email=ana                              | email
    customers     | name=                                  | name
    customers     | name=%20                               | name
    customers     | name=%00                               | name
    customers     | document=                              | document
    customers     | document=5299822472                    | document
    customers     | document=5299822472552998224           | document
    customers     | name=ana&name=ana                      | name
    customers     | email=x&name=&document=1               | document email name
    subscriptions | status=                                | status
    subscriptions | status=paused                          | status
    subscriptions | status=ACTIVE                          | status
    subscriptions | status=active,canceled                 | status
    subscriptions | planId=                                | planId
    subscriptions | planId=7                               | planId
    subscriptions | customerId=null                        | customerId
    subscriptions | customerExternalRef=                   | customerExternalRef
    subscriptions | externalRef=                           | externalRef
    subscriptions | planId=x&customerId=y&status=z         | customerId planId status
    invoices      | status=                                | status
    invoices      | status=open                            | status
    invoices      | subscriptionId=                        | subscriptionId
    invoices      | subscriptionId=019a00000000700080000000 | subscriptionId
    invoices      | customerId=x                           | customerId
    invoices      | customerExternalRef=                   | customerExternalRef
    invoices      | customerExternalRef=%00                | customerExternalRef
    invoices      | dueFrom=                               | dueFrom
    invoices      | dueFrom=2034-02-30                     | dueFrom
    invoices      | dueFrom=2034-1-1                       | dueFrom
    invoices      | dueTo=2034-01-01T00:00:00Z             | dueTo
    invoices      | dueTo=tomorrow&dueFrom=today           | dueFrom dueTo
    invoices      | dueFrom=2034-01-02&dueTo=2034-01-01    | dueTo
""")


@pytest.mark.parametrize(("noun", "query", "fields"), REFUSED)
async def test_an_invalid_filter_is_refused(filled: FilledWorld, noun, query, fields):
    """[D-16, D-11, spec 7 400]"""
    assert sorted(invalid(await filled.world.get(f"/v1/{noun}?{query}"))) == fields.split()


async def test_every_authenticated_operation_refuses_an_unknown_parameter(filled: FilledWorld):
    """[D-60, D-16]"""
    paths = (await filled.world.get("/docs-json")).json["paths"]
    operations = [
        (method.upper(), path.replace("{", "").replace("}", ""), each)
        for path, methods in paths.items()
        for method, each in methods.items()
        if each.get("security")
    ]
    assert len(operations) > 40
    for method, path, operation in operations:
        answer = await filled.world.call(method, f"{path}?pagesize=5&sort=name", key="unknown")
        refused, takes = invalid(answer), [each.get("name") for each in operation["parameters"]]
        near = "did you mean pageSize?" if "pageSize" in takes else "this route takes"
        assert refused["pagesize"].startswith(f"unknown query parameter; {near}"), (method, path)
        assert refused["sort"].startswith("unknown query parameter; "), (method, path)


@pytest.mark.parametrize(
    ("noun", "name", "most"),
    [
        ("products", "externalRef", 120),
        ("subscriptions", "customerExternalRef", 120),
        ("invoices", "customerExternalRef", 120),
        ("customers", "externalRef", 120),
        ("customers", "name", 200),
        ("customers", "document", 18),
    ],
)
async def test_filters_have_the_limits_of_creation(filled: FilledWorld, noun, name, most):
    """[D-16, D-130, spec 8 product externalRef, spec 8 customer.name]"""
    assert (await filled.world.get(f"/v1/{noun}?{name}={'x' * most}")).status == 200
    assert list(invalid(await filled.world.get(f"/v1/{noun}?{name}={'x' * (most + 1)}"))) == [name]
