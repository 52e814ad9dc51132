"""The metrics that `/metrics` and `fatura check --textfile` report."""

import asyncio
import re
import signal
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest

from fatura.api.app import create_watch_app
from fatura.bootstrap import wire
from fatura.store import due_times, lateness
from fatura.store.db import Database, Discovery
from tests.support.databases import as_superuser
from tests.support.fatura_processes import environment, free_port, run_here, running, serves
from tests.support.populated import connected, populate
from tests.support.postgres_processes import until
from tests.support.push_steps import register, skip
from tests.support.receiver import always, open_receiver
from tests.support.world import World, api_client, ignore_notification, rows, scrape


async def metrics(world: World) -> dict[str, float]:
    """Scrape `/metrics`. Return the value of each series by its name and labels."""
    return _series(await scrape(world.deps))


def _series(page: str) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


async def grown(world: World, before: dict[str, float]) -> dict[str, float]:
    """Return the increase of each call counter that has changed since the scrape `before`."""
    after = await metrics(world)
    names = [name for name in after if name.startswith("fatura_") and "_total{outcome" in name]
    return {name: after[name] - before.get(name, 0) for name in names if after[name] != before.get(name, 0)}


async def test_calls_are_counted_by_outcome(world: World) -> None:
    """[D-5, D-128]"""
    before = await metrics(world)
    async with open_receiver() as receiver:
        await register(world, receiver)
        await populate(world)
        receiver.answer = always(500)
        await register(world, receiver)
        await world.run()
    counted = await grown(world, before)
    assert counted.pop('fatura_deliveries_total{outcome="http_error"}') >= 1
    assert counted == {
        'fatura_charge_attempts_total{outcome="charge"}': 1,
        'fatura_price_calls_total{outcome="http_error"}': 1,
    }


async def test_scrapes_within_a_second_get_the_same_page(world: World) -> None:
    """[D-202]"""
    transport = httpx.ASGITransport(create_watch_app(world.deps))
    async with httpx.AsyncClient(transport=transport, base_url="http://fatura.test") as client:
        pages = [(await client.get("/metrics")).content for _ in range(2)]
    assert b"fatura_http_requests_total" in pages[0]
    assert pages[1] == pages[0]


async def test_calls_of_readiness_within_a_second_share_one_check(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-202]"""
    pings = list[Database]()

    async def ping(db: Database) -> datetime:
        pings.append(db)
        return await asked(db)

    asked = Database.ping
    monkeypatch.setattr(Database, "ping", ping)
    of = world.deps
    async with AsyncExitStack() as stack:
        deps = wire(of.settings, of.db, vault=of.vault, tagger=of.tagger, notify=ignore_notification)
        stack.push_async_callback(deps.merchants.close)
        client = await stack.enter_async_context(api_client(deps))
        for _ in range(5):
            assert (await client.get("/health/ready")).status_code == 200
        assert len(pings) == 1
        await asyncio.sleep(1)
        assert (await client.get("/health/ready")).status_code == 200
        assert len(pings) == 2


async def test_the_delay_of_due_work_is_shown(world: World) -> None:
    """[D-5, D-128]"""
    async with open_receiver() as receiver:
        await register(world, receiver)
        await world.enroll(await world.plan())
        await world.run("generation")
        shown = await metrics(world)
        assert shown["fatura_subscriptions_due_not_generated"] == 0
        assert shown['fatura_oldest_work_seconds{lane="generation"}'] == 0
        assert 0 <= shown['fatura_oldest_work_seconds{lane="issuance"}'] < 100
        assert shown["fatura_events_waiting_to_be_pushed"] > 0

        await skip(world, timedelta(days=60))
        shown = await metrics(world)
        late = shown['fatura_oldest_work_seconds{lane="issuance"}']
        assert timedelta(days=60).total_seconds() <= late < timedelta(days=61).total_seconds()
        assert shown["fatura_subscriptions_due_not_generated"] == 1
        assert shown['fatura_oldest_work_seconds{lane="generation"}'] > timedelta(days=20).total_seconds()

        await world.run("push")
        assert (await metrics(world))["fatura_events_waiting_to_be_pushed"] == 0


# Each statement makes work of a lane due, in an account that `populate` filled. Triggers are off while it runs.
DUE = rows("""
    lane           | made due
    erasure        | UPDATE erasure SET stage = 'invoices', requested_at = '2000-01-01'
    propagation    | UPDATE propagation SET status = 'running', ended_at = NULL, worked_at = '2000-01-01'
    generation     | UPDATE subscription SET generate_at = '2000-01-01'
    generation     | UPDATE subscription SET failures = 1, put_off_until = '2000-01-01'
    pricing        | UPDATE price_pull SET next_attempt_at = '2000-01-01'
    pricing        | UPDATE price_pull SET warn_at = '2000-01-01'
    pricing        | UPDATE pricing_attempt SET outcome = NULL, response_status = NULL, OPEN
    issuance       | UPDATE invoice SET next_attempt_at = '2000-01-01', status = 'ready' WHERE ISSUED
    reconciliation | UPDATE invoice SET next_attempt_at = '2000-01-01' WHERE ISSUED
    reconciliation | UPDATE invoice SET next_attempt_at = '2000-01-01', status = 'overdue' WHERE ISSUED
    reconciliation | UPDATE invoice SET next_attempt_at = '2000-01-01', status = 'paid', paid_at = now() WHERE ISSUED
    reconciliation | UPDATE invoice SET next_attempt_at = '2000-01-01', status = 'canceled', CANCELED WHERE ISSUED
    reconciliation | UPDATE late_charge_check SET next_check_at = '2000-01-01'
    gateway_probe  | UPDATE connection_health SET UNPROBED
    mirroring      | UPDATE product_mirror SET next_attempt_at = '2000-01-01'
    push           | UPDATE webhook SET next_attempt_at = '2000-01-01', HEALTHY; UNDELIVERED
    retention      | UPDATE idempotency_key SET expires_at = '2000-01-01'
