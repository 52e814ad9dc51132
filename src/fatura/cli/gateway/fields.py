"""Collect the settings and credentials of a connection: from `--set` options, and by asking (D-259)."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from fatura.cli.client import ApiError
from fatura.cli.local_file import read_file
from fatura.observability import printable

MAX_BYTES = 65_536
"""Maximum number of bytes in the file of a value."""
_JSON_EXAMPLES = {"integer": "100", "boolean": "true", "list": '["pix"]'}

Field = Mapping[str, Any]
"""A field of a provider, as `GET /v1/integration/providers` shows it."""


def given(fields: Sequence[Field], texts: Sequence[str]) -> dict[str, Any]:
    """Return the values of texts like `name=value` or `name=@file`. Raises ApiError if a text is invalid."""
    known = {field["name"]: field for field in fields}
    values: dict[str, Any] = {}
    for text in texts:
        name, value = _parsed(text, known)
        if name in values:
            raise ApiError(f"--set {name} is given twice")
        values[name] = value
    return values


def collect(fields: Sequence[Field], texts: Sequence[str], *, with_optional: bool = False) -> dict[str, Any]:
    """Parse the given values of a provider's fields, ask the user for the required values that are missing, return all.

    With `with_optional`, also ask for the optional values. The user may leave these empty.
    Call this outside the event loop, so that Ctrl-C ends a prompt.
    Raises ApiError if a text is invalid, or if there is no terminal to ask.
    """
    values = given(fields, texts)
    missing = [
        field for field in fields if field["name"] not in values and (field["required"] or with_optional)
    ]
    if not sys.stdin.isatty():
        # optional values are not needed if the caller gave others
        missing = [field for field in missing if field["required"] or not values]
        if missing:
            lines = "".join(f"\n  --set {_example(field)}  {field['description']}" for field in missing)
            raise ApiError(f"stdin is not a terminal, so give these values too:{lines}")
    for field in missing:
        text = _asked(field)
        if text or field["required"]:
            values[field["name"]] = _converted(field, text)
    return values


def _asked(field: Field) -> str:
    prompt = printable(f"{field['name']} ({field['description']})")
    default = None if field["required"] else ""
    return typer.prompt(prompt, default=default, show_default=False, hide_input=field["secret"], err=True)


def _example(field: Field) -> str:
    return f"{field['name']}={'@FILE' if field['secret'] else 'VALUE'}"


def _parsed(given: str, known: Mapping[str, Field]) -> tuple[str, Any]:
    """Return the name and the value. The errors do not repeat an unknown name, which may be a misplaced secret."""
    name, equals, text = given.partition("=")
    field = known.get(name)
    if field is None or not equals:
        names = ", ".join(known) or "none"
        raise ApiError(f"--set: write NAME=VALUE with one of these names: {names}")
    if text.startswith("@"):
        content = read_file(Path(text[1:]), max_bytes=MAX_BYTES)
        try:
            text = content.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            raise ApiError(f"--set {name}: {text[1:]} is not in UTF-8") from None
    elif field["secret"]:
        raise ApiError(
            f"--set {name}: other users of this machine can read command lines, so write the value into a file, and "
            f"use {name}=@FILE"
        )
    return name, _converted(field, text)


def _converted(field: Field, text: str) -> Any:
    """Return the JSON value of a field. The API checks its type and its limits."""
    kind = field["type"]
    if kind == "text":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        example = _JSON_EXAMPLES.get(kind, "null")
        raise ApiError(f"{field['name']} must be JSON of the type {kind}, such as {example}") from None
