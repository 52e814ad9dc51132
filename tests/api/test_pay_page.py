"""Responses of pay pages: headers, refused links, limits, and the look that the merchant sets."""

import asyncio
import base64
import functools
import hashlib
import re
import secrets
from dataclasses import replace
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from fatura.api.http.rate_limits import BURST_PERIODS, PAGES_OF_ACCOUNT
from fatura.api.pay_page.routes import MAX_QUERY_BYTES
from fatura.bootstrap import Address
from fatura.domain.pay_page import MAX_LOGO_CHARS
from fatura.store.db import connect
from fatura.usecases.pay_page import pages
from tests.support import world as worlds
from tests.support.expect import invalid, problem
from tests.support.pay_pages import Shown, in_base64, open_page, page_of, png, press_button, token_of
from tests.support.sandbox_steps import issued_invoice, reads_held, until_waiting
from tests.support.world import World, api_client, open_world

LOOK = "/v1/integration/pay-page"
WAITING = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
GUESSES = 1000


def policy(shown: Shown) -> dict[str, str]:
    """Return the Content-Security-Policy of a page, by directive."""
    parts = [each.split(" ", 1) for each in shown.headers["content-security-policy"].split("; ")]
    return {name: value for name, value in parts}  # noqa: C416 - each part has two


def check_headers(shown: Shown) -> None:
    """Check the headers that all pages have, error pages included."""
    headers = shown.headers
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["x-robots-tag"] == "noindex, nofollow"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in headers
    allowed = policy(shown)
    assert allowed["default-src"] == allowed["frame-ancestors"] == allowed["base-uri"] == "'none'"
    assert {"script-src", "connect-src", "font-src"} & set(allowed) == set()
    [rules] = re.findall("<style>(.*)</style>", shown.html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(rules.encode()).digest()).decode()
    assert allowed["style-src"] == f"'sha256-{digest}'"
    assert not re.search(r"<script|javascript:|@import|url\(|https?://(?!sandbox\.invalid)", shown.html)
    assert shown.parsed.all("html")[0]["lang"] == headers["content-language"]


async def test_a_page_allows_only_what_it_needs(world: World) -> None:
    """[D-258]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    shown = await page_of(world, invoice)
    check_headers(shown)
    assert policy(shown)["form-action"] == "'self'"
    assert "img-src" not in policy(shown)

    await world.put(LOOK, {"logo": in_base64(png()), "color": "#7a0019"})
    with_logo = await page_of(world, invoice)
    check_headers(with_logo)
    assert policy(with_logo)["img-src"] == "data:"
    assert policy(with_logo)["style-src"] != policy(shown)["style-src"]

    await press_button(world, invoice)
    await world.run()
    paid = await page_of(world, invoice)
    check_headers(paid)
    assert policy(paid)["form-action"] == "'none'"


async def test_the_language_is_that_of_the_browser(world: World) -> None:
    """[D-258]"""
    token = token_of(world, await issued_invoice(world))
    for query, accepted, language, other in (
        ("", "en-US,en;q=0.9", "en", "pt-BR"),
        ("?lang=pt-BR", "en-US", "pt-BR", "en"),
        ("", "", "pt-BR", "en"),
    ):
        shown = await open_page(world, token, query, **{"accept-language": accepted})
        assert shown.headers["content-language"] == language
        assert shown.parsed.all("a")[-1] == {"href": f"?lang={other}", "hreflang": other, "lang": other}


async def test_all_refused_links_get_the_same_answer(world: World) -> None:
    """The answer does not reveal whether a link is unknown, changed, replaced, or of another account. [D-258]"""
    other = await world.another()
    invoice = await issued_invoice(world)
    token = token_of(world, invoice)
    await world.made(f"/v1/invoices/{invoice['id']}/pay-link/rotate")
    refused = [
        await open_page(world, each)
        for each in (
            "x",
            token[:-1],
            f"{token}A",
            token[::-1],
            token,
            token_of(other, invoice),
            "%00",
            "%C3",
        )
    ]
    assert {each.status for each in refused} == {404}
    assert len({each.html for each in refused}) == 1
    check_headers(refused[0])
    unique = {"x-request-id"}
    headers = [
        {name: value for name, value in each.headers.items() if name not in unique} for each in refused
    ]
    assert all(each == headers[0] for each in headers)
    assert (await press_button(world, invoice)).status_code == 404


class Counting(asyncpg.Connection):  # pyright: ignore[reportMissingTypeArgument] - not generic at run time
    """A connection that counts the statements of all connections."""

    count = 0

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        Counting.count += 1
        return await super().execute(query, *args, **options)

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        Counting.count += 1
        return await super().fetch(query, *args, **options)

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        Counting.count += 1
        return await super().fetchrow(query, *args, **options)

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        Counting.count += 1
        return await super().fetchval(query, *args, **options)


async def test_guessed_links_cost_no_statement(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[D-258]"""
    monkeypatch.setattr(worlds, "connect", functools.partial(connect, connection_class=Counting))
    async with open_world(database_url, FATURA_PAY_PAGE_RATE_LIMIT="1") as world:
        invoice = await issued_invoice(world)
        before = Counting.count
        guessed = [await open_page(world, secrets.token_urlsafe(54)) for _ in range(GUESSES)]
        assert Counting.count == before
        assert {each.status for each in guessed} == {404}
        assert len({each.html for each in guessed}) == 1
        check_headers(guessed[0])
        assert (await page_of(world, invoice)).status == 200
        assert Counting.count > before


