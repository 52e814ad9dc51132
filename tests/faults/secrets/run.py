"""Test that secrets are stored only in encrypted form, and stay readable while the key ring changes."""

import tempfile
from pathlib import Path

import uvloop

from tests.faults import place
from tests.faults.report import Options, Report
from tests.faults.secrets import canaries, rings, rolling, swapped
from tests.support.world import open_world


def run(options: Options) -> Report:
    report = Report("secrets", options.seed)
    with place.server() as url, tempfile.TemporaryDirectory(prefix="fatura-faults-") as folder:
        with report.part("ciphertexts swapped"):
            options.progress(0, 4, "ciphertexts swapped")
            uvloop.run(_swapped(url, report))
        with report.part("the ring changed under load"):
            options.progress(1, 4, "the ring changed under load")
            uvloop.run(_ring_changed(url, report))
        with report.part("canaries"):
            uvloop.run(canaries.search(url, Path(folder), options=options, report=report))
        if options.pick(short=0, full=1):
            options.progress(3, 4, "the ring rolled over processes")
            uvloop.run(rolling.roll(url, Path(folder), report))
    return report


async def _swapped(server_url: str, report: Report) -> None:
    async with place.database(server_url) as url, open_world(url) as world:
        await swapped.swap_all(world, report)


async def _ring_changed(server_url: str, report: Report) -> None:
    async with place.database(server_url) as url, open_world(url) as world:
        await rings.rotate_under_load(world, report)
