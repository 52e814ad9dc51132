"""The bad-requests run at small scale."""

import pytest

from tests.faults.probes import bad_requests
from tests.faults.report import Options


@pytest.mark.timeout(600)  # time limit for a busy machine; an idle one needs 15 s
def test_bad_requests_are_refused_and_change_nothing() -> None:
    """[D-8] [D-10] [D-11] [D-12] [D-13] [spec 7 400]"""
    report = bad_requests.run(Options())
    assert not report.failures, report.failures
