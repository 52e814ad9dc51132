"""Execute the run `orders` at small scale, and check that it detects missing locks."""

import random
from collections.abc import Callable, Generator
from typing import Any

import pytest

from fatura.store import idempotency
from fatura.store.db import Tx
from tests.conftest import FAST
from tests.faults import break_patches, place
from tests.faults.orders import run
from tests.faults.orders.pairs import PAIRS
from tests.faults.orders.schedules import Schedule
from tests.faults.orders.setup import open_setup
from tests.faults.orders.stepping import LOCK_SETTINGS
from tests.faults.report import Options

pytestmark = pytest.mark.faults

SCHEDULES = 80
"""Enough for all schedules in which one operation runs completely between two steps of the other."""
Weaker = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.timeout(600)  # time limit for a busy machine; an idle one needs half a minute
def test_concurrent_operations_have_the_outcome_of_a_serial_order():
    """[D-14, D-27 charge, D-28, D-32, D-33]"""
    report = run.run(Options())
    assert not report.failures, report.failures


@pytest.fixture(scope="module")
def server() -> Generator[str]:
    with place.server({**FAST, **LOCK_SETTINGS}) as url:
        yield url


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("issuance | retry-issuance", "a20 b24 a"),
        ("push | redeliver", "b6 a6 b11 a b"),
        ("redeliver | no webhook", "a6 b4 a11 b a"),
        ("reissue | cancel invoice", "b22 a58 b"),
        ("refund | dispute poll", "a22 b48 a"),
        ("propagate | propagate again", "b14 a1 b4 a6 b18 a5 b5 a b"),
    ],
)
async def test_a_correct_outcome_is_accepted_although_no_serial_order_has_it(
    server: str, capsys: pytest.CaptureFixture[str], name: str, schedule: str
):
    """[D-53, D-54 progress, D-171, D-221]"""
    assert await run.repeat(server, name, Schedule.read(schedule)), capsys.readouterr().out


def cancel_without_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    break_patches.cancel_without_lock(put=monkeypatch.setattr)


def publish_without_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    break_patches.weaken("SELECT FROM plan p", " FOR NO KEY UPDATE", "", put=monkeypatch.setattr)


def issue_without_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    break_patches.ignore_lease(put=monkeypatch.setattr)


def without_invoice_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    statement = "SELECT v.invoice_id, v.status, v.connection_id, v.due_date"
    break_patches.weaken(statement, " FOR NO KEY UPDATE", "", put=monkeypatch.setattr)


def look_for_a_key_before_taking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    take = idempotency.claim

    async def look_and_take(tx: Tx, key: str, **claim: Any) -> bool:
        if await idempotency.find(tx, key) is not None:
            return False
        return await take(tx, key, **claim | {"real_now": claim["expires_at"]})

    monkeypatch.setattr(idempotency, "claim", look_and_take)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "weaker"),
    [
        ("generation | cancel", cancel_without_lock),
        ("PUT plan | PUT plan again", publish_without_lock),
        ("issuance | issuance", issue_without_lease),
        ("manual payment | manual payment again", without_invoice_lock),
        ("refund | refund again", without_invoice_lock),
        ("subscribe | subscribe, same key", look_for_a_key_before_taking_it),
    ],
)
async def test_a_missing_lock_is_detected(
    server: str, monkeypatch: pytest.MonkeyPatch, name: str, weaker: Weaker
):
    """[D-14, D-28, D-33]"""
    pair = next(each for each in PAIRS if each.name == name)
    tally = run.Tally()
    weaker(monkeypatch)
    async with place.database(server) as url, open_setup(url) as setup:
        fixture = await setup.make(pair.fixture)
        rng = random.Random(1)  # noqa: S311 - the same schedules in every run
        await run.try_pair(setup, pair, fixture, tally, rng=rng, share=SCHEDULES)
    assert tally.problems
