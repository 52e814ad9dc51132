"""`fatura erased` (D-230) exports the ids of erased customers, and erases them again after a restore from a backup.

`fatura account erase-customer` (D-255) erases one customer.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from fatura import settings
from fatura.bootstrap import opened
from fatura.domain.credentials import Mode
from fatura.workers.lanes import LANES
from tests.support.erasure_steps import CUSTOMER, erase, erased_form
from tests.support.expect import UNKNOWN_ID
from tests.support.fatura_processes import environment, run_here
from tests.support.operator import audited
from tests.support.world import Json, Merchant, api_client, open_account, run_until_idle


@asynccontextmanager
async def merchant(database_url: str, *, of: Merchant | None = None) -> AsyncGenerator[Merchant]:
    """Yield a merchant of this database that has the account of `of`, or a new account.

    Its engine uses the same key ring as the commands.
    """
    async with (
        opened(settings.read(environment(database_url)), database_url) as deps,
        api_client(deps) as client,
    ):
        account = of or await open_account(deps, Mode.SANDBOX)
        yield Merchant(deps, client, account)  # type: ignore[arg-type] - `of` also has an id and a key


def command(database_url: str, *words: str) -> Json:
    done = run_here("erased", *words, env=environment(database_url))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_erased_customers_are_exported_by_id(database_url: str):
    """[D-230]"""

    async def erase_one() -> tuple[str, str]:
        async with merchant(database_url) as account:
            plan = await account.plan()
            gone, _ = await account.enroll(plan, customer=CUSTOMER), await account.enroll(plan)
            await account.made(f"/v1/subscriptions/{gone['id']}/cancel")
            assert (await erase(account, gone["customer"]["id"])).status == 200
            return str(account.account_id), gone["customer"]["id"]

    account_id, customer_id = asyncio.run(erase_one())
    lines = command(database_url, "export").splitlines()

    assert [json.loads(line) for line in lines] == [{"accountId": account_id, "customerId": customer_id}]


def test_the_list_erases_customers_of_a_restored_database(database_url: str, tmp_path: Path):
    """In the restored backup, the customer has an active subscription and an open invoice. [D-230, D-227, D-223]"""

    async def restored() -> tuple[Merchant, Json, Json]:
        async with merchant(database_url) as account:
            subscription = await account.enroll(await account.plan(), customer=CUSTOMER)
            await run_until_idle(account.deps, [lane for lane in LANES if lane.name == "generation"])
            [invoice] = await account.invoices()
            assert invoice["status"] == "ready"
            return account, subscription, invoice

    before, subscription, invoice = asyncio.run(restored())
    customer_id = subscription["customer"]["id"]
    account_id = str(before.account_id)
    listed = [(account_id, customer_id), (account_id, UNKNOWN_ID), (str(uuid4()), customer_id)]
    file = tmp_path / "erased.jsonl"
    file.write_text(
        "\n".join(json.dumps({"accountId": account, "customerId": customer}) for account, customer in listed)
    )
    first = json.loads(command(database_url, "apply", str(file), "--json"))
    second = json.loads(command(database_url, "apply", str(file), "--json"))

    assert first == {
        "erased": 1,
        "erasedBefore": 0,
        "unknown": 2,
        "canceledSubscriptions": 1,
        "openInvoices": [{"accountId": account_id, "invoiceId": invoice["id"]}],
        "failed": [],
    }
    assert (second["erased"], second["erasedBefore"], second["unknown"]) == (0, 1, 2)
    assert second["openInvoices"] == first["openInvoices"]
    assert audited(database_url, account_id)[-2:] == ["subscription.cancel", "customer.erase"]

    async def afterwards() -> None:
        async with merchant(database_url, of=before) as account:
            shown = (await account.get(f"/v1/subscriptions/{subscription['id']}")).json
            assert (shown["status"], shown["customer"]) == ("canceled", erased_form(customer_id))
            await run_until_idle(account.deps, LANES)
            assert (await account.get("/v1/sandbox/charges")).json["data"] == []
            left = (await account.get(f"/v1/invoices/{invoice['id']}")).json
            assert (left["status"], left["issueError"]["code"]) == ("ready", "customer_erased")
            assert await account.events("invoice.issue_failed")
            assert (await account.post(f"/v1/invoices/{invoice['id']}/cancel")).status == 200

    asyncio.run(afterwards())


def test_a_refused_erasure_prints_what_is_in_use(database_url: str):
    """[D-255, D-227]"""

    async def billed() -> tuple[Merchant, Json, Json]:
        async with merchant(database_url) as account:
            subscription = await account.enroll(await account.plan(), customer=CUSTOMER)
            await run_until_idle(account.deps, [lane for lane in LANES if lane.name == "generation"])
            [invoice] = await account.invoices()
            return account, subscription["customer"], invoice

    before, customer, invoice = asyncio.run(billed())
    words = ("account", "erase-customer", str(before.account_id), customer["id"])

    refused = run_here(*words, env=environment(database_url))

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[-1] == f"invoiceIds: {invoice['id']}"

    async def cancel() -> None:
        async with merchant(database_url, of=before) as account:
            assert (await account.post(f"/v1/invoices/{invoice['id']}/cancel")).status == 200

    asyncio.run(cancel())
    done = run_here(*words, env=environment(database_url))
    assert done.stdout == f"1 subscription canceled.\nCustomer {customer['id']} is erased.\n"


def test_a_malformed_list_erases_nobody(database_url: str, tmp_path: Path):
    """[D-230]"""
    file = tmp_path / "erased.jsonl"
    for line in (
        "x",
        "[]",
        "{}",
        '{"accountId": 1, "customerId": 2}',
        '{"accountId": "x", "customerId": "x"}',
    ):
        file.write_text(f'{{"accountId": "{uuid4()}", "customerId": "{uuid4()}"}}\n\n{line}\n')
        refused = run_here("erased", "apply", str(file), env=environment(database_url))
        assert refused.returncode == 2
        assert "line 3" in refused.stderr
        assert "nothing was erased" in refused.stderr.replace("\n", " ")


def test_restored_reminds_of_the_list(database_url: str):
    """[D-230]"""
    since = "2026-11-20T03:00:00Z"
    compared = run_here("restored", "--since", since, "--dry-run", env=environment(database_url))

    assert compared.returncode == 0, compared.stderr
    assert "fatura erased apply FILE" in compared.stderr
    assert "then repeat `fatura restored`" in compared.stderr.replace("\n", " ")
