"""The commands in the README work, up to the first paid invoice."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.fatura_processes import written_credentials

README = Path(__file__).parents[2] / "README.md"
START_WITHIN_SECONDS = 60


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def _up(data_dir: Path, port: int) -> Generator[str]:
    """Run `fatura up` on a new folder and yield its first API key."""
    command = [sys.executable, "-m", "fatura", "up", "--port", str(port), "--data-dir", str(data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            said = next(line for line in process.stdout if "credentials" in line)
            found = re.search(r"rk_test_\w+", written_credentials(said))
            assert found
            yield found[0]
        finally:
            process.terminate()


def _commands() -> str:
    section = README.read_text().split("## A first paid invoice", 1)[1].split("\n## ", 1)[0]
    setup, commands = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    assert len(commands.strip().splitlines()) == 5
    return setup + commands


def test_the_readme_writes_commands_with_their_folder() -> None:
    """With their folder, the commands also work in a shell that finds neither `python` nor `fatura`. [D-47]"""
    code = re.findall(r"```(?:sh|bash)\n(.*?)```|`([^`\n]+)`", README.read_text(), re.DOTALL)
    commands = [line.strip() for block, span in code for line in (block or span).splitlines()]
    typed = [each for each in commands if re.match(r"(\S*/)?(fatura|python3?) .*(--|[A-Z]{2,})", each)]
    assert len(typed) >= 3
    assert [each for each in typed if not each.startswith(".venv/bin/")] == []


def test_first_paid_invoice_in_five_commands(tmp_path: Path) -> None:
    """[D-44, D-45, D-47]"""
    port = _free_port()
    with _up(tmp_path / "data", port) as key:
        script = _commands().replace("rk_test_...", key).replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        wait = f"curl -s --retry 100 --retry-delay 1 --retry-connrefused http://127.0.0.1:{port}/health > /dev/null\n"
        ran = subprocess.run(
            ["bash", "-c", wait + script],
            capture_output=True,
            text=True,
            timeout=START_WITHIN_SECONDS,
            check=True,
        )
    answer = json.loads(ran.stdout[ran.stdout.rindex('{"data"') :])
    assert [(invoice["cycle"], invoice["totalCents"], invoice["status"]) for invoice in answer["data"]] == [
        (1, 7992, "paid")
    ]
