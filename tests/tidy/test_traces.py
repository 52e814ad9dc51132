"""House rules on traces: the repository names no machine, no registry and nothing of how it came about."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT, Finding, Source, none, repository

# The words are put together here, so that this file does not hold what it looks for.
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
    "a word of the workshop": re.compile(
        rf"\b(?:{'|'.join(WORDS)}|(?<!user-)ag" + r"ents?)s?\b", re.IGNORECASE
    ),
}
EXEMPT = {
    "LICENSE": "is quoted",
    "tests/tidy/test_shape.py": "lists names that are refused",
}
_SWITCHED_OFF = re.compile(r"#\s*(?:noqa|type: ignore|pyright: ignore|pragma: no cover)")
_REASONED = re.compile(r"#\s*(?:noqa: [A-Z]+\d+(?:, ?[A-Z]+\d+)*|(?:type|pyright): ignore\[[\w, -]+\]) - \S")


def traces(source: Source, machine: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Refuse what only makes sense where the code was written."""
    for number, line in enumerate(source.lines, 1):
        for what, pattern in PATTERNS.items():
            if found := pattern.search(line):
                yield Finding(source.path, number, f"{found[0]!r} is {what}: say it without")
        for path in machine:
            if path in line:
                yield Finding(source.path, number, f"{path} is a path of this machine")


def unreasoned(source: Source) -> Iterator[Finding]:
    """Refuse switched-off checks that do not say why."""
    for number, line in enumerate(source.lines, 1):
        if _SWITCHED_OFF.search(line) and not _REASONED.search(line):
            yield Finding(source.path, number, "a check is switched off unsaid: end with `CODE - why`")


def test_no_trace_is_left():
    """A stranger reads a project, not a workplace."""
    machine = tuple(str(path) for path in (ROOT, Path.home()) if len(path.parts) > 2)
    sources = [source for source in repository() if source.path not in EXEMPT]
    assert none(finding for source in sources for finding in traces(source, machine))


def test_switched_off_checks_say_why():
    """A check is switched off on one line, for one code, with a reason."""
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
    """A rule that cannot fail proves nothing."""
    assert list(traces(Source("a.py", bad)))


def test_a_path_of_this_machine_is_found():
    """Whatever machine it is."""
    assert list(traces(Source("a.py", "x = '/srv/build/fatura'"), ("/srv/build",)))


@pytest.mark.parametrize("good", ["User-Ag" + "ent: fatura", "reagents", "src/home/"])
def test_words_of_the_trade_pass(good):
    """The rule is about the workshop only."""
    assert not list(traces(Source("a.py", good)))


@pytest.mark.parametrize(
    "bad", ["x = 1  # no" + "qa", "x = 1  # no" + "qa: BLE001", "x = 1  # type: " + "ignore"]
)
def test_an_unreasoned_switch_is_found(bad):
    """A bare switch is refused."""
    assert list(unreasoned(Source("a.py", bad)))


def test_a_reasoned_switch_passes():
    """A reason beside it is enough."""
    assert not list(unreasoned(Source("a.py", "x = 1  # no" + "qa: BLE001 - a lane outlives its work")))
