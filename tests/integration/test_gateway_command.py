"""`fatura gateway` connects gateways, checks and changes connections, and imports bank statements (D-259)."""

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fatura.domain.credentials import Mode
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import AuthFailedError
from tests.support.fatura_processes import environment, run_here
from tests.support.listening import Api
from tests.support.pix_shop import Shop
from tests.support.world import Merchant, World

VALUES = ("--set", "pixKey=pix@example.com", "--set", "merchantName=Sol", "--set", "merchantCity=Recife")
SECRET = "a secret of sixteen"
Ended = subprocess.CompletedProcess[str]
Gateway = Callable[..., Any]


def command(api: Api, merchant: World | Merchant) -> Gateway:
    """Return a function that runs `fatura gateway` with the merchant's API key."""
    env = environment(FATURA_API_KEY=merchant.api_key, FATURA_API_URL=api.url)

    async def gateway(*words: str) -> Ended:
        return await asyncio.to_thread(run_here, "gateway", *words, env=env)

    return gateway


async def connections(merchant: World | Merchant) -> list[Any]:
    return (await merchant.get("/v1/integration/gateways")).json["data"]


async def test_a_connected_gateway_is_shown_and_listed(world: World, api: Api) -> None:
    """[D-43, D-259]"""
    live = await world.another(Mode.LIVE)
    gateway = command(api, live)
    ended = await gateway("connect", "pix_key", *VALUES, "--label", "Bank")
    assert (ended.returncode, ended.stderr) == (0, "")
    [connection] = await connections(live)
    assert connection["settings"] == {
        "pixKey": "pix@example.com",
        "merchantName": "Sol",
        "merchantCity": "Recife",
    }
    assert connection["connectionId"] in ended.stdout
    assert re.search(r"methods +pix\n", ended.stdout)
    assert re.search(r"merchantCity +Recife\n", ended.stdout)
    assert re.search(r"refunds +you return the money, and Fatura records it\n", ended.stdout)

    listed = await gateway("list")
    assert all(word in listed.stdout for word in (connection["connectionId"], "pix_key", "Bank", "ok"))
    assert json.loads((await gateway("list", "--json")).stdout)["data"] == [connection]


async def test_settings_are_changed_one_by_one(world: World, api: Api) -> None:
    """[D-43, D-259]"""
    live = await world.another(Mode.LIVE)
    gateway = command(api, live)
    made = json.loads((await gateway("connect", "pix_key", *VALUES, "--json")).stdout)
    words = ("--set", "merchantCity=Olinda", "--label", "Bank", "--inactive")
    changed = await gateway("set", made["connectionId"], *words)
    assert (changed.returncode, changed.stderr) == (0, "")
    assert re.search(r"merchantCity +Olinda\n", changed.stdout)
    [connection] = await connections(live)
    assert (connection["label"], connection["active"]) == ("Bank", False)
    assert connection["settings"] == {**made["settings"], "merchantCity": "Olinda"}

    nothing = await gateway("set", made["connectionId"])
    assert (nothing.returncode, "name a change" in nothing.stderr) == (1, True)
    unknown = await gateway("set", made["connectionId"], "--set", "color=red")
    assert "one of these names: pixKey, merchantName" in unknown.stderr


async def test_a_second_connection_to_a_provider_is_pointed_out(world: World, api: Api) -> None:
    """[D-43, D-259]"""
    gateway = command(api, await world.another(Mode.LIVE))
    made = json.loads((await gateway("connect", "pix_key", *VALUES, "--json")).stdout)
    second = await gateway("connect", "pix_key", *VALUES)
    assert f"other active connections to pix_key: {made['connectionId']}" in second.stderr


