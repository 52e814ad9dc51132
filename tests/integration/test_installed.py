"""The wheel, installed into a fresh virtual environment, runs in any folder."""

import json
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement

from fatura import reference
from tests.conftest import database_url_of
from tests.support.fatura_processes import environment, free_port, is_open
from tests.support.postgres_processes import until, value
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.faults

END_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Installed:
    """A virtual environment with the wheel and the packages that it requires, and an empty folder to work in."""

    command: Path
    folder: Path

    def run(self, *words: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.command, *words],
            cwd=self.folder,
            env=env or environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=END_SECONDS,
        )


def required(distribution_: Distribution, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Add all distributions that a distribution requires, directly or indirectly, to `found`. Return `found`."""
    for line in distribution_.requires or ():
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if requirement.name not in found:
            found[requirement.name] = distribution(requirement.name)
            required(found[requirement.name], found)
    return found


def link(packages: Iterator[Distribution] | list[Distribution], site: Path) -> None:
    """Link the files of installed distributions into a folder, so that nothing must be downloaded."""
    for package in packages:
        for top in {
            path.parts[0] for path in package.files or () if path.parts[0] not in {"..", "__pycache__"}
        }:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(package.locate_file(top))))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", folder, ROOT], check=True, timeout=END_SECONDS)
    (wheel,) = folder.glob("fatura-*.whl")
    return wheel


@pytest.fixture(scope="module")
def environment_folder(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, built], check=True, timeout=END_SECONDS)
    (site,) = folder.glob("lib/python*/site-packages")
    (installed,) = Distribution.discover(name="fatura", path=[str(site)])
    link(list(required(installed, {}).values()), site)
    program = "examples/merchant/app.py"
    assert (site / "fatura" / program).read_bytes() == (ROOT / program).read_bytes()
    return folder


@pytest.fixture
def installed(environment_folder: Path, tmp_path: Path) -> Installed:
    folder = tmp_path / "empty"
    folder.mkdir()
    return Installed(environment_folder / "bin/fatura", folder)


def test_the_installed_command_needs_no_checkout(installed: Installed, server_url: str) -> None:
    """[D-47]"""
    document = installed.run("openapi")
    assert document.returncode == 0, document.stderr
    assert json.loads(document.stdout) == json.loads(json.dumps(reference.openapi_document()))

    value(server_url, "CREATE DATABASE for_the_wheel")
    env = environment(database_url_of(server_url, "for_the_wheel"))
    migrated = installed.run("migrate", "--json", env=env)
    assert migrated.returncode == 0, migrated.stderr
    files = {path.stem for path in (ROOT / "src/fatura/store/migrations").glob("[0-9]*.sql")}
    assert {Path(name).stem for name in json.loads(migrated.stdout)["applied"]} == files
    assert installed.run("check", env=env).stdout.startswith("clean")
    assert list(installed.folder.iterdir()) == []


def test_the_installed_command_completes_words(installed: Installed) -> None:
    """[D-47]"""
    script = installed.run(env=environment() | {"_FATURA_COMPLETE": "source_bash"})
    assert "complete -o default -F _fatura_completion fatura" in script.stdout

    words = {"_FATURA_COMPLETE": "complete_bash", "COMP_WORDS": "fatura wo", "COMP_CWORD": "1"}
    assert installed.run(env=environment() | words).stdout.split() == ["worker"]
    words = {"_FATURA_COMPLETE": "complete_bash", "COMP_WORDS": "fatura worker --m", "COMP_CWORD": "2"}
    assert installed.run(env=environment() | words).stdout.split() == ["--metrics-port", "--metrics-host"]


def test_up_runs_in_an_empty_folder(installed: Installed) -> None:
    """[D-47]"""
    port = free_port()
    log = installed.folder.with_name("up.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [installed.command, "up", "--port", str(port)],
            cwd=installed.folder,
            env=environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: "Press Ctrl-C" in log.read_text(), seconds=60)
        page = httpx.get(f"http://127.0.0.1:{port}/docs", timeout=5).text
        assets = re.findall(r'(?:src|href)="(/docs/assets/[^"]+)"', page)
        assert len(assets) == 2
        for asset in assets:
            assert len(httpx.get(f"http://127.0.0.1:{port}{asset}", timeout=5).content) > 10_000
    finally:
        process.terminate()
        assert process.wait(60) == 0
    assert {path.name for path in installed.folder.iterdir()} == {".fatura"}


@pytest.mark.timeout(1000)
def test_the_demo_runs_in_an_empty_folder(installed: Installed) -> None:
    """[D-47]"""
    port = free_port()
    ended = installed.run("demo", "--once", "--port", str(port))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "webhooks" in ended.stdout
    assert not is_open(port)
