"""The simulator at small scale, with one seed run twice."""

import pytest

from tests.faults.report import Options
from tests.faults.simulator import run


@pytest.mark.timeout(600)
def test_worlds_have_no_problem_and_the_same_seed_gives_the_same_trace():
    """[D-28] [D-33] [D-38] [D-39]"""
    report = run.run(Options())

    assert not report.failures, report.failures