""")
SHORT = {
    "HEALTHY": "failures = 0, failing_since = NULL, real_failing_since = NULL",
    "ISSUED": "status = 'issued'",
    "CANCELED": "canceled_at = now()",
    "OPEN": "latency_ms = NULL, response_body = NULL, open_until = '2000-01-01'",
    "UNDELIVERED": "UPDATE delivery SET next_attempt_at = '2000-01-01', delivered_at = NULL, waits = false",
    "UNPROBED": """
        failures = 3, failing_since = '2000-01-01', next_probe_at = '2000-01-01', error_code = 'x', error_detail = 'x'
    """,
}


async def test_the_delay_of_every_kind_of_work_is_shown(world: World) -> None:
    """[D-128]"""
    await populate(world)
    real_now, years = world.deps.clock(), timedelta(days=9000)
    async with connected(as_superuser(world.database_url)) as connection:
        await connection.execute("SET session_replication_role = replica")
        before = await lateness.discover_oldest(Discovery(connection), real_now=real_now)
        assert max(before.values()) < years
        missed: list[tuple[str, ...]] = []
        for lane, statement in DUE:
            transaction = connection.transaction()
            await transaction.start()
            for name, text in SHORT.items():
                statement = statement.replace(name, text)  # noqa: PLW2901 - expanded
            await connection.execute(statement)
            shown = await lateness.discover_oldest(Discovery(connection), real_now=real_now)
            if shown[lane] < years:
                missed.append((lane, statement))
            await transaction.rollback()
    assert missed == []


def test_the_delay_counts_all_work_for_which_a_test_clock_stops() -> None:
    """[D-128, D-45]"""
    minimum = re.compile(
        r"'(\w+)'(?: AS \w+)?, (?:\(SELECT )?min\(([\w.]+)\)(?: AS \w+)? FROM (\w+) \w "
        r"WHERE \w\.account_id = \S+ AND (.+?)\)?(?: AS \w+)?$"
    )
    stops, counted = (
        {
            found.groups()
            for part in " ".join(sql.split()).split(" UNION ALL ")
            if (found := minimum.search(part))
        }
        for sql in (due_times.DUE_BY_LANE, lateness.DISCOVER_OLDEST)
    )
    assert len(stops) > 10
    assert stops <= counted


@pytest.mark.faults
def test_a_worker_serves_metrics_and_health(database_url: str, tmp_path: Path) -> None:
    """[D-128]"""
    env = environment(database_url)
    port = free_port()
    with running("worker", "--metrics-port", str(port), env=env, output=tmp_path / "said") as worker:
        until(lambda: serves(port), seconds=30)
        shown = _series(httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text)
        assert shown["fatura_database_up"] == 1
        assert httpx.get(f"http://127.0.0.1:{port}/v1/products", timeout=5).status_code == 404
        assert worker.stop(signal.SIGTERM) == 0

    run_here("account", "create", "Gym", "--mode", "live", env=env)
    page = tmp_path / "fatura.prom"
    assert run_here("check", "--textfile", str(page), env=env).returncode == 0
    series = _series(page.read_text())
    assert series['fatura_invariant_offenders{invariant="event_numbers_without_gaps"}'] == 0
    assert series["fatura_check_timestamp_seconds"] > 0
