"""The command `fatura restored`: its output, its exit codes and dry runs (D-123)."""

import asyncio
import json
from datetime import UTC, date, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner

from fatura import settings
from fatura.bootstrap import opened
from fatura.cli import app
from fatura.domain.credentials import Mode
from fatura.domain.offer import PaymentMethod
from fatura.gateways.port import ChargeRequest, Payer
from fatura.store.connections import connections
from fatura.usecases.accounts import accounts
from fatura.usecases.connections import gateway_connections
from fatura.usecases.restore import comparison
from fatura.usecases.transaction import Work, in_transaction, load_account
from tests.support.fatura_processes import environment, run_here
from tests.support.operator import OPERATOR, audited
from tests.support.postgres_processes import value


async def _unmatched_charge(env: dict[str, str], database_url: str) -> UUID:
    """Create a frozen account whose gateway has a charge without an invoice."""
    async with opened(settings.read(env), database_url) as deps:
        account_id = (
            await accounts.open_account(deps, name="Gym", mode=Mode.SANDBOX, opened_by=OPERATOR)
        ).account_id

        async def effect(work: Work) -> None:
            gateway = gateway_connections.open_gateway(work, (await connections.find_all(work.tx))[0])
            assert gateway is not None
            due_date = date.fromisoformat("2099-01-01")
            payer = Payer(uuid4(), "Ana", "ana@example.com", None)
            request = ChargeRequest(uuid4(), 1, 500, "BRL", PaymentMethod.PIX, None, due_date, (), payer)
            await gateway.create_charge(request)

        await in_transaction(deps, await load_account(deps, account_id), effect)
        await comparison.freeze(deps, account_id)
    return account_id


def test_unmatched_charges_are_listed_and_exit_with_3(database_url: str) -> None:
    """[D-123, D-223]"""
    env = environment(database_url)
    account_id = asyncio.run(_unmatched_charge(env, database_url))
    since = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()

    counted = run_here("restored", "--since", since, "--json", "--dry-run", env=env)

    assert counted.returncode == 3, counted.stderr
    report = json.loads(counted.stdout)
    assert (report["accounts"], report["charges"]["unmatched"], report["notCompared"]) == (1, 1, [])
    [unmatched] = report["unmatched"]
    assert (unmatched["accountId"], unmatched["amountCents"], unmatched["state"]) == (
        str(account_id),
        500,
        "open",
    )
    assert _is_frozen(database_url, account_id)
    assert audited(database_url, account_id) == []

    compared = run_here("restored", "--since", since, env=env)

    assert compared.returncode == 3, compared.stderr
    assert unmatched["chargeId"] in compared.stdout
    assert not _is_frozen(database_url, account_id)
    assert audited(database_url, account_id) == ["account.restore"]


def _is_frozen(database_url: str, account_id: UUID) -> bool:
    frozen = "SELECT recovering_since IS NOT NULL FROM account"
    return value(database_url, frozen, server_settings={"app.account": str(account_id)})


@pytest.mark.parametrize(
    "since",
    ["yesterday", "2026-11-20", "2026-11-20T03:00:00", "2199-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"],
)
def test_an_impossible_instant_is_refused(since: str) -> None:
    """[D-123]"""
    refused = CliRunner().invoke(app, ["restored", "--since", since])

    assert refused.exit_code == 2
    assert "--since" in refused.output
