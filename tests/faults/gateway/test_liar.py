"""A gateway that lies, at the short scale: charged once, settled, told in order, whatever it says and whoever dies."""

import pytest

from tests.faults.gateway import run
from tests.faults.report import Options


@pytest.mark.last
@pytest.mark.timeout(600)  # seconds on a machine that others share; a minute on one's own
def test_a_lying_gateway_and_dying_workers_charge_once() -> None:
    """Three ledgers agree in the end. [D-33] [D-35 polling]"""
    report = run.run(Options())
    assert not report.failures, report.failures
