"""House rules on the docs: they cover the code, generated pages are current, and links resolve."""

import ast
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from packaging.requirements import Requirement

from fatura import reference
from tests.tidy.sources import ROOT, Finding, Source, none, repository
from tools import gateways, generated

CATALOGUE = "src/fatura/domain/errors.py"
_CODE = re.compile(r"engine\.[a-z_]+")
_VARIABLE = re.compile(r"\bFATURA_[A-Z][A-Z_]*[A-Z]\b")
_TARGET = re.compile(r"^([a-z][a-z-]*):(.*)$")
_ROUTE = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE) (/(?:v1|gateways)/[\w/{}$.-]+)")
_CURLED = re.compile(r"curl (?:-X (\w+) )?\"\$API(/[\w/${}-]+)")
_FENCE = re.compile(r"^ *```(\w*)")
_TRAILING_COMMENT = re.compile(r"\S\s+# ")
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def page(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def codes(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the problem type codes, such as `engine.not_found`, among the strings of a file, each with its line."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _CODE.fullmatch(node.value):
            yield node.lineno, node.value


def spelled_out_codes(source: Source) -> Iterator[Finding]:
    """Refuse problem type codes that are spelled out in any file but the catalogue."""
    if source.path != CATALOGUE:
        for line, code in codes(source):
            yield Finding(source.path, line, f"{code} is spelled out: use the Problem of {CATALOGUE}")


def undocumented_codes(source: Source, errors: str) -> Iterator[Finding]:
    """Refuse problem type codes that the page `errors.md` does not list."""
    for line, code in codes(source):
        if f"`{code}`" not in errors:
            yield Finding(source.path, line, f"{code} is missing in docs/reference/errors.md: run make docs")


def undocumented_variables(source: Source, settings: str) -> Iterator[Finding]:
    """Refuse environment variables that the page `settings.md` does not list."""
    for number, line in enumerate(source.lines, 1):
        for variable in _VARIABLE.findall(line):
            if f"`{variable}`" not in settings:
                yield Finding(source.path, number, f"{variable} is missing in docs/reference/settings.md")


def undescribed_targets(source: Source) -> Iterator[Finding]:
    """Refuse `make` targets without a description."""
    for number, line in enumerate(source.lines, 1):
        if (target := _TARGET.match(line)) and " ## " not in target[2]:
            yield Finding(
                source.path, number, f"{target[1]} says nothing: end the line with `## what it does`"
            )


def unexplained_dependencies(requirements: list[str], dependencies: str) -> Iterator[Finding]:
    """Refuse dependencies that have no row in `dependencies.md`."""
    for requirement in requirements:
        name = Requirement(requirement).name
        if f"| `{name}` |" not in dependencies:
            yield Finding("pyproject.toml", 1, f"{name} has no row in docs/reference/dependencies.md")


def broken_links(source: Source) -> Iterator[Finding]:
    """Refuse links to files that do not exist."""
    for number, line in enumerate(source.lines, 1):
        for target in _LINK.findall(line):
            if not (ROOT / source.path).parent.joinpath(target).exists():
                yield Finding(source.path, number, f"{target} does not exist")


def trailing_comments(source: Source) -> Iterator[Finding]:
    """Refuse comments behind shell commands, because zsh passes them to the command as arguments."""
    is_shell = False
    for number, line in enumerate(source.lines, 1):
        if fence := _FENCE.match(line):
            is_shell = fence[1] in {"sh", "bash"}
        elif is_shell and _TRAILING_COMMENT.search(line):
            yield Finding(source.path, number, "zsh runs the comment: write it into the text above the block")


def unknown_routes(source: Source, paths: dict[str, Any]) -> Iterator[Finding]:
    """Refuse prose and curl commands that name a route which the API does not have."""
    for number, line in enumerate(source.lines, 1):
        called = [(method or "GET", f"/v1{path}") for method, path in _CURLED.findall(line)]
        for method, path in _ROUTE.findall(line) + called:
            shape = re.sub(r"\{\w+\}|\$\w+", "{}", path)
            known = [each for each in paths if re.sub(r"\{\w+\}", "{}", each) == shape]
            if not any(method.lower() in paths[each] for each in known):
                yield Finding(source.path, number, f"{method} {path} is no route of the API")


def unlisted_records(index: str, names: list[str]) -> Iterator[Finding]:
    """Refuse records in `docs/adr` that the README there does not list."""
    for name in names:
        if f"]({name})" not in index:
            yield Finding("docs/adr/README.md", 1, f"{name} is not listed")


def test_error_codes_are_in_the_catalogue_and_documented():
    """[D-12]"""
    errors = page("docs/reference/errors.md")
    sources = repository(".py", under="src/")
    assert none(finding for source in sources for finding in spelled_out_codes(source))
    assert none(finding for source in sources for finding in undocumented_codes(source, errors))


def test_environment_variables_are_documented():
    settings = page("docs/reference/settings.md")
    sources = repository(".py", under="src/")
    assert none(finding for source in sources for finding in undocumented_variables(source, settings))


def test_generated_pages_are_current():
    assert list(generated.stale()) == []


def test_the_page_of_providers_has_each_adapter_and_each_test_of_the_suites() -> None:
    """`make contracts CONTRACTS=<folder>` writes the page again."""
    page = gateways.PAGE.read_text("utf-8")
    adapters = [each.name for each in gateways.ADAPTERS.iterdir() if (each / "__init__.py").exists()]
    assert [each for each in adapters if f"| `{each}` |" not in page] == []
    assert [row for row in gateways.suite_rows() if f"| {row} |" not in page] == []
    assert "**fails**" not in page


def test_make_targets_have_descriptions():
    assert none(undescribed_targets(Source("Makefile", page("Makefile"))))


def test_dependencies_are_explained():
    project = tomllib.loads(page("pyproject.toml"))
    groups = project["dependency-groups"]
    extras = [each for extra in project["project"]["optional-dependencies"].values() for each in extra]
    asked = project["project"]["dependencies"] + extras + groups["build"] + groups["dev"]
    named = [each for each in asked if isinstance(each, str)]
    assert none(unexplained_dependencies(named, page("docs/reference/dependencies.md")))


def test_links_resolve():
    assert none(finding for source in repository(".md") for finding in broken_links(source))


def test_shell_commands_have_no_trailing_comments():
    assert none(finding for source in repository(".md") for finding in trailing_comments(source))


def test_pages_name_routes_that_exist():
    paths = reference.openapi_document()["paths"]
    pages = [source for source in repository(".md") if source.path != "docs/reference/clauses.md"]
    assert none(finding for source in pages for finding in unknown_routes(source, paths))


def test_decision_records_are_listed():
    names = [path.name for path in (ROOT / "docs/adr").glob("[0-9]*.md")]
    assert names
    assert none(unlisted_records(page("docs/adr/README.md"), names))


@pytest.mark.parametrize(
    "found",
    [
        spelled_out_codes(Source("a.py", 'x = "engine.new"')),
        undocumented_codes(Source(CATALOGUE, 'x = "engine.new"'), "| `engine.old` |"),
        undocumented_variables(Source("a.py", 'x = "FATURA_NEW"'), "| `FATURA_NEWER` |"),
        undescribed_targets(Source("Makefile", "all: one two")),
        unexplained_dependencies(["new>=1"], "| `newer` |"),
        broken_links(Source("README.md", "see [this](docs/nothing.md#part)")),
        unknown_routes(Source("README.md", 'curl -X POST "$API/products/$ID/now"'), {"/v1/products": {}}),
        trailing_comments(Source("README.md", "```sh\nKEY=...  # the key")),
        unknown_routes(Source("README.md", "send `GET /v1/product`"), {"/v1/products": {"get": {}}}),
        unlisted_records("[0001](0001-a.md)", ["0002-b.md"]),
    ],
)
def test_a_bad_sample_is_found(found):
    assert list(found)


def test_a_stale_page_is_found(tmp_path):
    assert set(generated.stale(tmp_path)) == set(generated.PAGES)
