"""Check the engine's OpenAPI document, or the file given as argument, and read Fatura's Pix codes.

Exits with 1 if a tool has a finding or fails.
"""

import shutil
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from tools.contract import pix_codes
from tools.contract.clients import GENERATORS, findings_of
from tools.contract.engine import running
from tools.contract.linters import LINTERS
from tools.contract.process import DEV_BIN, DOCUMENT, ToolError, must_run
from tools.contract.tools import install, version_of

SHOWN_FINDINGS = 20
ResultT = TypeVar("ResultT")


def main(given: list[str]) -> int:
    try:
        _timed("install the tools", install)
        _write_document(given)
        found = {name: _timed(f"lint with {name}", lint) for name, lint in LINTERS.items()}
        found[pix_codes.READER] = _timed(f"read Pix codes with {pix_codes.READER}", pix_codes.findings)
        with running() as engine:
            for name in GENERATORS:
                found[name] = _timed(
                    f"generate, compile, call with {name}", lambda name=name: findings_of(name, engine)
                )
    except ToolError as error:
        print(error, file=sys.stderr)
        return 1
    _print_findings(found)
    return int(any(found.values()))


def _write_document(given: list[str]) -> None:
    if given:
        shutil.copy(given[0], DOCUMENT)
    else:
        DOCUMENT.write_text(must_run([DEV_BIN / "fatura", "openapi"]), "utf-8")


def _timed(what: str, step: Callable[[], ResultT]) -> ResultT:
    print(what, end=" ... ", flush=True)
    began = time.monotonic()
    result = step()
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    return result


def _print_findings(found: dict[str, list[str]]) -> None:
    for name, findings in found.items():
        for finding in findings[:SHOWN_FINDINGS]:
            print(f"{name}: {finding}")
        if len(findings) > SHOWN_FINDINGS:
            print(f"{name}: and {len(findings) - SHOWN_FINDINGS} more")
    print(f"\n{'tool':<40} {'version':<10} findings")
    for name, findings in found.items():
        print(f"{name:<40} {version_of(name.split()[0]):<10} {len(findings) or 'none'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
