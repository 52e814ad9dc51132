"""Search for customers by name, e-mail and tax document (D-130)."""

from dataclasses import replace
from urllib.parse import urlencode

import pytest

from fatura.domain.filters import CustomerFilter
from fatura.store.vault import Vault, new_key
from fatura.usecases.accounts import key_ring
from fatura.usecases.paging import Page
from fatura.usecases.subscriptions import customers
from fatura.usecases.subscriptions.customers import CustomerInput
from fatura.usecases.transaction import in_transaction, load_account
from tests.support.operator import OPERATOR
from tests.support.populated import connected
from tests.support.world import Json, Merchant, World, rows

DOCUMENT, OTHER_DOCUMENT = "529.982.247-25", "111.444.777-35"
COMPANY = "12.ABC.345/01DE-35"
KNOWN = rows("""
    ref | name         | email           | document
    c-1 | João Silva   | joao@a.example  | 529.982.247-25
    c-2 | JOANA LIMA   | lima@a.example  | 11144477735
    c-3 | Joana Lima   | Lima@A.example  |
    c-4 | Ana 50%_Off  | ana@a.example   | 12.ABC.345/01DE-35
    c-5 | Mariana Jo   | joao@b.example  | 52998224725
""")


async def known_customers(merchant: Merchant) -> dict[str, Json]:
    """Subscribe the customers in KNOWN. Return the subscriptions by the customer's externalRef."""
    plan = await merchant.plan()
    made: dict[str, Json] = {}
    for ref, name, email, document in KNOWN:
        customer = {"externalRef": ref, "name": name, "email": email, "document": document or None}
        made[ref] = await merchant.enroll(plan, customer=customer)
    return made


async def found(merchant: Merchant, **query: object) -> str:
    """Search for customers, and return the externalRefs from all pages, the oldest customer first."""
    shown: list[str] = []
    page, pages, total = 1, 1, 0
    while page <= pages:
        answer = await merchant.get(f"/v1/customers?{urlencode({**query, 'page': page, 'pageSize': 2})}")
        assert answer.status == 200, answer.body
        shown += [each["externalRef"] for each in answer.json["data"]]
        pagination = answer.json["pagination"]
        page, pages, total = page + 1, pagination["totalPages"], pagination["totalRecords"]
    assert total == len(shown)
    return " ".join(shown[::-1])


SEARCHES = rows("""
    name  | email          | document           | found
    jo    |                |                    | c-1 c-2 c-3
    JOÃO  |                |                    | c-1
    joana |                |                    | c-2 c-3
    joana lima |           |                    | c-2 c-3
    lima  |                |                    |
    silva |                |                    |
    ana 5 |                |                    | c-4
    ana%  |                |                    |
    ana _ |                |                    |
    ana 50%_off |          |                    | c-4
    zé    |                |                    |
          | joao@a.example |                    | c-1
          | LIMA@a.Example |                    | c-2 c-3
          | lima@a.exampl  |                    |
          | ima@a.example  |                    |
          |                | 529.982.247-25     | c-1 c-5
          |                | 52998224725        | c-1 c-5
          |                | 529 982 247 25     | c-1 c-5
          |                | 111.444.777-35     | c-2
          |                | 12abc34501de35     | c-4
          |                | 12.ABC.345/01DE-35 | c-4
          |                | 5299822472500      |
    jo    |                | 52998224725        | c-1
    jo    | lima@a.example |                    | c-2 c-3
    joana | lima@a.example | 11144477735        | c-2
    ana   | lima@a.example |                    |
""")


async def test_customers_are_found_by_name_email_and_document(world: World) -> None:
    """[D-130, D-16, D-15]"""
    await known_customers(world)
    result: list[tuple[str, ...]] = []
    for name, email, document, _ in SEARCHES:
        given = {"name": name, "email": email, "document": document}
        query = {field: value for field, value in given.items() if value}
        result.append((name, email, document, await found(world, **query)))
    assert result == SEARCHES
    assert await found(world, externalRef="c-2", name="joana") == "c-2"
    assert await found(world, externalRef="c-1", name="joana") == ""


async def test_a_search_stays_in_its_account(world: World) -> None:
    """[D-130, spec 5.4]"""
    await known_customers(world)
    other = await world.another()
    for query in ({"name": "jo"}, {"email": "joao@a.example"}, {"document": DOCUMENT}):
        assert await found(other, **query) == ""
    await known_customers(other)
    assert await found(other, document=DOCUMENT) == "c-1 c-5"
    hashes: set[bytes] = set()
    for merchant in (world, other):
        async with connected(world.database_url, merchant.account_id) as connection:
            hashes.add(
                await connection.fetchval("SELECT document_hash FROM customer WHERE external_ref = 'c-1'")
            )
    assert len(hashes) == 2


async def test_a_corrected_customer_is_found_by_what_it_is_now(world: World) -> None:
    """[D-130, D-110]"""
    made = await known_customers(world)
    path = f"/v1/customers/{made['c-1']['customer']['id']}"

    assert (await world.patch(path, {"name": "Érica", "email": "erica@a.example"})).status == 200
    assert await found(world, name="erica", email="Erica@a.example", document=DOCUMENT) == "c-1"
    assert (await world.patch(path, {"document": OTHER_DOCUMENT})).status == 200
    assert await found(world, document=DOCUMENT) == "c-5"
    assert await found(world, document=OTHER_DOCUMENT) == "c-1 c-2"
    assert (await world.patch(path, {"document": None})).status == 200
    assert await found(world, document=OTHER_DOCUMENT) == "c-2"
    again = {"externalRef": "c-1", "name": "Ignored", "email": "ignored@a.example", "document": COMPANY}
    await world.enroll(await world.plan(), customer=again)
    assert await found(world, document=COMPANY) == "c-1 c-4"
    assert await found(world, name="ignored") == ""
    assert await world.broken() == []


async def search(world: World, document: str, *ring: str) -> list[str]:
    deps = replace(world.deps, vault=Vault(ring))
    account = await load_account(deps, world.account_id)
    wanted = CustomerFilter(document=document)
    page = await in_transaction(deps, account, customers.read_page, Page(1, 100), wanted)
    return sorted(each.external_ref for each in page.data)


@pytest.mark.parametrize("document", [DOCUMENT, "52998224725"])
async def test_documents_are_found_while_keys_rotate(world: World, document: str) -> None:
    """Between the batches of `fatura keys rotate`, a process with both keys finds every customer by document.
    After the last batch, the new key is enough to find them. A process with only the old key finds none.
    [D-130, D-15]
    """
    old, new = new_key(), new_key()
    account = await load_account(world.deps, world.account_id)
    with_old_key = replace(world.deps, vault=Vault([old]))
    for ref, name, email, stored in KNOWN:
        given = CustomerInput(ref, name, email, stored or None)
        await in_transaction(with_old_key, account, customers.create_or_reuse, given)

    expected = ["c-1", "c-5"]
    assert await search(world, document, old) == expected
    rotating = replace(world.deps, vault=Vault([new, old]))
    async for _ in key_ring.reencrypt(rotating, world.account_id, asked_by=OPERATOR, limit=1):
        assert await search(world, document, new, old) == expected
    assert await search(world, document, new) == expected
    assert await search(world, document, old) == []