async def test_the_views_of_a_page_are_limited(database_url: str) -> None:
    """The limit of one page does not affect pages with other links. [D-258]"""
    async with open_world(database_url, FATURA_PAY_PAGE_RATE_LIMIT="2") as world:
        await world.set_up_gateway(behaviour="never_pay")
        invoice, other = await issued_invoice(world), await issued_invoice(world)
        shown = [await page_of(world, invoice) for _ in range(6)]
        assert [each.status for each in shown] == [200] * 4 + [429] * 2
        assert 1 <= int(shown[-1].headers["retry-after"]) <= 60
        assert shown[-1].heading == "Too many views"
        check_headers(shown[-1])
        assert (await press_button(world, invoice)).status_code == 429
        assert (await page_of(world, other)).status == 200
        assert (await world.get("/v1/invoices")).status == 200


async def test_a_replaced_link_cannot_use_up_the_views_of_the_new_one(database_url: str) -> None:
    """A replaced link always gets the same answer as an unknown link. [D-258]"""
    async with open_world(database_url, FATURA_PAY_PAGE_RATE_LIMIT="2") as world:
        invoice = await issued_invoice(world)
        await world.made(f"/v1/invoices/{invoice['id']}/pay-link/rotate")
        replaced = [await page_of(world, invoice) for _ in range(10)]
        unknown = await open_page(world, "x")
        assert {(each.status, each.html) for each in replaced} == {(404, unknown.html)}
        assert (await page_of(world, invoice, version=1)).status == 200


async def test_the_views_of_all_pages_of_an_account_are_limited(database_url: str) -> None:
    """[D-258]"""
    async with open_world(database_url, FATURA_PAY_PAGE_RATE_LIMIT="1") as world:
        await world.set_up_gateway(behaviour="never_pay")
        other = await world.another()
        invoice = await issued_invoice(world)
        absent = [{"id": str(UUID(int=number))} for number in range(BURST_PERIODS * PAGES_OF_ACCOUNT)]
        for each in absent:
            assert (await page_of(world, each)).status == 404
        assert (await page_of(world, invoice)).status == 429
        assert (await page_of(world, absent[0])).status == 404
        assert (await page_of(other, absent[0])).status == 404


async def test_the_pages_of_an_account_share_one_database_connection(world: World) -> None:
    """Somebody who knows many links cannot use up the database connections of the API. [D-258]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoices = [await issued_invoice(world) for _ in range(2)]
    async with reads_held(world, "invoice_item"):
        opening = [asyncio.create_task(page_of(world, each)) for each in invoices * 50]
        await until_waiting(world)
        for _ in range(20):
            assert (await world.get("/v1/products")).status == 200
        assert len(await world.sql(WAITING)) == 1
    assert {each.status for each in await asyncio.gather(*opening)} == {200}


async def test_a_page_says_that_it_is_unavailable(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """[D-258]"""
    invoice = await issued_invoice(world)
    monkeypatch.setattr("fatura.store.open_transaction.ACQUIRE_TIMEOUT_SECONDS", 0)
    shown = await page_of(world, invoice)
    assert (shown.status, shown.heading) == (503, "Page unavailable")
    assert shown.headers["retry-after"] == "1"
    check_headers(shown)


async def test_head_and_other_methods(world: World) -> None:
    """Every answer under `/pay/` has the headers of the page. [D-258]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    path = f"/pay/{token_of(world, invoice)}"
    assert (await world._client.head(path)).status_code == 200
    for method, each, status in (
        *(("POST", path, 405), ("OPTIONS", path, 405), ("GET", f"{path}/sandbox-payment", 405)),
        *(("GET", f"{path}/", 404), ("GET", "/pay/a/b", 404), ("GET", "/pay/", 404)),
    ):
        refused = await world._client.request(method, each)
        shown = Shown(refused.status_code, refused.headers, refused.text)
        assert (shown.status, "allow" in shown.headers) == (status, status == 405)
        check_headers(shown)
    pressed = await press_button(world, invoice)
    assert pressed.headers["referrer-policy"] == "no-referrer"
    assert pressed.headers["content-security-policy"].startswith("default-src 'none'")
    assert (await world._client.get("/payments")).json()["type"] == "engine.not_found"


