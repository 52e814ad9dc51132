"""Bad requests are refused in the catalogue's words, change nothing, and never are a failure of ours."""

import pytest

from tests.faults.probes import bad_requests
from tests.faults.report import Options


@pytest.mark.timeout(600)  # seconds on a machine that others share; some 15 on one's own
def test_bad_requests_are_refused_and_change_nothing() -> None:
    """Thousands of generated ones, and bytes over sockets. [D-8] [D-10] [D-11] [D-12] [D-13] [spec 7 400]"""
    report = bad_requests.run(Options())
    assert not report.failures, report.failures
