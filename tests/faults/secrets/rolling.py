"""Rotate the key ring while requests continue: restart real processes in turn, and run `fatura keys rotate`."""

import asyncio
import json
from pathlib import Path
from typing import Any

from fatura.store.vault import new_key
from tests.faults import place
from tests.faults.report import Report
from tests.faults.stack import Client, Stack, open_stack
from tests.support.fatura_processes import free_port, run
from tests.support.receiver import open_receiver
from tests.support.world import plan_body, subscription_body


async def roll(server_url: str, folder: Path, report: Report) -> None:
    """Restart two APIs and a worker with each new key ring while requests continue. No request may fail."""
    old, new = new_key(), new_key()
    logged = folder / "rolling"
    logged.mkdir()
    async with place.database(server_url) as url, open_receiver() as receiver:
        with open_stack(url, logged, ring=old) as stack:
            opened = await stack.open_account()
            client, stop = Client(stack, opened.api_key), asyncio.Event()
            await client.ask("PUT", "/v1/integration/webhook", {"url": receiver.url})
            load = asyncio.create_task(_load(client, stop))
            for ring in (f"{old},{new}", f"{new},{old}"):
                stack.ring = ring
                await asyncio.to_thread(stack.restart_all)
            rotated = await asyncio.to_thread(_rotated, stack)
            stack.ring = new
            await asyncio.to_thread(stack.restart_all)
            await client.ask("GET", "/v1/integration")
            stop.set()
            await load
            await client.close()
            _judge(stack, client, rotated, report=report)
            _check_startup(stack, folder, other=new_key(), report=report)
        report.count("events pushed while the ring changed", len(receiver.received), at_least=10)


async def _load(client: Client, stop: asyncio.Event) -> None:
    pricing = {"mode": "fixed", "monthlyPriceCents": 1000}
    product = await client.ask("POST", "/v1/products", {"name": "Gym", "pricing": pricing})
    plan = await client.ask("POST", "/v1/plans", plan_body(product.json()))
    number = 0
    while not stop.is_set():
        body = subscription_body(plan.json())
        body["customer"]["document"] = f"AR 20-{number:08}-1"
        await client.ask("POST", "/v1/subscriptions", body)
        await client.ask(
            "POST", "/v1/integration/api-keys", {"name": "x"}, Idempotency_Key=f"key-{number % 20}"
        )
        if number % 10 == 0:
            await client.ask("POST", "/v1/integration/secret/rotate")
        number += 1


def _rotated(stack: Stack) -> dict[str, Any]:
    ended = run("keys", "rotate", "--json", env=stack.environment())
    return json.loads(ended.stdout) | {"exit": ended.returncode}


def _judge(stack: Stack, client: Client, rotated: dict[str, Any], *, report: Report) -> None:
    failed = [each for each in client.answers if each.status_code >= 400]
    report.count("requests while the ring changed", len(client.answers), at_least=100)
    report.count("requests that failed while the ring changed", len(failed), at_most=0)
    report.problems += [f"{each.request.url} {each.status_code} {each.text}" for each in failed[:5]]
    keys: dict[str, list[str]] = {}
    for answer in client.answers:
        if answer.request.url.path.endswith("api-keys") and answer.request.method == "POST":
            keys.setdefault(answer.request.headers["idempotency-key"], []).append(answer.text)
    differing = [key for key, bodies in keys.items() if len(set(bodies)) > 1]
    report.count("repeats with another answer while the ring changed", len(differing), at_most=0)
    unused = [each["keyId"] for each in rotated["keys"] if each["values"] == 0]
    if rotated["exit"] != 0 or rotated["unreadable"] != 0 or len(unused) != 1:
        report.problems.append(f"fatura keys rotate does not end cleanly: {rotated}")
    unread = [line for _, line in stack.logs() if "does not open" in line or "was sealed with key" in line]
    report.count("log lines of secrets that did not open", len(unread), at_most=0)


def _check_startup(stack: Stack, folder: Path, *, other: str, report: Report) -> None:
    """Check that processes refuse to start without a needed key, and that the error names FATURA_SECRET_KEYS."""
    live = run("account", "create", "Live", "--mode", "live", "--json", env=stack.environment())
    assert live.returncode == 0, live.stderr
    (folder / "empty").mkdir()
    for ring in ("", other, "no key"):
        for command, options in (("api", ("--port", str(free_port()))), ("worker", ())):
            env = {
                **stack.environment(),
                "FATURA_SECRET_KEYS": ring,
                "FATURA_DATA_DIR": str(folder / "empty"),
            }
            ended = run(command, *options, env=env)
            if ended.returncode != 1 or "FATURA_SECRET_KEYS" not in ended.stderr:
                report.problems.append(
                    f"fatura {command} with the ring {ring!r} is not refused: {ended.stderr}"
                )
    if [*(folder / "empty").iterdir()]:
        report.problems.append("a refused process wrote into its data folder")
