"""The crash matrix with a small sample."""

import pytest

from tests.faults.crashes import run
from tests.faults.report import Options


@pytest.mark.timeout(600)  # time limit for a busy machine; an idle one needs half a minute
def test_every_flow_survives_kills_at_a_sample_of_its_points():
    """[D-14] [D-33] [D-45]"""
    report = run.run(Options())

    assert not report.failures, report.failures
