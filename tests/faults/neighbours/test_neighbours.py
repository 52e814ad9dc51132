"""A merchant's backlog at an endpoint that hangs, and a merchant with a crowd to bill, delay no other."""

import pytest

from tests.faults.neighbours import run
from tests.faults.report import Options


@pytest.mark.alone
@pytest.mark.timeout(600)  # seconds on a machine that others share; a minute on one's own
def test_neighbours() -> None:
    """Deliveries, generation and price calls of the others, beside it and without it, in turn. [D-39 fair, D-31]"""
    report = run.run(Options())
    assert not report.failures, report.failures
