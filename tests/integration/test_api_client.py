"""Commands that call the API trust no other host and no strange answer (D-259)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support.fatura_processes import environment, run_here

CONNECTION_ID = "00000000-0000-0000-0000-000000000001"


@asynccontextmanager
async def serving(answer: web.Response) -> AsyncGenerator[tuple[str, list[str]]]:
    """Serve one answer for every request. Yield the URL, and the paths of the requests."""
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    async with _served(app) as url:
        yield url, asked


@asynccontextmanager
async def serving_a_provider(*credentials: str) -> AsyncGenerator[tuple[str, list[Any]]]:
    """Serve an account with a connection whose provider has these credentials. Yield the URL and the changes."""
    changes: list[Any] = []
    fields = [
        {"name": name, "description": name, "type": "text", "required": True, "secret": name == "token"}
        for name in credentials
    ]
    connection = {"connectionId": CONNECTION_ID, "provider": "acme"}
    known = {"provider": "acme", "settings": [], "credentials": fields}

    async def read(request: web.Request) -> web.Response:
        return web.json_response({"data": [known if request.path.endswith("providers") else connection]})

    async def change(request: web.Request) -> web.Response:
        changes.append(await request.json())
        return web.json_response(connection)

    app = web.Application()
    app.router.add_get("/{path:.*}", read)
    app.router.add_patch("/{path:.*}", change)
    async with _served(app) as url:
        yield url, changes


@asynccontextmanager
async def _served(app: web.Application) -> AsyncGenerator[str]:
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _said(url: str, *words: str) -> str:
    """Run a command that must fail without a traceback, and return what it prints to stderr."""
    env = environment(FATURA_API_KEY="rk_live_x", FATURA_API_URL=url)
    ended = await asyncio.to_thread(run_here, "gateway", *words, env=env)
    assert (ended.returncode, ended.stdout) == (1, ""), ended
    return ended.stderr


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    """The other host would receive the API key and the credentials. [D-259]"""
    async with serving(web.Response()) as (other, asked_there):
        redirect = web.Response(status=status, headers={"Location": f"{other}/v1/integration/gateways"})
        async with serving(redirect) as (url, asked):
            said = await _said(url, "list")
    assert (len(asked), asked_there) == (1, [])
    assert f"fatura: {url} redirects to {other}/v1/integration/gateways" in said


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{}",
        "null",
        "<html>",
        '{"data":[{}]}',
        '{"data":null}',
        '{"data":[{"health":5}]}',
        "[" * 200_000,
    ],
    ids=lambda body: body[:20],
)
@pytest.mark.parametrize(
    "words",
    [("list",), ("check", CONNECTION_ID), ("connect", "pix_key"), ("move", CONNECTION_ID, CONNECTION_ID)],
)
async def test_a_strange_answer_is_a_plain_error(words: tuple[str, ...], body: str) -> None:
    """[D-259]"""
    async with serving(web.Response(text=body)) as (url, _):
        said = await _said(url, *words)
    assert said.count("\n") == 1
    assert said.startswith("fatura: ")


@pytest.mark.parametrize(
    "body", ["", "[1]", '{"type":"t","detail":"d","meta":5}', '{"detail":5}', "[" * 200_000]
)
async def test_a_strange_problem_shows_the_status(body: str) -> None:
    """[D-259]"""
    async with serving(web.Response(status=400, text=body)) as (url, _):
        assert "status 400" in await _said(url, "list")


async def test_a_problem_without_meta_is_shown() -> None:
    """[D-259]"""
    async with serving(web.Response(status=400, text='{"type":"t","detail":"d","meta":null}')) as (url, _):
        assert (await _said(url, "list")).endswith("t: d\n")


async def test_new_credentials_replace_the_old_ones_as_a_whole(tmp_path: Path) -> None:
    """A PATCH replaces all credentials, also those that are no secret. [D-43, D-259]"""
    file = tmp_path / "token"
    file.write_text("secret")
    words = ("rotate", CONNECTION_ID, "--set", f"token=@{file}")
    async with serving_a_provider("user", "token") as (url, changes):
        assert "--set user=VALUE" in await _said(url, *words)
        assert changes == []
        env = environment(FATURA_API_KEY="rk_live_x", FATURA_API_URL=url)
        rotated = await asyncio.to_thread(run_here, "gateway", *words, "--set", "user=a", "--json", env=env)
    assert rotated.returncode == 0, rotated.stderr
    assert changes == [{"credentials": {"user": "a", "token": "secret"}}]
