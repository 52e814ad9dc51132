"""The commands of `fatura`: output, exit codes and messages."""

import asyncio
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from typer.testing import CliRunner

from fatura import reference
from fatura.bootstrap import Address
from fatura.cli import app, client
from fatura.cli.up import greet_when_ready
from tests.conftest import database_url_of
from tests.support.databases import as_superuser
from tests.support.fatura_processes import (
    environment,
    free_port,
    is_open,
    run,
    run_here,
    running,
    serves,
    written_credentials,
)
from tests.support.postgres_processes import until, value
from tests.support.world import Json

COMMANDS = (
    "up",
    "api",
    "worker",
    "migrate",
    "account",
    "account create",
    "demo",
    "listen",
    "trigger",
    "events",
    "events tail",
    "events resend",
    "check",
    "restored",
    "states",
    "openapi",
)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_command_has_a_help_text(command: str) -> None:
    """[D-47]"""
    shown = CliRunner().invoke(app, [*command.split(), "--help"])

    assert shown.exit_code == 0
    assert f"Usage: fatura {command}".strip() in shown.output
    if not command:
        assert [each for each in COMMANDS if " " not in each and f" {each} " not in shown.output] == []


def test_an_unknown_command_exits_with_2() -> None:
    assert re.fullmatch(r"fatura \d+\.\d+\.\d+\n", run("--version", env=environment()).stdout)
    assert CliRunner().invoke(app, ["bill"]).exit_code == 2


def _value_of(database_url: str, account_id: str, sql: str) -> Json:
    return value(database_url, sql, server_settings={"app.account": account_id})


def test_a_second_migrate_does_nothing(server_url: str) -> None:
    """[D-47]"""
    value(as_superuser(server_url), "CREATE DATABASE empty_for_migrate OWNER fatura")
    env = environment(database_url_of(server_url, "empty_for_migrate"))

    early = run_here("worker", env=env)
    assert early.returncode == 1
    assert re.fullmatch(
        r"fatura: the database lacks \d+ migration\(s\); run `fatura migrate` first\n", early.stderr
    )

    first, second = run_here("migrate", env=env), run_here("migrate", env=env)
    assert (first.returncode, second.returncode) == (0, 0)
    assert all(re.fullmatch(r"applied \d{4}_\w+(\.sql)?", line) for line in first.stdout.splitlines())
    assert len(first.stdout.splitlines()) >= 3
    assert second.stdout == "nothing to do: the database is up to date\n"


def test_openapi_and_states_print_the_reference(database_url: str) -> None:
    document = CliRunner().invoke(app, ["openapi"])
    assert json.loads(document.output)["openapi"].startswith("3.")
    assert "/v1/test-clock/advance" in json.loads(document.output)["paths"]

    states = CliRunner().invoke(app, ["states"])
    assert states.output == reference.states_page()
    assert "| issued" in states.output


def test_check_of_valid_data_exits_with_0(database_url: str) -> None:
    env = environment(database_url)
    assert run_here("check", env=env).stdout == "clean: every invariant holds in 0 account(s)\n"
    run_here("account", "create", "Gym", "--mode", "live", "--json", env=env)

    checked = run_here("check", env=env)
    assert (checked.returncode, checked.stdout) == (0, "clean: every invariant holds in 1 account(s)\n")
    report = json.loads(run_here("check", "--json", env=env).stdout)
    assert report == {"accounts": 1, "findings": [], "notChecked": []}


def test_check_of_invalid_data_exits_with_1(database_url: str) -> None:
    env = environment(database_url)
    made = json.loads(run_here("account", "create", "Gym", "--mode", "live", "--json", env=env).stdout)
    _value_of(database_url, made["accountId"], "UPDATE account_counter SET products = 7 RETURNING 1")

    ended = run_here("check", env=env)
    assert ended.returncode == 1
    assert "list_totals" in ended.stdout
    assert made["accountId"] in ended.stdout

    (finding,) = json.loads(run_here("check", "--json", env=env).stdout)["findings"]
    assert (finding["invariant"], finding["offenders"]) == ("list_totals", [made["accountId"]])


def test_check_reports_a_lost_account(database_url: str) -> None:
    """[D-28]"""
    env = environment(database_url)
    create = ("account", "create", "Gym", "--mode", "live", "--json")
    _, made = (json.loads(run_here(*create, env=env).stdout) for _ in range(2))
    lost = f"DELETE FROM account WHERE account_id = '{made['accountId']}' RETURNING 1"  # noqa: S608 - an id
    value(as_superuser(database_url), lost, server_settings={"session_replication_role": "replica"})

    ended = run_here("check", "--json", env=env)
    assert ended.returncode == 1
    report = json.loads(ended.stdout)
    assert report["accounts"] == 1
    assert [(each["accountId"], each["invariant"]) for each in report["findings"]] == [
        (made["accountId"], "accounts_stored")
    ]


