"""`fatura account`: open accounts, and show their credentials."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fatura.cli import app
from tests.support.fatura_processes import environment, run, run_here, written_credentials
from tests.support.operator import audited
from tests.support.postgres_processes import value
from tests.support.world import Json


@pytest.mark.parametrize(("mode", "prefix"), [("sandbox", "rk_test_"), ("live", "rk_live_")])
def test_account_create_prints_the_secrets_once(database_url: str, mode: str, prefix: str) -> None:
    """[D-47, D-44, D-223]"""
    made = run_here("account", "create", "Gym", "--mode", mode, "--json", env=environment(database_url))

    assert made.returncode == 0, made.stderr
    account: Json = json.loads(made.stdout)
    assert set(account) == {"accountId", "apiKey", "secret"}
    assert account["apiKey"].startswith(prefix)
    assert account["secret"].startswith("whsec_")
    stored = value(
        database_url,
        "SELECT name || ' ' || mode FROM account",
        server_settings={"app.account": account["accountId"]},
    )
    assert stored == f"Gym {mode}"
    assert audited(database_url, account["accountId"]) == ["account.create"]
    assert made.stdout.count("\n") == 1


@pytest.mark.faults
def test_credentials_are_printed_only_on_a_terminal(database_url: str, tmp_path: Path) -> None:
    """[D-208]"""
    words = ("account", "create", "Gym", "--mode", "live", "--data-dir", str(tmp_path / "data"))
    controlling, terminal = pty.openpty()
    with os.fdopen(controlling, "rb") as shown:
        command = [sys.executable, "-m", "fatura", *words]
        env = environment(database_url)
        subprocess.run(command, env=env, stdout=terminal, stderr=subprocess.DEVNULL, check=True)
        os.close(terminal)
        assert re.search(rb"API key +rk_live_\w+\r\nsecret +whsec_\S+\r\n", shown.read1())
    assert not (tmp_path / "data").exists()

    logged = run(*words, env=environment(database_url))
    again = run(*words, env=environment(database_url))

    assert (logged.returncode, again.returncode) == (0, 0)
    for text in (logged.stdout, again.stdout):
        assert "rk_live_" not in text
        assert re.search(r"API key +rk_live_\w+\nsecret +whsec_\S+\n", written_credentials(text))
    assert written_credentials(logged.stdout) != written_credentials(again.stdout)


def test_credentials_that_cannot_be_written_are_reported(database_url: str, tmp_path: Path) -> None:
    """[D-208]"""
    taken = tmp_path / "data"
    taken.write_text("a file in place of the folder")
    refused = run_here(
        "account", "create", "Gym", "--mode", "live", "--data-dir", str(taken), env=environment(database_url)
    )
    assert (refused.returncode, refused.stdout) == (1, "")
    last = refused.stderr.splitlines()[-1]
    assert re.match(rf"fatura: cannot write new credentials to {taken}/account-", last)
    assert "--json" in last


@pytest.mark.parametrize(
    "words",
    [
        ["Gym"],
        ["Gym", "--mode", "test"],
        ["--mode", "live"],
        [" ", "--mode", "live"],
        ["x" * 121, "--mode", "live"],
    ],
    ids=["no mode", "unknown mode", "no name", "blank name", "long name"],
)
def test_account_create_refuses_invalid_options(words: list[str]) -> None:
    """[D-47]"""
    assert CliRunner().invoke(app, ["account", "create", *words]).exit_code == 2
