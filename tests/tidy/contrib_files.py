"""The files in `contrib`, and the `fatura` commands that these files and the docs name."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import typer.main
import yaml

from fatura.cli import app
from tests.tidy.sources import Source, repository

Words = list[str]
Command = tuple[str, int, Words]
"""A command of `fatura` with its file, its line (0 if unknown) and its arguments."""
_START = re.compile(r"^ExecStart=\S+/fatura (.+)$")
_CMD = re.compile(r"^CMD (\[.+\])$")
_SPAN = re.compile(r"`fatura ([a-z][^`]*)`")
_LINE = re.compile(r"(?:^|\s|bin/)fatura ([a-z][^|;&>#]*)")


def contrib(*suffixes: str, under: str = "") -> list[Source]:
    return repository(*suffixes, under=f"contrib/{under}")


def documents(source: Source) -> list[Any]:
    return [each for each in yaml.safe_load_all(source.text) if each is not None]


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every mapping inside a YAML or JSON value."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from mappings(each)


def containers(source: Source) -> Iterator[dict[str, Any]]:
    """Yield each container in a YAML file whose image is `fatura`. The merge keys of Compose are applied."""
    for document in documents(source):
        services = {name: each for name, each in document.items() if name != "x-fatura"}
        yield from (each for each in mappings(services) if each.get("image") == "fatura")


def arguments(container: dict[str, Any]) -> Words:
    return container.get("args") or container["command"]


def commands_of_contrib() -> Iterator[Command]:
    for source in contrib(".service"):
        for number, line in enumerate(source.lines, 1):
            if found := _START.match(line):
                yield source.path, number, shlex.split(found[1])
    for source in contrib("Dockerfile"):
        for number, line in enumerate(source.lines, 1):
            if found := _CMD.match(line):
                yield source.path, number, yaml.safe_load(found[1])
    for source in contrib(".yaml"):
        for container in containers(source):
            yield source.path, 0, arguments(container)


def commands_of_docs() -> Iterator[Command]:
    """Yield the commands in code blocks and in inline code."""
    for source in repository(".md"):
        in_block = False
        for number, line in enumerate(source.lines, 1):
            if line.lstrip().startswith("```"):
                in_block = not in_block
                continue
            pattern = _LINE if in_block else _SPAN
            for text in pattern.findall(line):
                yield source.path, number, text.rstrip(" \\'").split()


def fault_of(words: Words) -> str | None:
    """Return the error if the arguments of `fatura` contain an unknown command or option, else None."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while (commands := getattr(command, "commands", None)) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        if name not in commands:
            return f"`{command.name} {name}` is no command"
        command = commands[name]
    known = {"--help", *(option for each in command.params for option in each.opts)}
    unknown = [word for word in rest if word.startswith("-") and word.partition("=")[0] not in known]
    return f"`{command.name}` has no option {', '.join(unknown)}" if unknown else None
