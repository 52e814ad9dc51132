"""Check the files of `contrib` with the linters of their formats. Exits with 1 if a linter has a finding.

Pinned linters are installed into a build folder. `promtool` and `systemd-analyze` are programs of the system: if one
is not installed, its checks are skipped, and the output says so.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONTRIB = HERE.parents[1] / "contrib"
BUILD = HERE / ".build"
BIN = BUILD / "venv" / "bin"
COMMAND = "/opt/fatura/bin/fatura"
"""The command of the units. It need not exist on this machine."""
MOST_EXPOSURE = 15
"""Limit for the option `--threshold` of `systemd-analyze security`: 0 is fully confined, 100 is not confined."""
OF_SYSTEM = {"promtool": "Debian has it in prometheus", "systemd-analyze": "Debian has it in systemd"}

Check = Sequence[str | Path]


def main() -> int:
    _install()
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for check in (*_files(), *_dashboard(Path(scratch)), *_units(Path(scratch))):
            program = str(check[0])
            if program in OF_SYSTEM and shutil.which(program) is None:
                print(
                    f"skipped  {program} is not installed ({OF_SYSTEM[program]}): {' '.join(map(str, check[1:]))}"
                )
                continue
            failed += not _passes(check)
    return int(failed > 0)


def _files() -> Iterator[Check]:
    yield [BIN / "hadolint", CONTRIB / "container/Dockerfile"]
    yield [
        *(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec"),
        CONTRIB / "compose/compose.yaml",
    ]
    yield [BIN / "yamllint", "--strict", "--config-file", HERE / "yamllint.yaml", CONTRIB]
    manifests = sorted((CONTRIB / "kubernetes").glob("*.yaml"))
    yield [
        BIN / "kubernetes-validate",
        "--strict",
        *(each for each in manifests if each.stem != "kustomization"),
    ]
    yield ["promtool", "check", "config", CONTRIB / "prometheus/prometheus.yaml"]
    yield [
        "promtool",
        "check",
        "rules",
        "--lint=all",
        "--lint-fatal",
        CONTRIB / "prometheus/fatura.rules.yaml",
    ]
    yield ["promtool", "test", "rules", CONTRIB / "prometheus/fatura.rules.test.yaml"]


def _dashboard(scratch: Path) -> Iterator[Check]:
    """Yield a check of the dashboard's queries, which are copied to a file of rules so that promtool parses them."""
    queries = list[str]()
    dashboard = CONTRIB / "grafana/fatura.json"
    json.loads(dashboard.read_text("utf-8"), object_hook=lambda each: queries.append(each.get("expr", "")))
    rules = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(filter(None, queries))
    ]
    copy = scratch / "dashboard.rules.yaml"
    copy.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), "utf-8")
    yield ["promtool", "check", "rules", "--lint=none", copy]


def _units(scratch: Path) -> Iterator[Check]:
    """Yield the checks of copies of the units, in which Python replaces COMMAND."""
    units = [
        path for path in sorted((CONTRIB / "systemd").iterdir()) if path.suffix in {".service", ".timer"}
    ]
    copies = [scratch / each.name for each in units]
    for unit, copy in zip(units, copies, strict=True):
        copy.write_text(unit.read_text("utf-8").replace(COMMAND, sys.executable), "utf-8")
    yield ["systemd-analyze", "verify", *copies]
    for copy in copies:
        if copy.suffix == ".service":
            yield ["systemd-analyze", "security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", copy]


def _passes(check: Check) -> bool:
    ended = subprocess.run(
        list(map(str, check)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    shown = " ".join(Path(word).name if isinstance(word, Path) else word for word in check)
    print(f"{'failed ' if ended.returncode else 'passed '}  {shown}")
    if ended.returncode:
        print(ended.stdout)
    return ended.returncode == 0


def _install() -> None:
    """Install the pinned linters if they are not installed yet."""
    lock, stamp = HERE / "requirements.lock", BUILD / "stamp"
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text("utf-8") == wanted:
        return
    shutil.rmtree(BUILD, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", BUILD / "venv"], check=True)
    pip = [BIN / "pip", "install", "--quiet", "--require-hashes", "--only-binary", ":all:", "-r", lock]
    subprocess.run(pip, check=True)
    stamp.write_text(wanted, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
