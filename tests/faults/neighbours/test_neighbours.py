"""The neighbours run at small scale."""

import pytest

from tests.faults.neighbours import run
from tests.faults.report import Options


@pytest.mark.alone
@pytest.mark.timeout(600)  # time limit for a busy machine; an idle one needs one minute
def test_a_hanging_endpoint_does_not_delay_other_merchants() -> None:
    """[D-39 fair, D-31]"""
    report = run.run(Options())
    assert not report.failures, report.failures
