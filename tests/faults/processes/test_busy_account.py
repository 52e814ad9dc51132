"""Operators and merchants change an account while several workers bill it."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from fatura.usecases.accounts import suspension
from tests.support.crowd import Crowd, open_crowd
from tests.support.fatura_processes import environment, running
from tests.support.operator import OPERATOR

pytestmark = pytest.mark.faults

WORKERS = 4
SUBSCRIPTIONS = 20_000
BATCH_SECONDS = 5
"""Upper limit of the duration of one billing batch on a busy machine."""
INVOICES = "SELECT count(*) FROM invoice WHERE account_id = $1"


async def test_a_revocation_and_a_suspension_wait_for_one_batch(database_url: str, tmp_path: Path) -> None:
    """[D-242, D-64 scopes]"""
    async with open_crowd(database_url) as crowd:
        await crowd.subscribe(await crowd.merchant.plan(), count=SUBSCRIPTIONS)
        env = environment(database_url, FATURA_MAX_CONNECTIONS="5", FATURA_LOG_LEVEL="warning")
        with ExitStack() as stack:
            for number in range(WORKERS):
                stack.enter_context(running("worker", env=env, output=tmp_path / f"{number}.log"))
            await crowd.until(INVOICES, 2_000)
            assert await _seconds_to_revoke(crowd) < BATCH_SECONDS
            began = time.monotonic()
            await suspension.suspend(crowd.merchant.deps, crowd.merchant.account_id, asked_by=OPERATOR)
            assert time.monotonic() - began < BATCH_SECONDS
            ((billed,),) = await crowd.sql(INVOICES)

        assert billed < SUBSCRIPTIONS
        assert await crowd.sql(INVOICES) == [(billed,)]


async def _seconds_to_revoke(crowd: Crowd) -> float:
    began = time.monotonic()
    made = await crowd.merchant.made("/v1/integration/api-keys", {"name": "x", "scopes": ["read"]})
    assert (await crowd.merchant.delete(f"/v1/integration/api-keys/{made['id']}")).status == 204
    return time.monotonic() - began
