"""Metrics of `/metrics` and `fatura check --textfile`."""

import signal
from datetime import timedelta
from pathlib import Path

import httpx

from tests.support.fatura_processes import environment, free_port, run_here, running, serves
from tests.support.populated import populate
from tests.support.postgres_processes import until
from tests.support.push_steps import register, skip
from tests.support.receiver import always, open_receiver
from tests.support.world import World


async def metrics(world: World) -> dict[str, float]:
    """Return the series of a scrape by name and labels."""
    page = (await world.get("/metrics")).body.decode()
    return _series(page)


def _series(page: str) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


async def grown(world: World, before: dict[str, float]) -> dict[str, float]:
    """Return by how much each call counter has increased, without unchanged counters."""
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
