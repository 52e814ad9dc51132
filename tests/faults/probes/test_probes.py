"""The probes run at small scale."""

import pytest

from tests.faults.probes import run
from tests.faults.report import Options


@pytest.mark.timeout(600)  # time limit for a busy machine; an idle one needs 15 s
def test_another_accounts_ids_answer_like_unknown_ones() -> None:
    """[spec 5.4] [spec 5.2] [D-11] [D-14]"""
    report = run.run(Options())
    assert not report.failures, report.failures
