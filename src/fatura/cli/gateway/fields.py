"""Collect the settings and credentials of a connection: from `--set` options, and by asking (D-259)."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from fatura.cli.client import ApiError

Field = Mapping[str, Any]
"""A field of a provider, as `GET /v1/integration/providers` shows it."""


def collect(fields: Sequence[Field], given: Sequence[str], *, required: bool = True) -> dict[str, Any]:
    """Return the values of a provider's fields.

    `given` are texts like `name=value` or `name=@file`. Ask for the fields that are not given: for all of them, or, if
    `required` is true, for the required ones. Raises ApiError if a text is invalid, or if nobody can be asked.
    """
    known = {field["name"]: field for field in fields}
    values = dict(_parsed(each, known) for each in given)
    missing = [
        field for field in fields if field["name"] not in values and (field["required"] or not required)
    ]
    if missing and not sys.stdin.isatty():
        lines = "".join(f"\n  --set {_example(field)}  {field['description']}" for field in missing)
        raise ApiError(f"stdin is not a terminal, so give these values too:{lines}")
    for field in missing:
        text = typer.prompt(f"{field['name']} ({field['description']})", hide_input=field["secret"], err=True)
        values[field["name"]] = _converted(field, text)
    return values


def _example(field: Field) -> str:
    return f"{field['name']}={'@FILE' if field['secret'] else 'VALUE'}"


def _parsed(given: str, known: Mapping[str, Field]) -> tuple[str, Any]:
    name, equals, text = given.partition("=")
    field = known.get(name)
    if field is None or not equals:
        names = ", ".join(known) or "none"
        raise ApiError(f"--set {name}: write NAME=VALUE with one of these names: {names}")
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ApiError(f"--set {name}: cannot read the file {text[1:]}: {error}") from error
    elif field["secret"]:
        raise ApiError(
            f"--set {name}: other users of this machine can read command lines, so write the value into a file, and "
            f"use {name}=@FILE"
        )
    return name, _converted(field, text)


def _converted(field: Field, text: str) -> Any:
    """Return the JSON value of a field. The API checks its type and its limits."""
    if field["type"] == "text":
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise ApiError(f"{field['name']} must be JSON, of the type {field['type']}") from None
