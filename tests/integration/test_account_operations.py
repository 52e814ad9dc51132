"""`fatura account list | show | suspend | resume | key create | key revoke`, for operators (D-242, D-243)."""

import json
import re
from http.client import HTTPConnection
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fatura.cli import app
from tests.support.expect import UNKNOWN_ID
from tests.support.fatura_processes import (
    environment,
    free_port,
    run,
    run_here,
    running,
    serves,
    written_credentials,
)
from tests.support.operator import audited
from tests.support.postgres_processes import until
from tests.support.world import Json


@pytest.fixture
def env(database_url: str) -> dict[str, str]:
    return environment(database_url)


def ask(*words: str, env: dict[str, str]) -> Json:
    """Run `fatura account ... --json`, which must succeed, and return what it printed."""
    ended = run_here("account", *words, "--json", env=env)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def opened(env: dict[str, str], *, name: str = "Gym", mode: str = "sandbox") -> Json:
    return ask("create", name, "--mode", mode, env=env)


def test_accounts_are_listed_with_their_status(env: dict[str, str]) -> None:
    """[D-243]"""
    assert ask("list", env=env) == {"accounts": []}
    ids = [opened(env, name=f"Gym [red]{number}")["accountId"] for number in range(3)]
    ask("suspend", ids[1], env=env)

    listed = ask("list", env=env)["accounts"]

    assert [(each["accountId"], each["status"]) for each in listed] == [
        (ids[0], "active"),
        (ids[1], "suspended"),
        (ids[2], "active"),
    ]
    table = run_here("account", "list", env={**env, "COLUMNS": "80"})
    assert table.returncode == 0
    assert all(each in table.stdout for each in [*ids, "Gym [red]0", "suspended"])


def test_show_names_everything_but_secrets(env: dict[str, str]) -> None:
    """[D-243]"""
    account = opened(env)
    shown = ask("show", account["accountId"], env=env)

    assert (shown["name"], shown["mode"], shown["status"], shown["suspendedAt"]) == (
        "Gym",
        "sandbox",
        "active",
        None,
    )
    assert shown["totals"]["subscriptions_active"] == 0
    [key] = shown["apiKeys"]
    assert (key["name"], key["scopes"], key["lastUsedAt"]) == ("first key", ["read", "write", "admin"], None)
    assert [(each["provider"], each["active"]) for each in shown["gateways"]] == [("sandbox", True)]
    text = run_here("account", "show", account["accountId"], env={**env, "COLUMNS": "80"})
    assert max(map(len, text.stdout.splitlines())) <= 80
    assert re.search(rf"{shown['gateways'][0]['connectionId']}.* yes ", text.stdout)
    for printed in (json.dumps(shown), text.stdout):
        assert key["id"] in printed
        assert account["apiKey"] not in printed
        assert account["secret"] not in printed


def test_suspend_and_resume_are_safe_to_repeat(database_url: str, env: dict[str, str]) -> None:
    """[D-242, D-223]"""
    account_id = opened(env, mode="live")["accountId"]
    suspended = ask("suspend", account_id, env=env)
    assert suspended["status"] == "suspended"
    assert ask("suspend", account_id, env=env) == suspended
    assert ask("show", account_id, env=env)["suspendedAt"] == suspended["suspendedAt"]

    resumed = ask("resume", account_id, env=env)

    assert resumed == {"accountId": account_id, "status": "active", "suspendedAt": None}
    assert ask("resume", account_id, env=env) == resumed
    assert "was not suspended" in run_here("account", "resume", account_id, env=env).stdout
    assert audited(database_url, account_id) == ["account.create", "account.suspend", "account.resume"]