MISTAKES = (
    (
        {"FATURA_LOG_LEVEL": "loud"},
        "FATURA_LOG_LEVEL is 'loud'; it must be one of debug, info, warning, error",
    ),
    ({"FATURA_RATE_LIMIT": "-1"}, "FATURA_RATE_LIMIT is '-1'; it must be a whole number of at least 0"),
    (
        {"FATURA_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/x", "FATURA_SECRET_KEYS": "x"},
        "nothing answers at 127.0.0.1 port 1; start the server",
    ),
    ({"FATURA_DATABASE_URL": "mysql://x", "FATURA_SECRET_KEYS": "x"}, "mysql"),
)


@pytest.mark.parametrize(
    ("variables", "says"), MISTAKES, ids=["level", "limit", "unreachable", "no postgres"]
)
def test_an_invalid_setting_is_reported_in_one_line(variables: dict[str, str], says: str) -> None:
    """[D-47]"""
    ended = run_here("check", env=environment(**variables))

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("fatura: ")
    assert ended.stderr.count("\n") == 1
    assert says in ended.stderr


@pytest.mark.parametrize("keys", ["not-a-key", "c2hvcnQ="])
def test_an_invalid_key_ring_is_refused(database_url: str, keys: str) -> None:
    """[D-47]"""
    env = environment(database_url) | {"FATURA_SECRET_KEYS": keys}

    ended = run_here("account", "create", "Gym", "--mode", "live", "--json", env=env)

    assert (ended.returncode, ended.stderr.count("\n")) == (1, 2)
    assert ended.stderr.splitlines()[1].startswith(
        "fatura: the key ring (FATURA_SECRET_KEYS, or the file secret_keys"
    )
    assert run_here("check", env=environment(database_url)).stdout.endswith("in 0 account(s)\n")


def test_a_key_ring_that_does_not_fit_the_data_is_refused(database_url: str, tmp_path: Path) -> None:
    """[D-47]"""
    run_here("account", "create", "Gym", "--mode", "live", "--json", env=environment(database_url))
    env = environment(database_url) | {"FATURA_SECRET_KEYS": "", "FATURA_DATA_DIR": str(tmp_path)}

    ended = run_here("worker", env=env)

    assert (ended.returncode, ended.stderr.count("\n")) == (1, 2)
    assert "FATURA_SECRET_KEYS" in ended.stderr.splitlines()[1]


@pytest.mark.parametrize("command", ["up", "demo", "api"])
def test_a_port_in_use_is_reported(database_url: str, tmp_path: Path, command: str) -> None:
    """[D-47]"""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = run_here(
            command, "--port", port, "--data-dir", str(tmp_path / "data"), env=environment(database_url)
        )

    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith(f"fatura: cannot listen on 127.0.0.1:{port} (")
    assert not (tmp_path / "data").exists()


@pytest.mark.faults
def test_api_and_worker_share_a_database(database_url: str, tmp_path: Path) -> None:
    """[D-47]"""
    env, port = environment(database_url), free_port()
    account = json.loads(run_here("account", "create", "Gym", "--mode", "sandbox", "--json", env=env).stdout)
    with (
        running("api", "--port", str(port), env=env, output=tmp_path / "api.log") as api,
        running("worker", env=env, output=tmp_path / "worker.log") as worker,
    ):
        until(lambda: serves(port), seconds=60)
        clock = httpx.post(
            f"http://127.0.0.1:{port}/v1/test-clock/advance",
            json={"days": 3},
            headers={"Authorization": f"Bearer {account['apiKey']}"},
            timeout=20,
        )
        assert (clock.status_code, clock.json()["status"]) == (200, "ready")
        assert (api.stop(), worker.stop()) == (0, 0)
        assert "Traceback" not in api.said() + worker.said()
        for command in (api, worker):
            assert "database.role_owns_tables" not in command.said()
            assert command.said().count(_named(database_url)) == 1


def test_an_api_that_stops_answers_the_advance_of_a_test_clock(database_url: str, tmp_path: Path) -> None:
    """No worker runs, so the clock does not move, and the request waits until the API stops. [D-45, D-47]"""
    env, port = environment(database_url), free_port()
    account = json.loads(run_here("account", "create", "Gym", "--mode", "sandbox", "--json", env=env).stdout)
    caller = httpx.Client(
        base_url=f"http://127.0.0.1:{port}",
        headers={"Authorization": f"Bearer {account['apiKey']}"},
        timeout=60,
    )
    with (
        caller,
        running("api", "--port", str(port), env=env, output=tmp_path / "api.log") as api,
        ThreadPoolExecutor() as pool,
    ):
        until(lambda: serves(port), seconds=20)
        advance = pool.submit(caller.post, "/v1/test-clock/advance", json={"days": 3})
        until(lambda: caller.get("/v1/test-clock").json()["status"] == "advancing", seconds=20)
        assert api.stop() == 0
        clock = advance.result()
        assert (clock.status_code, clock.json()["status"]) == (202, "advancing")


