"""An API and two workers as separate processes, and an account that they bill."""

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from fatura.store.migrations.runner import migrate
from tests.faults import breaks
from tests.faults.database.client import Client
from tests.faults.database.readiness import Readiness
from tests.support.fatura_processes import environment, free_port, run, running, serves
from tests.support.postgres_processes import until
from tests.support.receiver import Receiver, open_receiver
from tests.support.unlimited import LOOPBACK, UNLIMITED
from tests.support.world import Json, plan_body

API_CONNECTIONS = 4
"""Number of database connections of the API. The API has more clients, so some requests wait or get a 503."""
START_SECONDS = 180


@dataclass(frozen=True, slots=True)
class Engine:
    """The running API and workers, the clients that send writes, and the monitors of health and webhooks."""

    env: dict[str, str]
    client: Client
    readiness: Readiness
    receiver: Receiver
    processes: "dict[str, subprocess.Popen[bytes]]"
    logs: Path

    def exited(self) -> list[str]:
        """Return the processes that have ended, with their exit codes. No process should end during a run."""
        return [
            f"{name} ended with exit code {process.poll()}"
            for name, process in self.processes.items()
            if process.poll() is not None
        ]

    def failures(self) -> Counter[str]:
        """Return the exceptions that the processes logged, and how often each occurred."""
        lines = [
            line for name in self.processes for line in (self.logs / f"{name}.log").read_text().splitlines()
        ]
        logged = [json.loads(line) for line in lines if '"exception"' in line]
        return Counter(f"{each['event']}: {each['exception'].splitlines()[-1]}" for each in logged)

    async def findings(self) -> list[str]:
        checked = await asyncio.to_thread(run, "check", "--json", env=self.env)
        if not checked.stdout:
            return [f"fatura check ended with {checked.returncode}: {checked.stdout} {checked.stderr}"]
        return [f"fatura check: {finding}" for finding in json.loads(checked.stdout)["findings"]]


@asynccontextmanager
async def open_engine(
    database_url: str, folder: Path, *, seed: int, owner_url: str | None = None
) -> AsyncGenerator[Engine]:
    """Migrate a database, start the processes on it, and open an account with a plan and a webhook.

    `owner_url` has the role that owns the tables; None means the role of `database_url`.
    """
    await migrate(owner_url or database_url, engine_role=None if owner_url is None else "fatura")
    await breaks.break_database(owner_url or database_url)
    env = environment(
        database_url,
        FATURA_OUTBOUND_ALLOW=LOOPBACK,
        **UNLIMITED,
        FATURA_LOG_LEVEL="warning",
        FATURA_MAX_CONNECTIONS=str(API_CONNECTIONS),
        **breaks.environment(),
    )
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    api_key = await asyncio.to_thread(_open_account, env)
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(
                running(*words, env=env, output=folder / f"{name}.log", module="tests.faults.breakable")
            ).process
            for name, words in {
                "api": ("api", "--port", str(port)),
                "worker-1": ("worker",),
                "worker-2": ("worker",),
            }.items()
        }
        async with open_receiver() as receiver:
            await asyncio.to_thread(until, lambda: _serves(processes["api"], port), seconds=START_SECONDS)
            plan = await asyncio.to_thread(_set_up, url, api_key, receiver.url)
            client, readiness = Client(url, api_key, plan["id"], seed), Readiness(url)
            watching = asyncio.create_task(readiness.watch())
            try:
                yield Engine(env, client, readiness, receiver, processes, folder)
            finally:
                watching.cancel()


def _serves(api: "subprocess.Popen[bytes]", port: int) -> bool:
    assert api.poll() is None, f"the API ended with exit code {api.returncode}"
    return serves(port)


def _open_account(env: dict[str, str]) -> str:
    opened = run("account", "create", "Shop", "--mode", "sandbox", "--json", env=env)
    assert opened.returncode == 0, opened.stderr
    return json.loads(opened.stdout)["apiKey"]


def _set_up(url: str, api_key: str, webhook_url: str) -> Json:
    headers = {"Authorization": f"Bearer {api_key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=30) as http:

        def made(path: str, body: Json) -> Json:
            return http.post(path, json=body, headers={"Idempotency-Key": path}).raise_for_status().json()

        http.put("/v1/integration/webhook", json={"url": webhook_url}).raise_for_status()
        pricing = {"mode": "fixed", "monthlyPriceCents": 9990}
        product = made("/v1/products", {"name": "Gym", "pricing": pricing})
        return made("/v1/plans", plan_body(product))