async def test_a_move_needs_a_connection_that_can_bill(world: World, api: Api) -> None:
    """[D-59, D-259]"""
    gateway = command(api, world)
    [old] = await connections(world)
    unknown = "00000000-0000-0000-0000-000000000001"
    for words in (unknown, old["connectionId"]), (old["connectionId"], unknown):
        assert f"there is no connection {unknown}" in (await gateway("move", *words)).stderr

    new = json.loads((await gateway("connect", "sandbox", "--json")).stdout)["connectionId"]
    await gateway("set", new, "--inactive")
    assert f"connection {new} is inactive" in (await gateway("move", old["connectionId"], new)).stderr
    await gateway("set", new, "--active", "--set", "issuesCharges=false")
    assert f"connection {new} cannot create" in (await gateway("move", old["connectionId"], new)).stderr


async def test_a_terminal_is_asked_for_missing_values(world: World, api: Api) -> None:
    """[D-259]"""
    live = await world.another(Mode.LIVE)
    ended, said = await asyncio.to_thread(in_terminal, api, live.api_key, answers="Sol\nRecife\n")
    assert ended == 0, said
    assert "merchantCity (your city, at most 15 characters)" in said
    [connection] = await connections(live)
    assert connection["settings"]["merchantName"] == "Sol"


async def test_an_interrupted_prompt_ends_the_command(world: World, api: Api) -> None:
    """[D-259]"""
    live = await world.another(Mode.LIVE)
    ended, said = await asyncio.to_thread(in_terminal, api, live.api_key, answers="Sol\n\x04")
    assert (ended, "Aborted" in said) == (1, True), said
    assert await connections(live) == []


def in_terminal(api: Api, api_key: str, *, answers: str) -> tuple[int, str]:
    """Connect a Pix key with a terminal as stdin. Return the exit code and the output."""
    ours, theirs = pty.openpty()
    os.write(ours, answers.encode())
    ended = subprocess.run(
        [sys.executable, "-m", "fatura", "gateway", "connect", "pix_key", *VALUES[:2]],
        env=environment(FATURA_API_KEY=api_key, FATURA_API_URL=api.url),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(ours)
    os.close(theirs)
    return ended.returncode, ended.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nubank"], "belongs to a live account, which cannot connect nubank; it can connect "),
        (["asaas"], "--set accessToken=@FILE  API key"),
        (["asaas", "--set", "accessToken=short"], "use accessToken=@FILE"),
        (["mercado_pago"], "--set accessToken=@FILE  access token of your application"),
        (["mercado_pago", "--set", "webhookSecret=short"], "use webhookSecret=@FILE"),
        (["stripe"], "--set apiKey=@FILE  secret key or restricted key"),
        (["pix_key"], "--set merchantCity=VALUE  your city"),
        (["pix_key", *VALUES, "--set", "color=red"], "one of these names: pixKey, merchantName"),
        (["pix_key", *VALUES, "--set", "pixKey"], "--set: write NAME=VALUE"),
        (["pix_key", *VALUES[2:], "--set", "pixKey=@/nowhere"], "cannot read /nowhere: No such file"),
        (
            ["pix_key", *VALUES[2:], "--set", "pixKey=@/dev/zero"],
            "cannot read /dev/zero: it is no regular file",
        ),
        (["pix_key", *VALUES, "--set", "pixKey=other"], "--set pixKey is given twice"),
        (["pix_key", *VALUES[2:], "--set", "pixKey=no key"], "must be a Pix key as the bank shows it"),
        (["pix_key", *VALUES[2:], "--set", "pixKey=11987654321"], "such as +5511987654321"),
    ],
)
async def test_a_wrong_connection_is_refused(world: World, api: Api, words: list[str], says: str) -> None:
    """[D-259]"""
    live = await world.another(Mode.LIVE)
    ended = await command(api, live)("connect", *words)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert says in ended.stderr
    assert await connections(live) == []


