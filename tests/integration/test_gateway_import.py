"""`fatura gateway import` imports bank statements (D-257, D-259)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fatura.gateways.adapters.pix_key.adapter import PixKeyGateway
from tests.integration.test_gateway_command import command
from tests.support.fatura_processes import environment, run_here
from tests.support.listening import Api
from tests.support.pix_shop import BANK_ID, CPF, Shop, txid
from tests.support.world import World


@pytest.fixture
async def shop(world: World) -> Shop:
    return await Shop.opened(world)


def _written(folder: Path, shop: Shop, *rows: str) -> str:
    """Write a CSV file whose rows have an amount, an id and a text. Return its path."""
    file = folder / "statement.csv"
    file.write_text("\n".join(("date,amount,id,description", *(f"{shop.day()},{row}" for row in rows), "")))
    return str(file)


@pytest.mark.parametrize(
    "message", ["<OFX>", "OFXHEADER", "<OFX><STMTTRN><DTPOSTED>20261101<TRNAMT>99.90<FITID>q"]
)
async def test_a_message_does_not_change_the_format(
    shop: Shop, api: Api, tmp_path: Path, message: str
) -> None:
    """[D-257, D-259]"""
    invoice = await shop.bill()
    file = _written(tmp_path, shop, f"0.01,1,Pix {message}", f"99.90,2,Pix {txid(invoice)}")

    ended = await command(api, shop.merchant)("import", shop.connection_id, file, "--yes")
    assert (ended.returncode, "Imported 1 payment." in ended.stdout) == (0, True), ended.stderr
    await shop.world.run()
    assert (await shop.read(invoice))["paidCents"] == 9990


async def test_a_repeat_completes_an_import_that_stopped(shop: Shop, api: Api, tmp_path: Path) -> None:
    """The process died before the invoice's poll was due. The repeat has nothing new to ask about. [D-257, D-259]"""
    invoice = await shop.bill()
    row = f"99.90,{BANK_ID},Pix {txid(invoice)}"
    await shop.send(row)
    async with shop.merchant.deps.db.transaction(shop.merchant.account_id) as tx:
        await tx.execute(
            "UPDATE invoice SET next_attempt_at = next_attempt_at + interval '30 days' WHERE account_id = $1"
        )
    gateway, file = command(api, shop.merchant), _written(tmp_path, shop, row)

    await gateway("import", shop.connection_id, file, "--dry-run")
    await shop.world.run("reconciliation")
    assert (await shop.read(invoice))["status"] == "issued"
    ended = await gateway("import", shop.connection_id, file, "--json")
    assert json.loads(ended.stdout)["dryRun"] is False, ended.stderr
    await shop.world.run("reconciliation")
    assert (await shop.read(invoice))["status"] == "paid"


async def test_another_result_than_that_of_the_dry_run_is_shown(
    shop: Shop, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The invoice is canceled between the dry run and the import. [D-257, D-259]"""
    invoice = await shop.bill(document=CPF)
    import_payments = PixKeyGateway.import_payments

    async def late(self: Any, payments: Any, **options: Any) -> Any:
        await shop.merchant.made(f"/v1/invoices/{invoice['id']}/cancel")
        return await import_payments(self, payments, **options)

    monkeypatch.setattr(PixKeyGateway, "import_payments", late)
    file = _written(tmp_path, shop, f"99.90,1,Pix {CPF}")
    ended = await command(api, shop.merchant)("import", shop.connection_id, file, "--yes")
    dry_run, _, imported = ended.stdout.partition("The import decided otherwise than the dry run:")
    assert ("new" in dry_run, "similar" in imported, "Imported 0 payments." in imported) == (True, True, True)


async def test_an_unreadable_file_is_named(shop: Shop, api: Api, tmp_path: Path) -> None:
    """[D-259]"""
    gateway = command(api, shop.merchant)
    for path in tmp_path, tmp_path / "none.ofx":
        ended = await gateway("import", shop.connection_id, str(path))
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr.startswith(f"fatura: cannot read {path}")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "windows-1252"])
async def test_other_encodings_are_read(shop: Shop, api: Api, tmp_path: Path, encoding: str) -> None:
    """[D-257, D-259]"""
    invoice = await shop.bill()
    file = tmp_path / "statement.csv"
    text = f"data;valor;id;descrição\n{shop.day()};99,90;1;{txid(invoice)}\n"
    file.write_bytes(text.encode(encoding))

    shown = await command(api, shop.merchant)("import", shop.connection_id, str(file), "--dry-run")
    assert "1 new payment, 0 duplicates" in shown.stdout, shown.stderr


async def test_an_import_without_questions_says_by_its_exit_code_that_a_person_is_needed(
    shop: Shop, api: Api, tmp_path: Path
) -> None:
    """[D-259]"""
    for _ in range(2):
        await shop.bill(document=CPF)
    file = _written(tmp_path, shop, f"99.90,1,Pix {CPF}")

    ended = await command(api, shop.merchant)("import", shop.connection_id, file, "--yes")
    assert (ended.returncode, "1 need you" in ended.stdout) == (3, True)


async def test_ids_are_whole_on_a_narrow_terminal(shop: Shop, api: Api, tmp_path: Path) -> None:
    """[D-259]"""
    invoice = await shop.bill()
    file = _written(tmp_path, shop, f"99.90,{BANK_ID},Pix {txid(invoice)}")
    env = environment(FATURA_API_KEY=shop.merchant.api_key, FATURA_API_URL=api.url, COLUMNS="80")

    ended = await asyncio.to_thread(
        run_here, "gateway", "import", shop.connection_id, file, "--dry-run", env=env
    )
    assert BANK_ID in ended.stdout
    assert invoice["id"] in ended.stdout


async def test_json_asks_nothing(shop: Shop, api: Api, tmp_path: Path) -> None:
    """[D-259]"""
    invoice = await shop.bill()
    file = _written(tmp_path, shop, f"99.90,1,Pix {txid(invoice)}")

    ended = await command(api, shop.merchant)("import", shop.connection_id, file, "--json")
    assert (ended.returncode, "--json asks nothing" in ended.stderr) == (1, True)
