"""Each database constraint refuses its violations, and the run reports a missing constraint."""

import pytest

from tests.faults import breaks
from tests.faults.constraints import run
from tests.faults.report import Options

pytestmark = pytest.mark.faults


def test_every_constraint_refuses_violations_by_itself():
    """[D-19, D-28, D-37, spec 2.5 snapshot, spec 3.1 never deleted, spec 5.4]"""
    report = run.run(Options())
    assert not report.failures, report.failures


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("drop-unique-key", "invoice_one_per_cycle"),
        ("disable-policy", "rows of invoice"),
    ],
)
def test_a_missing_constraint_is_detected(monkeypatch: pytest.MonkeyPatch, name: str, found: str):
    """[D-28, spec 5.2]"""
    monkeypatch.setenv(breaks.VARIABLE, name)
    report = run.run(Options())
    assert any(found in failure for failure in report.failures), report.failures