@pytest.mark.faults
def test_an_operator_can_replace_a_lost_key(database_url: str, env: dict[str, str], tmp_path: Path) -> None:
    """[D-243]"""
    account = opened(env)
    account_id = account["accountId"]
    [lost] = ask("show", account_id, env=env)["apiKeys"]
    port = free_port()
    with running("api", "--port", str(port), env=env, output=tmp_path / "api.log"):
        until(lambda: serves(port), seconds=30)
        assert status(port, account["apiKey"]) == 200
        revoked = ask("key", "revoke", account_id, lost["id"], env=env)
        assert revoked == {"accountId": account_id, "id": lost["id"], "revoked": True}
        assert status(port, account["apiKey"]) == 401
        assert ask("show", account_id, env=env)["apiKeys"] == []

        made = ask("key", "create", account_id, "--name", "found", env=env)

        assert (made["name"], made["scopes"]) == ("found", ["read", "write", "admin"])
        assert status(port, made["key"]) == 200
    assert audited(database_url, account_id) == ["account.create", "api_key.revoke", "api_key.create"]


def status(port: int, key: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/v1/integration/api-keys", headers={"Authorization": f"Bearer {key}"})
    found = connection.getresponse().status
    connection.close()
    return found


def test_a_new_key_goes_to_a_file_unless_a_terminal_shows_it(env: dict[str, str], tmp_path: Path) -> None:
    """[D-243, D-208]"""
    account_id = opened(env)["accountId"]
    words = (
        "account",
        "key",
        "create",
        account_id,
        "--name",
        "reports",
        "--scope",
        "read",
        "--data-dir",
        str(tmp_path),
    )
    ended = run(*words, "--expires", "2099-01-31T12:00:00Z", env=env)
    assert ended.returncode == 0, ended.stderr
    assert "rk_test_" not in ended.stdout
    assert "rk_test_" in written_credentials(ended.stdout)
    [_, key] = ask("show", account_id, env=env)["apiKeys"]
    assert (key["scopes"], key["expiresAt"]) == (["read"], "2099-01-31T12:00:00.000Z")


@pytest.mark.parametrize(
    "words",
    [
        ["show", UNKNOWN_ID],
        ["suspend", UNKNOWN_ID],
        ["resume", UNKNOWN_ID],
        ["erase-customer", UNKNOWN_ID, UNKNOWN_ID],
        ["key", "create", UNKNOWN_ID, "--name", "x"],
        ["key", "revoke", UNKNOWN_ID, UNKNOWN_ID],
    ],
)
def test_an_unknown_account_is_an_error_in_one_line(env: dict[str, str], words: list[str]) -> None:
    """[D-243]"""
    ended = run_here("account", *words, env=env)
    assert (ended.returncode, ended.stdout) == (1, "")
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("fatura: ")
    assert f"{UNKNOWN_ID}; `fatura account list` shows the ids." in last


def test_an_unknown_key_and_a_past_expiry_are_errors(env: dict[str, str]) -> None:
    """[D-243]"""
    account_id = opened(env)["accountId"]
    unknown = run_here("account", "key", "revoke", account_id, UNKNOWN_ID, env=env)
    assert (unknown.returncode, unknown.stdout) == (1, "")
    words = ("account", "key", "create", account_id, "--name", "x", "--expires", "2001-01-01T00:00:00Z")
    past = run_here(*words, env=env)
    assert (past.returncode, past.stdout) == (1, "")
    assert "expiresAt must be later than now" in past.stderr
    assert len(ask("show", account_id, env=env)["apiKeys"]) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["suspend"],
        ["suspend", "no-id"],
        ["erase-customer", UNKNOWN_ID],
        ["key", "create", UNKNOWN_ID],
        ["key", "create", UNKNOWN_ID, "--name", " "],
        ["key", "create", UNKNOWN_ID, "--name", "x", "--scope", "all"],
        ["key", "create", UNKNOWN_ID, "--name", "x", "--expires", "tomorrow"],
        ["key", "revoke", UNKNOWN_ID],
    ],
)
def test_wrong_arguments_exit_with_2(env: dict[str, str], words: list[str]) -> None:
    """[D-243]"""
    assert run_here("account", *words, env=env).returncode == 2


def test_the_shell_completes_the_commands() -> None:
    """[D-243]"""
    asked = {"_FATURA_COMPLETE": "complete_bash", "COMP_WORDS": "fatura account ", "COMP_CWORD": "2"}
    completed = CliRunner().invoke(app, [], prog_name="fatura", env=asked)
    assert set(completed.stdout.split()) == {
        "create",
        "list",
        "show",
        "suspend",
        "resume",
        "key",
        "erase-customer",
    }
