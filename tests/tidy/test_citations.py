"""House rules on citations: every cited clause exists in the index."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT, Finding, none
from tools import spec

PROSE = ("src/**/*.py", "src/**/*.sql", "tests/**/*.py", "bench/*.py", "docs/**/*.md", "*.md")


def unknown_clauses(path: Path) -> Iterator[Finding]:
    """Refuse bracketed ids that are not in the index of clauses."""
    known = spec.clauses()
    for citation in spec.bracketed(path):
        if citation.id not in known:
            message = f"[{citation.id}] is not in {spec.INDEX}; nearest: {spec.nearest(citation.id, known)}"
            yield Finding(_relative(path), citation.line, message)


def unknown_mentions(path: Path) -> Iterator[Finding]:
    """Refuse text that mentions a section or a decision which the index of clauses does not have."""
    known = spec.clauses()
    for citation in spec.mentioned(path):
        if not spec.resolves(citation.id, known):
            message = (
                f"{citation.id} is no section or decision of {spec.INDEX}; from D-100 on: {spec.DECISIONS}"
            )
            yield Finding(_relative(path), citation.line, message)


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def test_bracketed_citations_resolve():
    assert none(finding for path in (ROOT / "tests").rglob("*.py") for finding in unknown_clauses(path))


def test_prose_citations_resolve():
    paths = [path for pattern in PROSE for path in ROOT.glob(pattern)]
    assert none(finding for path in paths for finding in unknown_mentions(path))


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (unknown_clauses, "[spec {}.2 POST /v1/products 201]"),
        (unknown_clauses, "[D-{}]"),
        (unknown_mentions, "spec {}.1"),
        (unknown_mentions, "spec 4.2, {}.5"),
        (unknown_mentions, "D-{}"),
    ],
)
def test_a_bad_sample_is_found(rule, bad, tmp_path):
    """The test inserts the number 99 when it runs, so that this file itself cites no unknown clause."""
    sample = tmp_path / "a.py"
    sample.write_text(bad.format(99))
    assert list(rule(sample))


def test_clauses_without_a_citation_are_listed():
    known = {
        "built": spec.Clause("built", "", "", built=True),
        "cited": spec.Clause("cited", "", "", built=True),
        "later": spec.Clause("later", "", "", built=False),
    }
    cited = [spec.Citation("cited", Path("a.py"), 1)]
    assert [clause.id for clause in spec.uncited(known, cited, later=False)] == ["built"]
    assert [clause.id for clause in spec.uncited(known, cited, later=True)] == ["built", "later"]


def test_headings_of_decisions_are_clauses(tmp_path):
    (tmp_path / "docs/reference").mkdir(parents=True)
    index, decisions = tmp_path / spec.INDEX, tmp_path / spec.DECISIONS
    index.write_text("## Some\n| `spec 1` | one | now |\n")
    decisions.write_text(f"# Ours\n\n## D-{100} Something\n")
    assert list(spec.clauses(tmp_path)) == ["spec 1", f"D-{100}"]
    index.write_text("| `spec 1` | one | soon |\n")
    with pytest.raises(ValueError, match="not a row"):
        spec.clauses(tmp_path)
