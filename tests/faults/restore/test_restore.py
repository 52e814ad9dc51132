"""The short run of restores belongs to every commit."""

import pytest

from tests.faults.report import Options
from tests.faults.restore import run


@pytest.mark.timeout(600)  # seconds on a machine that others share; a minute on one's own
def test_a_restore_charges_nobody_twice() -> None:
    """Whatever was under way at the backup, and wherever the sweep died. [D-123, D-33]"""
    report = run.run(Options())
    assert not report.failures, report.failures
