"""The gateway run at small scale."""

import pytest

from tests.faults.gateway import run
from tests.faults.report import Options


@pytest.mark.last
@pytest.mark.timeout(600)  # time limit for a busy machine; an idle one needs one minute
def test_each_invoice_is_charged_once_despite_lost_answers_and_killed_workers() -> None:
    """[D-33] [D-35 polling]"""
    report = run.run(Options())
    assert not report.failures, report.failures
