"""The probes run at the short scale."""

import pytest

from tests.faults.probes import run
from tests.faults.report import Options


@pytest.mark.timeout(600)  # seconds on a shared machine; some 15 on an idle one
def test_another_accounts_ids_answer_like_unknown_ones() -> None:
    """[spec 5.4] [spec 5.2] [D-11] [D-14]"""
    report = run.run(Options())
    assert not report.failures, report.failures
