"""The secrets run at small scale."""

import pytest

from tests.faults.report import Options
from tests.faults.secrets import run


@pytest.mark.timeout(600)  # time limit for a busy machine; an idle one needs 15 s
def test_secrets_stay_sealed_and_readable_during_rotation() -> None:
    """[D-15] [D-41] [D-42] [D-43]"""
    report = run.run(Options())
    assert not report.failures, report.failures
