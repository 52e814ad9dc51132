"""Read the index of clauses and the tests' citations, and list uncited clauses (`make spec`)."""

import difflib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INDEX = "docs/reference/clauses.md"
DECISIONS = "docs/decisions.md"

_HEADING = re.compile(r"^#+ (.+)$")
_ROW = re.compile(r"^\| `([^`|]+)` \| (.+?) \| (now|later) \|$")
_OWN_DECISION = re.compile(r"^(?:#+ |- \*\*)(D-\d{3,}[a-z]?)\b\W*(.*)$")
_BRACKETS = re.compile(r"\[((?:spec \d|D-\d)[^\]\n]*)\]")
_SECTIONS = re.compile(r"\bspec (\d[\d.]*\d|\d)((?:(?:,| and| to) \d+\.[\d.]*\d)*)")
_DECISION = re.compile(r"\bD-\d+[a-z]?\b")


@dataclass(frozen=True, slots=True)
class Clause:
    """One requirement of the specification or of a decision. A test must cite it if `built` is true."""

    id: str
    says: str
    group: str
    built: bool


@dataclass(frozen=True, slots=True)
class Citation:
    """One mention of a clause or section, with the file and the line of the mention."""

    id: str
    path: Path
    line: int


def clauses(root: Path = ROOT) -> dict[str, Clause]:
    """Return every clause by id, from the index and from this project's own decisions.

    Raises ValueError for a table row that cannot be read, and for a duplicate id.
    """
    found: dict[str, Clause] = {}
    for clause in [*_index(root / INDEX), *_own_decisions(root / DECISIONS)]:
        if clause.id in found:
            raise ValueError(f"{clause.id} is listed twice")
        found[clause.id] = clause
    return found


def _index(path: Path) -> Iterator[Clause]:
    group = ""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if heading := _HEADING.match(line):
            group = heading[1]
        elif row := _ROW.match(line):
            yield Clause(row[1], row[2], group, built=row[3] == "now")
        elif line.startswith("| `"):
            raise ValueError(f"{path}:{number}: not a row of | `id` | what holds | now or later |")


def _own_decisions(path: Path) -> Iterator[Clause]:
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    for row in filter(None, map(_OWN_DECISION.match, lines)):
        yield Clause(row[1], row[2].strip("*. "), "Decisions of this project", built=True)


def cited_by_tests(root: Path = ROOT) -> Iterator[Citation]:
    """Yield every bracketed citation under tests/."""
    for path in sorted((root / "tests").rglob("*.py")):
        yield from bracketed(path)


def bracketed(path: Path) -> Iterator[Citation]:
    """Yield the ids in square brackets in a file. A pair of brackets may contain several ids, separated by commas."""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        for brackets in _BRACKETS.finditer(line):
            for id_ in brackets[1].split(","):
                yield Citation(id_.strip(), path, number)


def mentioned(path: Path) -> Iterator[Citation]:
    """Yield the sections and decisions mentioned in a file's text, such as `spec 4.4` and `D-14`."""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        for sections in _SECTIONS.finditer(line):
            for section in re.findall(r"\d[\d.]*\d|\d", sections[0]):
                yield Citation(f"spec {section}", path, number)
        for decision in _DECISION.finditer(line):
            yield Citation(decision[0], path, number)


def resolves(mention: str, ids: Iterable[str]) -> bool:
    """Return whether any of the ids belongs to the mentioned section or decision, or to a subsection of it."""
    return any(id_ == mention or id_.startswith((f"{mention} ", f"{mention}.")) for id_ in ids)


def nearest(id_: str, ids: Iterable[str]) -> str:
    """Return the known ids that are most similar to an unknown id, formatted for a message."""
    near = difflib.get_close_matches(id_, list(ids), n=3, cutoff=0.4)
    return ", ".join(f"[{match}]" for match in near) or "none"


def uncited(known: Mapping[str, Clause], citations: Iterable[Citation], *, later: bool) -> list[Clause]:
    """Return the clauses that no test cites. Clauses that are not `built` are included only with `later`."""
    cited = {citation.id for citation in citations}
    return [clause for clause in known.values() if clause.id not in cited and (clause.built or later)]


def main(arguments: list[str]) -> int:
    """Print uncited clauses and unknown citations. Return 1 for an uncited `built` clause or an unknown citation."""
    known, citations = clauses(), list(cited_by_tests())
    missing = uncited(known, citations, later="--all" in arguments)
    group = ""
    for clause in missing:
        if clause.group != group:
            group = clause.group
            print(f"\n{group}")
        print(f"  {clause.id:<72} {'' if clause.built else '(later) '}{clause.says}")
    unknown = [citation for citation in citations if citation.id not in known]
    for citation in unknown:
        where = f"{citation.path.relative_to(ROOT)}:{citation.line}"
        print(f"{where}: [{citation.id}] is not in {INDEX}; nearest: {nearest(citation.id, known)}")
    if not missing and not unknown:
        print("tests cite every clause that is built")
    return 1 if unknown or any(clause.built for clause in missing) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
