"""Starting, stopping and killing `fatura up`, its child processes and its database."""

import asyncio
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fatura.bootstrap import WORKER_NICENESS
from tests.support.crowd import Crowd, open_crowd
from tests.support.fatura_processes import (
    Running,
    environment,
    free_port,
    run,
    running,
    serves,
    written_credentials,
)
from tests.support.postgres_processes import is_running, postmaster, sweep, until
from tests.support.world import Json, plan_body, subscription_body

pytestmark = pytest.mark.faults

KEY = re.compile(r"API key +(rk_test_\S+)")


class Up:
    """Runs `fatura up` on one data folder. A test can start it several times."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.api_key = ""
        self._starts = 0

    @contextmanager
    def start(self) -> Generator[Running]:
        """Start `fatura up`. Wait until the API responds and the worker process runs."""
        self._starts += 1
        output = self.folder.with_name(f"up-{self._starts}.log")
        words = ("up", "--port", str(self.port), "--data-dir", str(self.folder))
        with running(*words, env=environment(), output=output) as up:
            until(lambda: self._is_up(up), seconds=40)
            if self._starts == 1:
                key = KEY.search(written_credentials(up.said()))
                assert key
                self.api_key = key[1]
            yield up

    def _is_up(self, up: Running) -> bool:
        assert up.process.poll() is None, up.said()
        return serves(self.port) and set(up.children()) == {"api", "worker"}

    def processes(self, up: Running) -> list[int]:
        """Return the ids of the processes of `fatura up`, of its children and of its database."""
        return [up.process.pid, *up.children().values(), postmaster(self.folder)]

    def call(self, method: str, path: str, body: Json = None) -> Json:
        """Call the API with the API key that the first start created."""
        headers = {"Authorization": f"Bearer {self.api_key}", "Idempotency-Key": path}
        answer = httpx.request(
            method, f"http://127.0.0.1:{self.port}{path}", json=body, headers=headers, timeout=60
        )
        assert answer.status_code < 300, answer.text
        return answer.json()

    def bill_one(self) -> None:
        pricing = {"mode": "fixed", "monthlyPriceCents": 9990}
        product = self.call("POST", "/v1/products", {"name": "Gym", "pricing": pricing})
        plan = self.call("POST", "/v1/plans", plan_body(product))
        self.call("POST", "/v1/subscriptions", subscription_body(plan))

    def pass_forty_days(self) -> list[tuple[int, str]]:
        """Advance the test clock by 40 days. Return the cycle and status of each invoice, newest first."""
        assert self.call("POST", "/v1/test-clock/advance", {"days": 40})["status"] == "ready"
        return [(each["cycle"], each["status"]) for each in self.call("GET", "/v1/invoices")["data"]]


@pytest.fixture
def engine(tmp_path: Path) -> Generator[Up]:
    """An engine on a new data folder. The test starts it."""
    up = Up(tmp_path / "data")
    yield up
    sweep(up.folder)


def test_up_starts_twice_on_one_folder(engine: Up) -> None:
    """[D-47]"""
    with engine.start() as first:
        assert "rk_test_" not in first.said()
        assert httpx.get(f"http://127.0.0.1:{engine.port}/docs").status_code == 200
        engine.bill_one()
        assert engine.pass_forty_days() == [(2, "paid"), (1, "paid")]
        beside = run(
            "account", "create", "Gym", "--mode", "live", "--data-dir", str(engine.folder), env=environment()
        )
        assert beside.returncode == 0
        assert beside.stderr.startswith(f"fatura: embedded database in {engine.folder}")
        assert postmaster(engine.folder) in (processes := engine.processes(first))
        assert first.stop(signal.SIGTERM) == 0
        assert [pid for pid in processes if is_running(pid)] == []
        assert "Traceback" not in first.said()

    with engine.start() as second:
        assert "rk_test_" not in second.said()
        assert engine.pass_forty_days() == [(3, "paid"), (2, "paid"), (1, "paid")]
        processes = engine.processes(second)
        for pid in second.children().values():  # Ctrl-C in a terminal signals children too
            os.kill(pid, signal.SIGINT)
        assert second.stop(signal.SIGINT) == 0
        assert [pid for pid in processes if is_running(pid)] == []
        assert "Traceback" not in second.said()


def test_the_worker_of_up_leaves_the_processor_to_the_api(engine: Up) -> None:
    """The worker of `fatura up`, with its PostgreSQL processes, has a lower priority than the API with its processes.

    Billing therefore does not delay requests. [D-47]
    """
    with engine.start() as up:
        children, database = up.children(), postmaster(engine.folder)
        usual = os.getpriority(os.PRIO_PROCESS, database)
        assert os.getpriority(os.PRIO_PROCESS, children["api"]) == usual
        until(lambda: os.getpriority(os.PRIO_PROCESS, children["worker"]) == usual + WORKER_NICENESS)
        listed = ["ps", "--no-headers", "-o", "pid=,ni=,args=", "--ppid", str(database)]

        def priorities() -> set[tuple[int, str]]:
            """Return pairs for the PostgreSQL backends: the backend's niceness, and the niceness of its session."""
            lines = subprocess.run(listed, capture_output=True, text=True, check=False).stdout.splitlines()
            backends = [line.split()[:2] for line in lines if "fatura fatura" in line]
            return {(int(niceness), session_niceness(int(pid))) for pid, niceness in backends}

        none = session_niceness(database)
        lowered = none and str(WORKER_NICENESS)
        until(lambda: {(usual, none), (usual + WORKER_NICENESS, lowered)} <= priorities())
        assert up.stop() == 0


