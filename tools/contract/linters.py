"""Lint the document with redocly and spectral. A finding of any severity is an error."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tools.contract.process import DOCUMENT, HERE, run


def _redocly() -> list[str]:
    # redocly reads its ignore file from the folder in which it runs.
    code, output = run(["redocly", "lint", DOCUMENT, "--format", "json"], cwd=HERE)
    report = _json_in(output, start="{\n")
    if report is None:
        return [f"exit code {code}: {output}"]
    return [
        f"{problem['ruleId']}: {problem['message']} ({problem['location'][0].get('pointer', '')})"
        for problem in report["problems"]
        if not problem.get("ignored")
    ]


def _spectral() -> list[str]:
    words = ["spectral", "lint", DOCUMENT, "--ruleset", HERE / "spectral.yaml", "--fail-severity", "hint"]
    code, output = run([*words, "--format", "json"])
    report = _json_in(output, start="[")
    if report is None:
        return [f"exit code {code}: {output}"]
    return [f"{found['code']}: {found['message']} ({'/'.join(map(str, found['path']))})" for found in report]


def _json_in(output: str, *, start: str) -> Any:
    """Return the JSON value that begins at the first `start` in a tool's output, or None."""
    at = output.find(start)
    try:
        return json.JSONDecoder().raw_decode(output[at:])[0] if at >= 0 else None
    except ValueError:
        return None


LINTERS: Mapping[str, Callable[[], list[str]]] = {
    "@redocly/cli": _redocly,
    "@stoplight/spectral-cli": _spectral,
}
"""The linters by the names of their packages."""
