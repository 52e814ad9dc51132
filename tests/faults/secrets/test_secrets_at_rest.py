"""Secrets stay where they belong: sealed, bound to their row, readable under a ring that changes, shown to nobody."""

import pytest

from tests.faults.report import Options
from tests.faults.secrets import run


@pytest.mark.timeout(600)  # seconds on a machine that others share; some 15 on one's own
def test_secrets_stay_where_they_belong() -> None:
    """Swapped ciphertexts, the ring rotated under load, fifty canaries, a revoked key. [D-15] [D-41] [D-42] [D-43]"""
    report = run.run(Options())
    assert not report.failures, report.failures
