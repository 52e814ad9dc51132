"""The files that the house rules check, and what a rule reports."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Source:
    """A text file of the repository, or a sample text that tests a rule."""

    path: str
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def tree(self) -> ast.Module:
        return _parsed(self.path, self.text)


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation of a rule: its place, what is wrong and how to correct it."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def none(findings: Iterable[Finding]) -> bool:
    """Raise AssertionError with all findings; return True if there are none."""
    listed = [str(finding) for finding in findings]
    if listed:
        raise AssertionError("\n" + "\n".join(listed))
    return True


def repository(*suffixes: str, under: str = "") -> list[Source]:
    """Return the text files of the repository with these endings, except files that git ignores."""
    return [
        Source(path, text)
        for path, text in _files()
        if path.startswith(under) and (not suffixes or path.endswith(suffixes))
    ]


def words(identifier: str) -> list[str]:
    """Split an identifier of any style into its lower-case words."""
    spaced = "".join(f" {letter}" if letter.isupper() else letter for letter in identifier)
    return spaced.replace("_", " ").lower().split()


@cache
def _parsed(path: str, text: str) -> ast.Module:
    return ast.parse(text, path)


@cache
def _files() -> tuple[tuple[str, str], ...]:
    ignored = [".git", *(line.rstrip("/") for line in (ROOT / ".gitignore").read_text("utf-8").split())]
    return tuple(_walk(ROOT, ignored))


def _walk(folder: Path, ignored: list[str]) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.iterdir()):
        if any(fnmatch(path.name, pattern) for pattern in ignored):
            continue
        if path.is_dir():
            yield from _walk(path, ignored)
        elif b"\0" not in (content := path.read_bytes()):
            yield str(path.relative_to(ROOT)), content.decode("utf-8", "replace")
