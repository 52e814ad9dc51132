"""`fatura demo` prints consistent tables. When it stops, it ends every process that it started."""

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.fatura_processes import environment, free_port, is_open, run, running, written_credentials
from tests.support.postgres_processes import is_running, until


def rows_of(output: str) -> list[list[str]]:
    """Return the cells of each table row in the output, without the header rows."""
    lines = [line for line in output.splitlines() if "│" in line]
    return [re.split(r"\s*│\s*", line)[1:-1] for line in lines]


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_the_tables_of_the_demo_are_consistent(tmp_path: Path) -> None:
    """[D-47, D-45, spec 4.7 rule 3, spec 3.3 awaiting_value to ready, spec 6.1, spec 6.3]"""
    port = str(free_port())
    ended = run("demo", "--once", "--port", port, "--data-dir", str(tmp_path / "data"), env=environment())
    assert f"fatura: embedded database in {tmp_path / 'data'}; key ring: " in ended.stderr

    assert ended.returncode == 0, ended.stderr
    rows = rows_of(ended.stdout)
    months = [row for row in rows if re.fullmatch(r"\d{4}-\d{2}", row[0])]
    (footer,) = [row for row in rows if row[0] == "total"]
    numbers = [[int(row[1]), *map(int, row[3:7])] for row in months]
    total = [int(footer[1]), *map(int, footer[3:7])]
    assert total == [sum(column) for column in zip(*numbers, strict=True)]
    assert all(row[0] == sum(row[1:]) for row in (*numbers, total))
    assert min(total[1:3]) > 0  # some invoices are paid, and some are overdue
    cents = [int(re.sub(r"\D", "", row[2])) for row in (*months, footer)]
    assert cents[-1] == sum(cents[:-1])

    metered = {row[0]: row[1:] for row in rows if row[0] in {"Classes", "Towels", "Smoothies"}}
    calls, failed, priced, skipped, by_hand = map(int, metered["Classes"][:5])
    assert (failed, by_hand, metered["Classes"][6]) == (0, 0, "0")
    assert calls == priced + skipped
    assert skipped > 0
    calls, failed, priced, skipped, by_hand = map(int, metered["Towels"][:5])
    assert (calls, failed, by_hand) == (3 * (priced + skipped), 2 * (priced + skipped), 0)
    assert int(metered["Towels"][6]) == priced + skipped > 0
    calls, failed, priced, skipped, by_hand = map(int, metered["Smoothies"][:5])
    assert (priced, skipped) == (0, 0)
    assert calls == failed
    assert int(metered["Smoothies"][6]) >= by_hand > 0

    # The monthly table counts held invoices. The other table counts held items. Each held invoice has one held item.
    were_held = [int(row[7]) for row in months]
    assert sum(were_held) == int(footer[7]) == sum(int(row[6]) for row in metered.values())
    assert total[4] < int(footer[7])  # some invoices were held, but are not held any more
    assert "A price call comes three days before" in " ".join(re.sub(r"\s+", " ", ended.stdout).split())
    assert re.search(
        r"dates +Customer 2 subscribed with chargeDay 2: the first invoice is due on", ended.stdout
    )

    (webhooks,) = [line for line in ended.stdout.splitlines() if line.startswith("webhooks")]
    reported, arrived, verified, refused, _ = map(int, re.findall(r"\d+", webhooks))
    assert 0 < reported <= arrived <= verified
    assert refused == 0
    assert "rk_test_" not in ended.stdout
    assert "API key   rk_test_" in written_credentials(ended.stdout)
    assert f"http://127.0.0.1:{port}/docs" in ended.stdout
    assert not is_open(int(port))


@pytest.mark.faults
def test_ctrl_c_ends_the_demo_and_the_merchant(tmp_path: Path) -> None:
    """[D-47]"""
    port, log = str(free_port()), tmp_path / "demo.log"
    words = ("demo", "--port", port, "--data-dir", str(tmp_path / "data"))
    with running(*words, env=environment(), output=log) as demo:
        until(lambda: is_open(int(port)), seconds=90)
        until(lambda: bool(_merchants_of(demo.process.pid)), seconds=10)
        (merchant,) = _merchants_of(demo.process.pid)
        time.sleep(0.5)  # gives the demo time to begin billing
        assert demo.stop(signal.SIGINT) == 0
    assert "Traceback" not in demo.said()
    assert not is_running(int(merchant))


def _merchants_of(parent: int) -> list[str]:
    listed = subprocess.run(
        ["ps", "-ww", "--no-headers", "-o", "pid=,args=", "--ppid", str(parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    return [line.split()[0] for line in listed.stdout.splitlines() if "merchant/app.py" in line]
