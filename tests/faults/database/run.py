"""Kill and suspend PostgreSQL, and use up its connections, while an API and two workers use the database.

A full run also fills the disks of a second server (see `disk`).
"""

import asyncio
import tempfile
from pathlib import Path
from random import Random

from tests.faults.database.disk import fill_disks
from tests.faults.database.engine import open_engine
from tests.faults.database.faults import FAULTS, SHORT, Scene
from tests.faults.database.load import LEAST_WRITES_A_SECOND, loaded
from tests.faults.database.server import server
from tests.faults.report import Options, Report, Scale
from tests.support.databases import as_owner

ROUNDS = 2
"""How often the full run injects each kind of fault."""


def run(options: Options) -> Report:
    report = Report("database", options.seed)
    with tempfile.TemporaryDirectory(prefix="fatura-database-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        asyncio.run(_under_load(options, report, folder))
        if options.scale is Scale.FULL:
            options.progress(0, 1, "filling disks")
            asyncio.run(fill_disks(options, report, folder))
    return report


async def _under_load(options: Options, report: Report, folder: Path) -> None:
    chance = Random(options.seed)  # noqa: S311 - not for security
    full = options.scale is Scale.FULL
    rounds = [chance.sample(list(FAULTS), len(FAULTS)) for _ in range(ROUNDS)] if full else [SHORT]
    order = [name for each in rounds for name in each]
    with server(folder / "data") as database:
        async with open_engine(
            database.url, folder, seed=options.seed, owner_url=as_owner(database.url)
        ) as engine:
            scene = Scene(engine, chance)
            async with loaded(scene, report, owner_url=database.owner_url, title="under load", full=full):
                for number, name in enumerate(order):
                    options.progress(number, len(order), name)
                    await scene.wait_for_load(LEAST_WRITES_A_SECOND if full else 1)
                    await FAULTS[name](scene, database)
                    await scene.recovered(name, since=await database.returned())
    report.count("under load: faults", len(order), at_least=len(order))