def session_niceness(pid: int) -> str:
    """Return the niceness of a process's session (autogroup), or an empty text if `/proc` does not show it."""
    try:
        return Path(f"/proc/{pid}/autogroup").read_text().rpartition(" ")[2].strip()
    except OSError:
        return ""


def test_up_can_be_killed_and_started_again(engine: Up) -> None:
    """[D-47]"""
    with engine.start() as first:
        engine.bill_one()
        processes = engine.processes(first)
        first.kill()
        until(lambda: not any(is_running(pid) for pid in processes), seconds=15)

    with engine.start() as second:
        assert engine.pass_forty_days() == [(2, "paid"), (1, "paid")]
        assert second.stop() == 0


def test_a_killed_database_and_killed_children_are_started_again(engine: Up) -> None:
    """[D-47]"""
    with engine.start() as up:
        engine.bill_one()
        victim = postmaster(engine.folder)
        os.kill(victim, signal.SIGKILL)
        until(lambda: not is_running(victim))
        time.sleep(1.1)  # the result of the readiness checks is kept for a second
        until(lambda: serves(engine.port), seconds=20)
        assert engine.pass_forty_days() == [(2, "paid"), (1, "paid")]

        before = up.children()
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        until(lambda: set(up.children()) == set(before) and serves(engine.port), seconds=20)
        assert not set(up.children().values()) & set(before.values())
        assert engine.pass_forty_days() == [(3, "paid"), (2, "paid"), (1, "paid")]
        assert up.stop() == 0


async def test_another_worker_finishes_the_advance_of_a_killed_one(database_url: str, tmp_path: Path) -> None:
    """[D-45, D-33]"""
    async with open_crowd(database_url) as crowd:
        await _advance_with_a_loss(crowd, database_url, tmp_path)


async def _advance_with_a_loss(crowd: Crowd, database_url: str, tmp_path: Path) -> None:
    merchant, env = crowd.merchant, environment(database_url)
    plan = await merchant.plan()
    for day in range(1, 21):
        await merchant.enroll(plan, chargeDay=day)
    advancing = asyncio.create_task(merchant.post("/v1/test-clock/advance", {"days": 100}))
    with running("worker", env=env, output=tmp_path / "first.log") as first:
        await crowd.until("SELECT count(*) FROM invoice WHERE account_id = $1 AND status = 'paid'", 15)
        first.kill()
    assert (await merchant.get("/v1/test-clock")).json["status"] == "advancing"
    await crowd.end_leases()
    with running("worker", env=env, output=tmp_path / "second.log") as second:
        assert (await advancing).status in {
            200,
            202,
        }  # on a busy machine, the advance takes more than 100 seconds
        await crowd.until("SELECT count(*) FROM test_clock WHERE account_id = $1 AND status = 'ready'", 1)
        assert await asyncio.to_thread(second.stop) == 0

    invoices = await merchant.invoices()
    assert {each["status"] for each in invoices} == {"paid", "issued"}
    assert Counter(each["cycle"] for each in invoices)[1] == 20
    instants = [each["createdAt"] for each in await merchant.events()]
    assert instants == sorted(instants)
    charges = (await merchant.get("/v1/sandbox/charges")).json["data"]
    assert sorted(each["invoiceId"] for each in charges) == sorted(each["id"] for each in invoices)
    checked = await asyncio.to_thread(run, "check", env=env)
    assert checked.returncode == 0, checked.stdout


async def test_an_invoice_has_one_charge_after_workers_were_killed(database_url: str, tmp_path: Path) -> None:
    """[D-33]"""
    async with open_crowd(database_url) as crowd:
        await _issue_with_losses(crowd, database_url, tmp_path)


async def _freeze_at(victim: Running, crowd: Crowd, statement: str) -> None:
    """Freeze a worker as soon as the count that `statement` reads is positive."""
    async with asyncio.timeout(50):
        while True:
            victim.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.05)  # gives the worker's current statement time to finish
            if (await crowd.sql(statement))[0][0]:
                return
            victim.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.003)


async def _issue_with_losses(crowd: Crowd, database_url: str, tmp_path: Path) -> None:
    count, env = 600, environment(database_url)
    await crowd.subscribe(await crowd.merchant.plan(), count=count)
    issued = "SELECT count(*) FROM invoice WHERE account_id = $1 AND status <> 'ready'"
    sending = "SELECT count(*) FROM charge WHERE account_id = $1 AND stage IN ('sending', 'unknown')"
    for share in (0.15, 0.4, 0.7):
        with running("worker", env=env, output=tmp_path / f"{share}.log") as victim:
            await crowd.until(issued, int(count * share))
            await _freeze_at(victim, crowd, sending)
            victim.kill()
        await crowd.end_leases()
    assert (await crowd.sql(sending))[0][0], "no worker was killed during a call"

    with running("worker", env=env, output=tmp_path / "last.log") as last:
        assert (await crowd.pass_minutes(10)).status == 200
        await asyncio.to_thread(last.stop)

    counted = await crowd.sql(
        "SELECT invoice_id, count(*) AS n FROM sandbox_charge WHERE account_id = $1 GROUP BY 1"
    )
    assert [len(counted), {each["n"] for each in counted}] == [count, {1}]
    assert (await crowd.sql(issued))[0][0] == count
    checked = await asyncio.to_thread(run, "check", env=env)
    assert checked.returncode == 0, checked.stdout
