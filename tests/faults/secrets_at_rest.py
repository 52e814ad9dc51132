"""Secrets: sealed where they lie, nowhere else, under a ring that changes while everything runs."""

import asyncio
import tempfile
from pathlib import Path

from tests.faults import canaries, place, rings, rolling, swapped
from tests.faults.report import Options, Report
from tests.world import open_world


def run(options: Options) -> Report:
    """Swap ciphertexts, change the ring under load, revoke a key, and look for canaries everywhere."""
    report = Report("secrets", options.seed)
    with place.server() as url, tempfile.TemporaryDirectory(prefix="fatura-faults-") as folder:
        asyncio.run(_in_process(url, options, report))
        asyncio.run(canaries.seek(url, Path(folder), options=options, report=report))
        if options.pick(short=0, full=1):
            options.progress(3, 4, "the ring rolled over processes")
            asyncio.run(rolling.roll(url, Path(folder), report))
    return report


async def _in_process(server_url: str, options: Options, report: Report) -> None:
    """Try what needs no processes."""
    options.progress(0, 4, "ciphertexts swapped")
    async with place.database(server_url) as url, open_world(url) as world:
        await swapped.swap_all(world, report)
    options.progress(1, 4, "the ring changed under load")
    async with place.database(server_url) as url, open_world(url) as world:
        await rings.rotate_under_load(world, report)
