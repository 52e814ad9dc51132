"""The files that the house rules read, and the form in which a rule says what it found."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Source:
    """One text file of the repository, or a sample that a rule is tried on."""

    path: str
    text: str

    @property
    def lines(self) -> list[str]:
        """The file's lines."""
        return self.text.splitlines()

    @property
    def tree(self) -> ast.Module:
        """The file's syntax tree."""
        return _parsed(self.path, self.text)


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of a rule: where it stands, what is wrong and how to mend it."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        """Read like a compiler's message."""
        return f"{self.path}:{self.line}: {self.message}"


def none(findings: Iterable[Finding]) -> bool:
    """Fail with every finding on a line of its own; true when there is none, for use in an assert."""
    listed = [str(finding) for finding in findings]
    if listed:
        raise AssertionError("\n" + "\n".join(listed))
    return True


def repository(*suffixes: str, under: str = "") -> list[Source]:
    """Return the repository's text files with these endings, what git ignores left out."""
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
