"""The repository names no machine and no registry, and every disabled check has a reason."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT, Finding, Source, none, repository

# Each refused word is written in parts, so that the rule does not find the word in this file.
HOSTS = ("py" + "pi.org", "python" + "hosted", "registry." + "npmjs", "proxy." + "golang", "index" + "-url")
FOLDERS = ("root", "home/" + r"\w+", "work", "Users/" + r"\w+", "workspace")
WORDS = (
    "hel" + "per", "suba" + "gent", "steer" + "ing", "clau" + "de", "anthro" + "pic", "chat" + "gpt",
    "copi" + "lot", "to" + "do", "fix" + "me", "xx" + "x",
)  # fmt: skip
PATTERNS = {
    "a registry's host": re.compile("|".join(map(re.escape, HOSTS)), re.IGNORECASE),
    "a folder of one machine": re.compile(rf"(?<![\w./-])/(?:{'|'.join(FOLDERS)})/"),
    "a folder beside the repository": re.compile(r"\.\./(?:\.\./)*sha" + "red"),
    "a word about how the code was written": re.compile(
        rf"\b(?:{'|'.join(WORDS)}|(?<!user-)ag" + r"ents?)s?\b", re.IGNORECASE
    ),
}
EXEMPT = {
    "LICENSE": "is the text of a license",
    "tests/tidy/test_shape.py": "lists names that are refused",
}
_SWITCHED_OFF = re.compile(r"#\s*(?:noqa|type: ignore|pyright: ignore|pragma: no cover)")
_REASONED = re.compile(r"#\s*(?:noqa: [A-Z]+\d+(?:, ?[A-Z]+\d+)*|(?:type|pyright): ignore\[[\w, -]+\]) - \S")


def traces(source: Source, machine: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Refuse text that refers to one machine, to a registry or to the way in which the code was written."""
    for number, line in enumerate(source.lines, 1):
        for what, pattern in PATTERNS.items():
            if found := pattern.search(line):
                yield Finding(source.path, number, f"{found[0]!r} is {what}: remove it")
        for path in machine:
            if path in line:
                yield Finding(source.path, number, f"{path} is a path of this machine")


def unreasoned(source: Source) -> Iterator[Finding]:
    """Refuse disabled checks without a reason."""
    for number, line in enumerate(source.lines, 1):
        if _SWITCHED_OFF.search(line) and not _REASONED.search(line):
            yield Finding(source.path, number, "a check is disabled without a reason: end with `CODE - why`")


def test_the_repository_has_no_trace():
    machine = tuple(str(path) for path in (ROOT, Path.home()) if len(path.parts) > 2)
    sources = [source for source in repository() if source.path not in EXEMPT]
    assert none(finding for source in sources for finding in traces(source, machine))


def test_disabled_checks_have_a_reason():
    assert none(finding for source in repository(".py") for finding in unreasoned(source))


@pytest.mark.parametrize(
    "bad",
    [
        f"see https://{HOSTS[0]}/simple",
        f"--{HOSTS[-1]} x",
        "cd /" + "root/x",
        "data in /" + "home/ann/data",
        "see ../" + "../sha" + "red/design",
        *(f"a {word} here" for word in WORDS),
        "written by an ag" + "ent",
    ],
)
def test_a_trace_is_found(bad):
    assert list(traces(Source("a.py", bad)))


def test_a_path_of_this_machine_is_found():
    assert list(traces(Source("a.py", "x = '/srv/build/fatura'"), ("/srv/build",)))


@pytest.mark.parametrize("good", ["User-Ag" + "ent: fatura", "reagents", "src/home/"])
def test_ordinary_words_pass(good):
    assert not list(traces(Source("a.py", good)))


@pytest.mark.parametrize(
    "bad", ["x = 1  # no" + "qa", "x = 1  # no" + "qa: BLE001", "x = 1  # type: " + "ignore"]
)
def test_a_disabled_check_without_a_reason_is_found(bad):
    assert list(unreasoned(Source("a.py", bad)))


def test_a_disabled_check_with_a_reason_passes():
    assert not list(unreasoned(Source("a.py", "x = 1  # no" + "qa: BLE001 - a lane outlives its work")))
