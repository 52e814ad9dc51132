"""Send writes to the engine while a run injects faults, and compare all writes with the database afterwards."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import monotonic

from tests.faults.database.client import Client
from tests.faults.database.faults import Scene
from tests.faults.database.truth import compare
from tests.faults.report import Report

LEAST_WRITES_A_SECOND = 10
"""Minimum number of writes in the second before a fault, at full scale.

So each fault interrupts writes. The minimum is low, because a busy machine makes only 20 writes a second.
"""


@asynccontextmanager
async def loaded(
    scene: Scene, report: Report, *, owner_url: str, title: str, full: bool
) -> AsyncGenerator[None]:
    """Run clients during the block, then compare their journal with the database.

    In a short run, recovery may take three times as long as in a full run, because the machine is busy.
    """
    engine = scene.engine
    writing, began = asyncio.create_task(engine.client.run()), monotonic()
    try:
        yield
    finally:
        engine.client.stop()
        await writing
    seconds = monotonic() - began
    part = Report(report.run, report.seed)
    scene.report_times(part, slack=1 if full else 3, least_rate=LEAST_WRITES_A_SECOND if full else 1)
    _report_client(part, engine.client, seconds=seconds)
    part.problems += [f"/health was {failure}" for failure in engine.readiness.failures[:5]]
    part.problems += await engine.findings()
    await compare(part, engine.client, owner_url)
    if part.problems:
        part.problems += [f"logged {count} times: {what}" for what, count in engine.failures().most_common(5)]
    for figure in part.figures:
        report.count(
            f"{title}: {figure.what}", figure.value, at_least=figure.at_least, at_most=figure.at_most
        )
    report.problems += [f"{title}: {problem}" for problem in part.problems]


def _report_client(report: Report, client: Client, *, seconds: float) -> None:
    report.count("writes acknowledged", len(client.acknowledged), at_least=1)
    report.count("writes acknowledged per second, including outages", len(client.acknowledged) / seconds)
    report.count("answers 503 with Retry-After", client.statuses[503], at_least=1)
    report.count("unexpected answers", len(client.wrong), at_most=0)
    report.problems += client.wrong[:5]
