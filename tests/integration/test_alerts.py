"""The alerts for Prometheus fire when they should, and do not fire for a healthy engine."""

import shutil
import subprocess

import pytest

from tests.tidy.sources import ROOT

PROMTOOL = shutil.which("promtool")


@pytest.mark.faults
@pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (Debian has it in the package prometheus)"
)
def test_the_alerts_fire_and_stay_silent() -> None:
    """[D-128]"""
    assert PROMTOOL is not None
    tests = ROOT / "contrib/prometheus/fatura.rules.test.yaml"
    ended = subprocess.run(
        [PROMTOOL, "test", "rules", tests], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
