"""Three PostgreSQL nodes with synchronous replication. Patroni and etcd of the Linux distribution manage the nodes."""

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import asyncpg
import httpx

from fatura.postgres import os_user
from fatura.postgres.os_user import OsUser
from tests.faults.database.server import accepts_connections
from tests.support.fatura_processes import free_port

NODES = 3
NEEDS = "needs: apt-get install patroni etcd-server postgresql"
START_SECONDS = 120
_ASKED_EVERY_SECONDS = 0.1
_PROGRAMS = ("postgres", "initdb", "pg_basebackup", "pg_rewind", "pg_controldata", "pg_ctl", "pg_isready")
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def bin_dir() -> Path | None:
    """Return the folder of the newest PostgreSQL that has all programs that Patroni needs.

    Return None if there is no such folder, or if Patroni or etcd is not installed.
    """
    if not shutil.which("patroni") or not shutil.which("etcd"):
        return None
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: int(each.parent.name), reverse=True
    )
    return next((each for each in folders if all((each / name).exists() for name in _PROGRAMS)), None)


@dataclass(slots=True, eq=False)
class Node:
    name: str
    folder: Path
    user: OsUser
    port: int = field(default_factory=free_port)
    api_port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def config(self) -> Path:
        return self.folder / "patroni.json"

    def start(self) -> None:
        words = [shutil.which("patroni") or "patroni", self.config]
        self.process = started(words, user=self.user, output=self.folder / "patroni.log")

    def kill(self) -> None:
        assert self.process is not None
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(
                int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0]), signal.SIGKILL
            )
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True, slots=True)
class Cluster:
    nodes: Sequence[Node]
    password: str

    def url(self, role: str) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        database = "fatura" if role == "fatura" else "postgres"
        return f"postgresql://{role}:{self.password}@{hosts}/{database}?target_session_attrs=read-write"

    @property
    def owner_url(self) -> str:
        return self.url("postgres").replace("/postgres?", "/fatura?")

    async def leader(self) -> Node:
        """Wait until the cluster has a primary with a synchronous standby. Return the primary."""
        give_up_at = monotonic() + START_SECONDS
        async with httpx.AsyncClient(timeout=2) as http:
            while monotonic() < give_up_at:
                for node in self.nodes:
                    roles = await _roles(http, node)
                    if "leader" in roles.values() and list(roles.values()).count("sync_standby") >= 1:
                        return next(each for each in self.nodes if roles.get(each.name) == "leader")
                await asyncio.sleep(_ASKED_EVERY_SECONDS)
        raise TimeoutError(f"no leader with a synchronous standby within {START_SECONDS} s")

    async def returned(self) -> float:
        """Wait until a node accepts writes. Return the monotonic time."""
        return await accepts_connections(self.url("fatura"), within_seconds=START_SECONDS)


async def _roles(http: httpx.AsyncClient, node: Node) -> dict[str, str]:
    """Query a node for the role of each running member. Return an empty mapping if the node does not respond."""
    try:
        members = (await http.get(f"http://127.0.0.1:{node.api_port}/cluster")).json()["members"]
    except (httpx.HTTPError, ValueError):
        return {}
    return {each["name"]: each["role"] for each in members if each["state"] in {"running", "streaming"}}


@asynccontextmanager
async def open_cluster(folder: Path, programs: Path) -> AsyncGenerator[Cluster]:
    """Run etcd and the nodes during the block. Create the engine's role and database before the block."""
    user = os_user.choose(folder / "none", folder)
    etcd_port, password = free_port(), secrets.token_hex(16)
    nodes = [Node(f"node{number}", _own(user, folder / f"node{number}"), user) for number in range(NODES)]
    cluster = Cluster(nodes, password)
    with ExitStack() as stack:
        etcd = started(_etcd(_own(user, folder / "etcd"), etcd_port), user=user, output=folder / "etcd.log")
        stack.callback(etcd.wait)
        stack.callback(etcd.kill)
        for node in nodes:
            node.config.write_text(
                json.dumps(_settings(node, cluster, etcd_port=etcd_port, programs=programs))
            )
            user.own(node.config)
            node.start()
            stack.callback(node.kill)
        await cluster.leader()
        owner = await asyncpg.connect(cluster.url("postgres"), timeout=10)
        await owner.execute(
            f"CREATE ROLE fatura LOGIN NOSUPERUSER NOBYPASSRLS CREATEDB PASSWORD '{password}'"
        )
        await owner.execute("CREATE DATABASE fatura OWNER fatura")
        owner.terminate()
        yield cluster


def _etcd(folder: Path, port: int) -> Sequence[str | Path]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    words: list[str | Path] = [shutil.which("etcd") or "etcd", "--data-dir", folder / "data"]
    words += ["--listen-client-urls", client, "--advertise-client-urls", client]
    words += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    return [*words, "--initial-cluster", f"default={peer}"]


def _settings(node: Node, cluster: Cluster, *, etcd_port: int, programs: Path) -> dict[str, object]:
    """Return Patroni's settings: failover after five seconds without response, and synchronous commits on two nodes."""
    return {
        "scope": "fatura",
        "name": node.name,
        "restapi": {
            "listen": f"127.0.0.1:{node.api_port}",
            "connect_address": f"127.0.0.1:{node.api_port}",
        },
        "etcd3": {"host": f"127.0.0.1:{etcd_port}"},
        "bootstrap": {
            "dcs": {
                "ttl": 5,
                "loop_wait": 1,
                "retry_timeout": 2,
                "synchronous_mode": True,
                "postgresql": {
                    "use_pg_rewind": True,
                    "parameters": {"max_connections": 60, "shared_buffers": "64MB", "wal_log_hints": "on"},
                },
            },
            "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
        },
        "postgresql": {
            "listen": f"127.0.0.1:{node.port}",
            "connect_address": f"127.0.0.1:{node.port}",
            "data_dir": str(node.folder / "data"),
            "bin_dir": str(programs),
            "pgpass": str(node.folder / "pgpass"),
            "pg_hba": [
                "host all all 127.0.0.1/32 scram-sha-256",
                "host replication all 127.0.0.1/32 scram-sha-256",
            ],
            "parameters": {"unix_socket_directories": "", "password_encryption": "scram-sha-256"},
            "authentication": {
                "superuser": {"username": "postgres", "password": cluster.password},
                "replication": {"username": "replicator", "password": cluster.password},
            },
        },
    }


def started(words: Sequence[str | Path], *, user: OsUser, output: Path) -> "subprocess.Popen[bytes]":
    with output.open("ab") as file:
        return subprocess.Popen(
            words,
            cwd="/",
            env=_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=user.uid if user.switched else None,
            group=user.gid if user.switched else None,
            extra_groups=() if user.switched else None,
        )


def _own(user: OsUser, folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    user.own(folder)
    return folder
