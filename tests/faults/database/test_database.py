"""The database run at small scale."""

import pytest

from tests.faults.database import run
from tests.faults.report import Options


@pytest.mark.last
@pytest.mark.timeout(600)  # time limit for a busy machine; an idle one needs one minute
def test_no_acknowledged_write_is_lost_when_the_database_is_killed():
    """[D-14] [D-100]"""
    report = run.run(Options())
    assert not report.failures, report.failures
