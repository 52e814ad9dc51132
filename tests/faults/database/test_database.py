"""Database faults, as many as belong to every commit."""

import pytest

from tests.faults.database import run
from tests.faults.report import Options


@pytest.mark.last
@pytest.mark.timeout(600)  # seconds on a machine that others share; a minute on one's own
def test_the_database_dies_under_load():
    """Nothing acknowledged is lost, nothing unasked is there, and all goes on by itself. [D-14] [D-100]"""
    report = run.run(Options())
    assert not report.failures, report.failures
