"""Kill the primary of a synchronous cluster five times while clients write, and check all acknowledged writes."""

import asyncio
import tempfile
from pathlib import Path
from random import Random
from time import monotonic

from tests.faults.database.engine import open_engine
from tests.faults.database.failover_cluster import NEEDS, Cluster, bin_dir, open_cluster
from tests.faults.database.faults import Scene
from tests.faults.database.load import LEAST_WRITES_A_SECOND, loaded
from tests.faults.report import Options, Report, Scale

KILLS = 5


def run(options: Options) -> Report:
    report = Report("failover", options.seed)
    programs = bin_dir()
    if options.scale is not Scale.FULL:
        report.left_out = "only at full scale: a cluster takes a minute"
    elif programs is None:
        report.left_out = NEEDS
    else:
        with tempfile.TemporaryDirectory(prefix="fatura-failover-") as name:
            Path(name).chmod(0o711)
            asyncio.run(_fail_over(options, report, folder=Path(name), programs=programs))
    return report


async def _fail_over(options: Options, report: Report, *, folder: Path, programs: Path) -> None:
    async with open_cluster(folder, programs) as cluster:
        url = cluster.url("fatura")
        async with open_engine(url, folder, seed=options.seed) as engine:
            scene = Scene(engine, Random(options.seed))  # noqa: S311 - not for security
            async with loaded(scene, report, owner_url=cluster.owner_url, title="failover", full=True):
                for number in range(KILLS):
                    options.progress(number, KILLS, "killing the primary")
                    await _kill_leader(scene, cluster)
    report.count("failover: primaries killed", KILLS, at_least=KILLS)


async def _kill_leader(scene: Scene, cluster: Cluster) -> None:
    leader = await cluster.leader()
    await scene.wait_for_load(LEAST_WRITES_A_SECOND)
    began = monotonic()
    leader.kill()
    await scene.unready(began)
    returned = await cluster.returned()
    await scene.recovered(f"the loss of {leader.name}", since=returned)
    leader.start()
