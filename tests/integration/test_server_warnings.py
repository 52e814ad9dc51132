"""Processes warn about their database server when they start."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fatura import bootstrap, settings
from fatura.postgres.releases import NEWEST_MINOR
from tests.support.databases import as_owner
from tests.support.fatura_processes import environment, free_port, running
from tests.support.postgres_processes import until, value
from tests.support.world import Json


@pytest.mark.faults
def test_processes_warn_if_their_role_owns_the_tables(database_url: str, tmp_path: Path) -> None:
    """[D-238]"""
    env = environment(as_owner(database_url))
    with (
        running("api", "--port", str(free_port()), env=env, output=tmp_path / "api.log") as api,
        running("worker", env=env, output=tmp_path / "worker.log") as worker,
    ):
        until(lambda: all("database.role_owns_tables" in each.said() for each in (api, worker)), seconds=60)


def test_an_old_minor_release_and_an_owning_role_are_logged(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-239, D-238]"""

    async def warnings(url: str) -> list[Json]:
        read = settings.read(environment(url))
        with capture_logs() as logged:
            async with bootstrap.opened(read, url) as deps:
                bootstrap.warn_of_server(deps.db)
        return [{name: line[name] for name in line if name in {"event", "newest"}} for line in logged]

    major, minor = map(int, value(database_url, "SHOW server_version").split()[0].split("."))
    assert asyncio.run(warnings(database_url)) == []

    monkeypatch.setitem(NEWEST_MINOR, major, minor + 1)
    assert asyncio.run(warnings(as_owner(database_url))) == [
        {"event": "postgres.outdated", "newest": f"{major}.{minor + 1}"},
        {"event": "database.role_owns_tables"},
    ]