async def test_secrets_come_from_files_only(world: World, api: Api, tmp_path: Path) -> None:
    """[D-259]"""
    gateway = command(api, world)
    [connection] = await connections(world)
    refused = await gateway("rotate", connection["connectionId"], "--set", f"webhookSecret={SECRET}")
    assert refused.returncode == 1
    assert "use webhookSecret=@FILE" in refused.stderr

    file = tmp_path / "secret"
    file.write_text("0123456789abcdef\n")
    rotated = await gateway("rotate", connection["connectionId"], "--set", f"webhookSecret=@{file}")
    assert rotated.returncode == 0, rotated.stderr
    assert "0123456789abcdef" not in rotated.stdout

    live = await world.another(Mode.LIVE)
    pix = json.loads((await command(api, live)("connect", "pix_key", *VALUES, "--json")).stdout)
    nothing = await command(api, live)("rotate", pix["connectionId"])
    assert (nothing.returncode, "has no secrets to replace" in nothing.stderr) == (1, True)


async def test_a_check_asks_the_provider(world: World, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """[D-259, D-43]"""
    gateway = command(api, world)
    [connection] = await connections(world)
    assert (await gateway("check", connection["connectionId"])).returncode == 0

    async def refuse(self: SandboxGateway) -> None:
        raise AuthFailedError("no")

    monkeypatch.setattr(SandboxGateway, "check_credentials", refuse)
    failed = await gateway("check", connection["connectionId"])
    assert (failed.returncode, "(credentials_refused)" in failed.stderr) == (1, True)
    [after] = await connections(world)
    assert after["health"]["error"]["code"] == "credentials_refused"

    unknown = await gateway("check", "00000000-0000-0000-0000-000000000001")
    assert (unknown.returncode, "engine.not_found" in unknown.stderr) == (1, True)


@pytest.mark.parametrize("encoding", ["utf-8", "windows-1252"])
async def test_a_statement_is_shown_and_then_imported(
    world: World, api: Api, tmp_path: Path, encoding: str
) -> None:
    """[D-257, D-259]"""
    shop = await Shop.opened(world)
    gateway = command(api, shop.merchant)
    invoice = await shop.bill()
    today = shop.day()
    file = tmp_path / "statement.csv"
    text = f"data,valor,id,descrição\n{today},{invoice['totalCents'] / 100:.2f},b1,{invoice['gatewayInvoiceId']}\n"
    file.write_bytes(text.encode(encoding))

    shown = await gateway("import", shop.connection_id, str(file), "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert invoice["id"][:8] in shown.stdout
    assert "1 new payment, 0 duplicates" in shown.stdout
    unasked = await gateway("import", shop.connection_id, str(file))
    assert (unasked.returncode, "add --yes to confirm" in unasked.stderr) == (1, True)
    await world.run()
    assert (await shop.read(invoice))["status"] == "issued"

    done = await gateway("import", shop.connection_id, str(file), "--yes")
    assert "Imported 1 payment." in done.stdout
    await world.run()
    assert (await shop.read(invoice))["status"] == "paid"
    again = await gateway("import", shop.connection_id, str(file), "--yes", "--json")
    assert json.loads(again.stdout)["duplicates"] == 1


async def test_a_move_shows_what_it_moves(world: World, api: Api) -> None:
    """[D-59, D-259]"""
    gateway = command(api, world)
    [old] = await connections(world)
    await world.enroll(await world.plan())
    new = json.loads((await gateway("connect", "sandbox", "--json")).stdout)
    words = ("move", old["connectionId"], new["connectionId"])
    shown = await gateway(*words, "--dry-run")
    assert "1 subscription would move, 0 would be skipped." in shown.stdout
    assert (await gateway(*words)).returncode == 1
    moved = await gateway(*words, "--yes")
    assert (moved.returncode, "1 subscription moved" in moved.stdout) == (0, True), moved.stderr
    none = await gateway(*words, "--yes", "--json")
    assert json.loads(none.stdout)["moved"] == 0


async def test_a_provider_without_fields_is_connected_without_a_question(world: World, api: Api) -> None:
    """[D-264, D-259]"""
    live = await world.another(Mode.LIVE)
    ended = await command(api, live)("connect", "recovery")
    assert (ended.returncode, ended.stderr) == (0, "")
    [connection] = await connections(live)
    assert (connection["provider"], connection["issuesCharges"]) == ("recovery", False)
    assert re.search(r"methods +none: it creates no charges\n", ended.stdout)
