"""Accounts know nothing of each other, wherever the API takes an id."""

import pytest

from tests.faults.probes import run
from tests.faults.report import Options


@pytest.mark.timeout(600)  # seconds on a machine that others share; some 15 on one's own
def test_another_accounts_ids_answer_like_unknown_ones() -> None:
    """Byte for byte, in path, query and body, whatever state the resource is in. [spec 5.4] [spec 5.2] [D-11] [D-14]"""
    report = run.run(Options())
    assert not report.failures, report.failures