async def test_an_unexpected_error_has_a_page(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """[D-258]"""

    async def broken(*_: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(pages, "find", broken)
    shown = await page_of(world, await issued_invoice(world))
    assert (shown.status, shown.heading) == (500, "Page unavailable")
    check_headers(shown)


async def test_a_long_query_is_ignored(world: World) -> None:
    """A guessed link must be cheap to refuse, so the page does not read a long query. [D-258]"""
    for length, language in ((MAX_QUERY_BYTES, "en"), (MAX_QUERY_BYTES + 1, "pt-BR")):
        shown = await open_page(world, "x", f"?lang=en&{'a' * (length - 8)}")
        assert (shown.status, shown.headers["content-language"]) == (404, language)


async def test_the_look_is_replaced_and_shown(world: World) -> None:
    """[D-258]"""
    logo = in_base64(png())
    assert (await world.get(LOOK)).json == {"name": "Test", "color": None, "logo": None}
    look = {"name": "Academia Sol", "color": "#7A0019", "logo": logo}
    stored = {**look, "color": "#7a0019"}
    assert (await world.put(LOOK, look)).json == stored
    assert (await world.get(LOOK)).json == stored
    shown = await page_of(world, await issued_invoice(world))
    assert "--brand:#7a0019" in shown.html
    assert "Academia Sol" in shown.parsed.by_tag["p"]
    assert shown.parsed.all("img") == [{"src": f"data:image/png;base64,{logo}", "alt": ""}]

    assert (await world.put(LOOK, {})).json == {"name": "Test", "color": None, "logo": None}
    entries = await world.audit("pay_page.update")
    assert [each["after"] for each in entries] == [
        {"name": "Academia Sol", "color": "#7a0019", "logo": "[redacted]"},
        {"name": "Test", "color": None, "logo": None},
    ]
    assert {each["resource"]["id"] for each in entries} == {str(world.account_id)}
    other = await world.another()
    assert (await other.get(LOOK)).json["color"] is None


INVALID = [
    ("name", ""),
    ("name", " "),
    ("name", "x" * 121),
    ("name", "a\u202eb"),
    ("color", "red"),
    ("color", "#fff"),
    ("logo", ""),
    ("logo", "https://merchant.example/logo.png"),
    ("logo", "A" * (MAX_LOGO_CHARS + 4)),
    ("logo", in_base64(png(1025, 1))),
    ("font", "x"),
]


async def test_an_invalid_look_is_refused(world: World) -> None:
    """[D-258]"""
    for field, value in INVALID:
        assert set(invalid(await world.put(LOOK, {field: value}))) == {field}
    assert await world.audit("pay_page.update") == []


async def test_only_an_admin_key_sets_the_look(world: World) -> None:
    """[D-258, D-64 scopes]"""
    key = await world.made("/v1/integration/api-keys", {"name": "x", "scopes": ["read", "write"]})
    headers = {"Authorization": f"Bearer {key['key']}"}
    assert (await world.get(LOOK, headers=headers)).status == 200
    refused = await world.put(LOOK, {}, headers=headers)
    assert problem(refused) == (403, "engine.forbidden", {"scope": "admin"})


async def test_a_sandbox_account_gets_the_address_of_the_api(world: World) -> None:
    """[D-258]"""
    invoice = await issued_invoice(world)
    assert invoice["payUrl"] is invoice["payment"]["payUrl"] is None
    for host, shown in (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]")):  # noqa: S104 - not bound
        deps = replace(world.deps, listens_at=Address(host, 8000).url)
        async with api_client(deps) as client:
            headers = {"Authorization": f"Bearer {world.api_key}"}
            read = await client.get(f"/v1/invoices/{invoice['id']}", headers=headers)
        assert read.json()["payUrl"] == f"http://{shown}:8000/pay/{token_of(world, invoice)}"
