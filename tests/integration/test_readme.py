"""The commands in the README work, up to the first paid invoice."""

import json
import os
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
    env = os.environ | {"FATURA_PUBLIC_URL": f"http://127.0.0.1:{port}"}
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            said = next(line for line in process.stdout if "credentials" in line)
            found = re.search(r"rk_test_\w+", written_credentials(said))
            assert found
            yield found[0]
        finally:
            process.terminate()


def _blocks(heading: str) -> list[str]:
    """Return the shell commands of a section of the README, by code block."""
    section = README.read_text().split(f"## {heading}", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```bash\n(.*?)```", section, re.DOTALL)


def _run(script: str, *, key: str, port: int, folder: Path) -> str:
    """Run commands of the README in bash, after the API is ready. Return their output."""
    script = script.replace("rk_test_...", key).replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    script = script.replace(".venv/bin/fatura", f"{sys.executable} -m fatura")
    wait = f"curl -s --retry 100 --retry-delay 1 --retry-connrefused http://127.0.0.1:{port}/health > /dev/null\n"
    ran = subprocess.run(
        ["bash", "-c", wait + script],
        env=os.environ | {"FATURA_DATA_DIR": str(folder / "data")},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=START_WITHIN_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_readme_writes_commands_with_their_folder() -> None:
    """With their folder, the commands also work in a shell that finds neither `python` nor `fatura`. [D-47]"""
    code = re.findall(r"```(?:sh|bash)\n(.*?)```|`([^`\n]+)`", README.read_text(), re.DOTALL)
    commands = [line.strip() for block, span in code for line in (block or span).splitlines()]
    typed = re.compile(r"(?:[A-Z]+=\$\()?(\S*/)?(?:fatura|python3?) .*(?:--|[A-Z]{2,})")
    folders = [found[1] for each in commands if (found := typed.match(each))]
    assert len(folders) >= 6
    assert set(folders) == {".venv/bin/"}


def test_first_paid_invoice_in_five_commands(tmp_path: Path) -> None:
    """[D-44, D-45, D-47]"""
    setup, commands = _blocks("A first paid invoice")
    assert len(commands.strip().splitlines()) == 5
    port = _free_port()
    with _up(tmp_path / "data", port) as key:
        said = _run(setup + commands, key=key, port=port, folder=tmp_path)
    answer = json.loads(said[said.rindex('{"data"') :])
    assert [(invoice["cycle"], invoice["totalCents"], invoice["status"]) for invoice in answer["data"]] == [
        (1, 7992, "paid")
    ]


def test_real_customers_are_billed_in_six_commands(tmp_path: Path) -> None:
    """The pay page shows the Pix code, and the imported statement pays the invoice. [D-257, D-258, D-259]"""
    setup, _ = _blocks("A first paid invoice")
    [block] = _blocks("Bill real customers with a Pix key")
    commands = block.strip().splitlines()
    assert len(commands) == 6
    show, import_ = commands[4:]
    # the reader waits for the charge, opens the page, pays the code, and downloads the statement
    steps = [
        *commands[:4],
        f"""until {show} | grep '"status":"issued"'; do sleep 0.2; done""",
        f"INVOICE=$({show})",
        'curl -sS "$(grep -o \'"payUrl":"[^"]*\' <<< "$INVOICE" | head -n 1 | cut -d \'"\' -f 4)"',
        'TXID=$(grep -o \'"gatewayInvoiceId":"[^"]*\' <<< "$INVOICE" | head -n 1 | cut -d \'"\' -f 4)',
        "TODAY=$(TZ=America/Sao_Paulo date +%F)",
        'printf "date,amount,id,text\\n%s,99.90,1,%s\\n" "$TODAY" "$TXID" > statement.ofx',
        f"{import_} --yes",
        f"""until {show} | grep '"status":"paid"'; do sleep 0.2; done""",
        ".venv/bin/fatura check",
    ]
    port = _free_port()
    with _up(tmp_path / "data", port) as key:
        said = _run(setup + "\n".join(steps), key=key, port=port, folder=tmp_path)
    assert "br.gov.bcb.pix" in said
    assert "Imported 1 payment." in said
