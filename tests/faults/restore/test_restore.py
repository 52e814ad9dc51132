"""The restore run at small scale."""

import pytest

from tests.faults.report import Options
from tests.faults.restore import run


@pytest.mark.timeout(600)  # time limit for a busy machine; an idle one needs one minute
def test_no_charge_is_made_twice_or_lost_by_a_restore() -> None:
    """[D-123, D-33]"""
    report = run.run(Options())
    assert not report.failures, report.failures
