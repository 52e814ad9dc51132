"""House rules on the length of files and functions, on names, parameters, closures and module docstrings."""

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.sources import Finding, Source, none, repository, words

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_POSITIONAL = 2
MAX_DOCSTRING_LINES = 8
CONTEXT = {"self", "cls", "call", "deps", "db", "work", "tx", "discovery", "account", "account_id"}
VAGUE = {"service", "manager", "helper", "util", "common", "base", "handler"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(source: Source) -> Iterator[Function]:
    return (node for node in ast.walk(source.tree) if isinstance(node, Function))


def long_files(source: Source) -> Iterator[Finding]:
    """Refuse files with more than MAX_FILE_LINES lines."""
    if (length := len(source.lines)) > MAX_FILE_LINES:
        yield Finding(
            source.path, length, f"{length} lines, {MAX_FILE_LINES} at most: make it a package of that name"
        )


def long_functions(source: Source) -> Iterator[Finding]:
    """Refuse functions with more than MAX_FUNCTION_LINES lines."""
    for function in functions(source):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > MAX_FUNCTION_LINES:
            yield Finding(
                source.path,
                function.lineno,
                f"{function.name} has {length} lines, {MAX_FUNCTION_LINES} at most: split it by its steps",
            )


def vague_names(source: Source) -> Iterator[Finding]:
    """Refuse names that describe nothing."""
    named = [(1, part) for part in source.path.removesuffix(".py").split("/")]
    named += [
        (node.lineno, node.name)
        for node in ast.walk(source.tree)
        if isinstance(node, Function | ast.ClassDef)
    ]
    for line, name in named:
        for word in words(name):
            if word.removesuffix("s") in VAGUE:
                yield Finding(
                    source.path, line, f"{name!r}: {word!r} says nothing; name what it does or holds"
                )


def many_positional(source: Source) -> Iterator[Finding]:
    """Refuse public functions with many positional arguments. Calls of such functions are hard to read."""
    for function in functions(source):
        takes = [argument.arg for argument in function.args.posonlyargs + function.args.args]
        asked = [name for place, name in enumerate(takes) if not _is_context(takes[: place + 1])]
        registered = any(isinstance(decorator, ast.Call) for decorator in function.decorator_list)
        if registered or any(name.startswith("_") for name in asked):
            continue  # a framework calls this function, our code does not
        if len(asked) > MAX_POSITIONAL and not function.name.startswith("_"):
            yield Finding(
                source.path, function.lineno, f"{function.name}: put a * after {asked[MAX_POSITIONAL - 1]}"
            )


def _is_context(leading: list[str]) -> bool:
    """Return whether all these parameters are contexts, such as a transaction or an account."""
    return set(leading) <= CONTEXT


def logged_texts(source: Source) -> Iterator[Finding]:
    """Refuse log calls that turn an exception into text. Logging redacts exception objects, but not texts."""
    caught = {
        node.name
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ExceptHandler) and node.name is not None
    }
    for call in ast.walk(source.tree):
        if not (isinstance(call, ast.Call) and ast.unparse(call.func).startswith("log.")):
            continue
        for part in (part for keyword in call.keywords for part in ast.walk(keyword.value)):
            is_text = isinstance(part, ast.Call) and ast.unparse(part.func) in {"str", "repr"}
            if (is_text or isinstance(part, ast.FormattedValue)) and caught.intersection(
                each.id for each in ast.walk(part) if isinstance(each, ast.Name)
            ):
                yield Finding(source.path, call.lineno, "log the exception itself: `error=error`")


def transaction_closures(source: Source) -> Iterator[Finding]:
    """Refuse nested functions that take a transaction.

    Code is easier to read from top to bottom if such functions are at the top level.
    """
    for outer in functions(source):
        for inner in ast.walk(outer):
            if inner is outer or not isinstance(inner, ast.AsyncFunctionDef):
                continue
            if {argument.arg for argument in inner.args.args} & {"work", "tx"}:
                yield Finding(
                    source.path,
                    inner.lineno,
                    f"{inner.name} is nested in {outer.name}: make it a top-level function with arguments",
                )


def undocumented_modules(source: Source) -> Iterator[Finding]:
    """Refuse modules without a short docstring."""
    docstring = ast.get_docstring(source.tree)
    if docstring is None:
        yield Finding(source.path, 1, "no docstring: say in one or two sentences what the module contains")
    elif len(docstring.splitlines()) > MAX_DOCSTRING_LINES:
        yield Finding(source.path, 1, "the docstring is too long: move details to what they explain")


@pytest.mark.parametrize("rule", [long_files, long_functions, vague_names])
def test_every_file_keeps_the_rules(rule):
    assert none(finding for source in repository(".py") for finding in rule(source))


@pytest.mark.parametrize("rule", [many_positional, transaction_closures, undocumented_modules, logged_texts])
def test_the_engine_keeps_the_rules(rule):
    assert none(finding for source in repository(".py", under="src/") for finding in rule(source))


LONG = '"""Long."""\n' + "x = 1\n" * MAX_FILE_LINES
TALL = "def tall():\n" + "    x = 1\n" * MAX_FUNCTION_LINES
RAMBLING = '"""One\n' + "more line\n" * MAX_DOCSTRING_LINES + '"""\n'


@pytest.mark.parametrize(
    ("rule", "path", "bad"),
    [
        (long_files, "a.py", LONG),
        (long_functions, "a.py", TALL),
        (long_functions, "a.py", TALL.replace("def", "async def")),
        (vague_names, "a.py", "class PlanManager: pass"),
        (vague_names, "a.py", "def common_terms(): pass"),
        (vague_names, "src/utils.py", ""),
        (vague_names, "src/services/plan.py", ""),
        (many_positional, "a.py", "def f(a, b, c): pass"),
        (many_positional, "a.py", "class A:\n    async def f(self, a, b, c): pass"),
        (transaction_closures, "a.py", "def f(deps):\n    async def effect(work): pass"),
        (transaction_closures, "a.py", "async def f(deps):\n    async def effect(work, *, n): pass"),
        (undocumented_modules, "a.py", "x = 1"),
        (logged_texts, "a.py", "try: f()\nexcept E as error: log.info('x', error=str(error))"),
        (logged_texts, "a.py", "try: f()\nexcept E as error: log.info('x', error=f'{error}')"),
        (undocumented_modules, "a.py", RAMBLING),
    ],
)
def test_a_bad_sample_is_found(rule, path, bad):
    assert list(rule(Source(path, bad)))
