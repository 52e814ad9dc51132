"""Fixtures of the tests in a browser: a `fatura api` process, accounts that use it, and the browser."""

import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from fatura.domain.credentials import Mode
from fatura.usecases.deps import Deps
from tests.conftest import fresh_database
from tests.support.fatura_processes import environment, free_port, running, serves
from tests.support.postgres_processes import until
from tests.support.unlimited import LOOPBACK, UNLIMITED
from tests.support.world import World, open_account, open_world

pytest.register_assert_rewrite("tests.support.browser")

START_SECONDS = 60
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
"""The commands of browsers with which the pages can be read."""


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to begin without a browser."""
    if config.option.markexpr == "browser":
        program()


def program() -> str:
    """Return the path of the browser. Raises UsageError if there is none."""
    named = os.environ.get("FATURA_BROWSER")
    found = next(filter(None, map(shutil.which, [named] if named else PROGRAMS)), None)
    if found is None:
        raise pytest.UsageError(
            f"no browser was found: {named or ', '.join(PROGRAMS)}. Debian: apt-get install chromium. "
            "On other systems, install Chromium or Chrome, and set FATURA_BROWSER to the path of its program."
        )
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A browser that is installed on this machine."""
    async with async_playwright() as driver:
        opened = await driver.chromium.launch(executable_path=program())
        yield opened
        await opened.close()


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine whose API is a `fatura api` process. Its lanes run in the process of the tests."""

    deps: Deps
    client: httpx.AsyncClient
    database_url: str

    async def open_account(self, mode: Mode) -> World:
        return World(self.deps, self.client, await open_account(self.deps, mode), self.database_url)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(server_url: str, tmp_path_factory) -> AsyncIterator[Engine]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    output = tmp_path_factory.mktemp("engine") / "api.log"
    async with fresh_database(server_url) as database_url:
        variables = {**UNLIMITED, "FATURA_OUTBOUND_ALLOW": LOOPBACK, "FATURA_PUBLIC_URL": url}
        env = environment(database_url, **variables, FATURA_LOG_LEVEL="error")
        with running("api", "--port", str(port), env=env, output=output):
            until(lambda: serves(port), seconds=START_SECONDS)
            async with open_world(database_url) as world, httpx.AsyncClient(base_url=url) as client:
                yield Engine(world.deps, client, database_url)
        said = [line for line in output.read_text().splitlines() if line.startswith("{")]
        assert said == [], "the API logs no error"


@pytest.fixture
async def shop(engine: Engine) -> World:
    """A new sandbox account, whose customers do not pay by themselves."""
    account = await engine.open_account(Mode.SANDBOX)
    await account.set_up_gateway(behaviour="never_pay")
    return account


@pytest.fixture
async def live(engine: Engine) -> World:
    """A new live account."""
    return await engine.open_account(Mode.LIVE)