@pytest.mark.faults
def test_up_with_a_database_url_starts_no_other_database(database_url: str, tmp_path: Path) -> None:
    """The API serves its metrics on the given port, and the worker on the next one. [D-47, D-202]"""
    port, data_dir = free_port(), tmp_path / "data"
    metrics_port = next(each for each in iter(free_port, None) if not is_open(each + 1))
    words = ("up", "--port", str(port), "--data-dir", str(data_dir), "--metrics-port", str(metrics_port))
    with running(*words, env=environment(database_url), output=tmp_path / "up.log") as up:
        until(lambda: f"http://127.0.0.1:{port}/v1" in up.said(), seconds=90)
        assert serves(port), "the address is printed once the API listens"
        until(lambda: serves(metrics_port) and serves(metrics_port + 1), seconds=30)
        assert up.said().count(_named(database_url)) == 1
        assert "rk_test_" not in up.said()
        assert "API key   rk_test_" in written_credentials(up.said())
        assert up.stop() == 0
    assert [each.suffix for each in data_dir.iterdir()] == [".txt"]


async def test_up_prints_no_address_before_the_api_is_ready(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """[D-47]"""
    monkeypatch.setattr(client, "START_WITHIN_SECONDS", 0.1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(greet_when_ready(Address("127.0.0.1", free_port())), timeout=0.5)
    said = capsys.readouterr().out
    assert "is not ready yet; still waiting" in said
    assert "Press Ctrl-C" not in said


@pytest.mark.faults
@pytest.mark.parametrize(
    "place", ["user:hunter2/x@localhost/fatura", "user:hunter2@[::1/fatura", "u:hunter2@h:99x/f"]
)
def test_a_malformed_database_url_is_refused_without_its_password(place: str) -> None:
    """[D-47]"""
    refused = run("check", env=environment(f"postgresql://{place}"))

    assert refused.returncode == 1
    assert "percent-encode" in refused.stderr
    assert "hunter2" not in refused.stdout + refused.stderr


@pytest.mark.faults
@pytest.mark.parametrize(
    "command",
    [
        "check",
        "keys list",
        "keys rotate",
        "restored --since 2026-11-20T03:00:00Z",
        "account create Gym --mode live",
        "api",
        "worker",
    ],
)
def test_a_command_does_not_create_the_database_that_it_reads(command: str, tmp_path: Path) -> None:
    """[D-47]"""
    refused = run(*command.split(), "--data-dir", str(tmp_path / "empty"), env=environment())

    assert refused.returncode == 1
    assert "there is no database in" in refused.stderr
    assert not (tmp_path / "empty").exists()


def _named(database_url: str) -> str:
    """Return the line with which a command names its database and key ring."""
    name = urlsplit(database_url).path[1:]
    return f"fatura: database {name} at the local socket as fatura; key ring: FATURA_SECRET_KEYS\n"


@pytest.mark.parametrize(
    "command",
    [
        "check",
        "migrate",
        "keys list",
        "keys rotate",
        "restored --since 2026-11-20T03:00:00Z",
        "account create Gym --mode live",
        "account list",
        "erased export",
    ],
)
def test_each_command_names_its_database_and_key_ring(database_url: str, command: str) -> None:
    """[D-237]"""
    shown = run_here(*command.split(), env=environment(database_url))
    assert shown.stderr.startswith(_named(database_url)), shown.stderr


@pytest.mark.faults
def test_a_command_names_the_folder_of_the_embedded_database(tmp_path: Path) -> None:
    """[D-237]"""
    with running(
        "up",
        "--port",
        str(free_port()),
        "--data-dir",
        str(tmp_path),
        env=environment(),
        output=tmp_path / "up.log",
    ) as up:
        until(lambda: "Press Ctrl-C" in up.said(), seconds=60)
        here = run("check", "--data-dir", str(tmp_path), env=environment())
        assert here.stderr.splitlines()[0] == (
            f"fatura: embedded database in {tmp_path}; key ring: {tmp_path / 'secret_keys'}"
        )
        assert up.stop() == 0


@pytest.mark.parametrize(
    ("name", "near"), [("FATURA_DATABSE_URL", "FATURA_DATABASE_URL"), ("FATURA_LOGLEVEL", "FATURA_LOG_LEVEL")]
)
def test_a_misspelt_setting_is_refused(database_url: str, name: str, near: str) -> None:
    """[D-237]"""
    refused = run_here("check", env=environment(database_url) | {name: "x"})

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"fatura: {name} is not a setting; did you mean {near}?\n"


@pytest.mark.faults
def test_other_unknown_variables_are_logged_and_those_of_kubernetes_ignored(database_url: str) -> None:
    """[D-237]"""
    env = environment(database_url, FATURA_COLOUR="blue", FATURA_API_PORT="tcp://10.0.0.1:80")
    checked = run(
        "check", env=env | {"FATURA_SERVICE_PORT_HTTP": "80", "FATURA_API_PORT_80_TCP_ADDR": "10.0.0.1"}
    )

    assert checked.returncode == 0
    logged = [json.loads(line) for line in checked.stderr.splitlines() if line.startswith("{")]
    assert [(line["event"], line["names"]) for line in logged] == [("settings.unknown", ["FATURA_COLOUR"])]
