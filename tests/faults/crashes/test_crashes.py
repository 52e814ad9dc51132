"""The crash matrix at the short scale."""

import pytest

from tests.faults.crashes import run
from tests.faults.report import Options


@pytest.mark.timeout(600)  # seconds on a shared machine; half a minute on an idle one
def test_every_flow_survives_kills_at_a_sample_of_its_points():
    """[D-14] [D-33] [D-45]"""
    report = run.run(Options())

    assert not report.failures, report.failures
