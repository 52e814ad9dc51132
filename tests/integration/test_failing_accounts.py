"""A command for all accounts skips an account that fails. The command's exit code shows this."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from fatura.store.vault import new_key
from fatura.usecases.accounts import key_ring
from fatura.usecases.deps import Deps
from tests.support.databases import as_owner
from tests.support.fatura_processes import environment, run_here
from tests.support.postgres_processes import value
from tests.support.world import Json


@pytest.fixture
def failing(database_url: str) -> tuple[dict[str, str], str]:
    """The environment of a database with three accounts, and the id of the one whose clock is out of range."""
    env = environment(database_url)
    made = [
        json.loads(run_here("account", "create", "Gym", "--mode", "sandbox", "--json", env=env).stdout)
        for _ in range(3)
    ]
    account_id = made[1]["accountId"]
    value(as_owner(database_url), "ALTER TABLE account DROP CONSTRAINT account_clock")
    moved = "UPDATE account SET clock_offset = '293000 years' RETURNING 1"
    value(database_url, moved, server_settings={"app.account": account_id})
    return env, account_id


def _ended(env: dict[str, str], *words: str) -> Json:
    ended = run_here(*words, "--json", env=env)
    assert ended.returncode == 3, ended.stderr
    return json.loads(ended.stdout)


def test_check_skips_an_account_that_fails(failing: tuple[dict[str, str], str]) -> None:
    """[D-216]"""
    env, account_id = failing
    report = _ended(env, "check")
    assert (report["accounts"], report["findings"]) == (3, [])
    assert [each["accountId"] for each in report["notChecked"]] == [account_id]
    shown = run_here("check", env=env)
    assert f"account {account_id} was not checked: " in shown.stderr
    assert "clean" not in shown.stdout


def test_check_writes_no_metrics_if_an_account_fails(
    failing: tuple[dict[str, str], str], tmp_path: Path
) -> None:
    """[D-216]"""
    env, _ = failing
    file = tmp_path / "fatura.prom"
    _ended(env, "check", "--textfile", str(file))
    assert not file.exists()


def test_keys_rotate_skips_an_account_that_fails(failing: tuple[dict[str, str], str]) -> None:
    """[D-216]"""
    env, account_id = failing
    report = _ended(env, "keys", "rotate")
    assert [each["accountId"] for each in report["failed"]] == [account_id]


def test_keys_list_marks_no_key_as_removable_if_an_account_fails(
    failing: tuple[dict[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-216]"""
    env, account_id = failing
    env["FATURA_SECRET_KEYS"] += f",{new_key()}"

    async def unreadable(deps: Deps, key_of: UUID) -> Mapping[bytes, int]:
        assert str(key_of) != account_id
        return await usage(deps, key_of)

    usage = key_ring.usage
    monkeypatch.setattr(key_ring, "usage", unreadable)
    report = _ended(env, "keys", "list")
    assert [each["accountId"] for each in report["failed"]] == [account_id]
    assert [(each["values"] > 0, each["state"]) for each in report["keys"]] == [
        (True, "encrypts new values"),
        (False, "keep it: some accounts could not be read"),
    ]


def test_restored_skips_an_account_that_fails(failing: tuple[dict[str, str], str], database_url: str) -> None:
    """[D-216, D-123]"""
    env, account_id = failing
    report = _ended(env, "restored", "--since", datetime.now(UTC).isoformat())
    assert report["accounts"] == 3
    assert [(each["accountId"], each["frozen"]) for each in report["notCompared"]] == [(account_id, True)]
    frozen = "SELECT string_agg(account_id::text, ' ') FROM account WHERE recovering_since IS NOT NULL"
    assert value(database_url, frozen, server_settings={"app.discover": "on"}) == account_id
