"""The crash matrix at the size of every commit."""

import pytest

from tests.faults.crashes import run
from tests.faults.report import Options


@pytest.mark.timeout(600)  # seconds on a machine that others share; half a minute on one's own
def test_every_flow_survives_kills_at_a_sample_of_its_points():
    """Killed with -9 at any input or output, a flow comes to the same end. [D-14] [D-33] [D-45]"""
    report = run.run(Options())

    assert not report.failures, report.failures
