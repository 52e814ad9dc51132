"""The database's own walls, all of them, and the proof that a wall that is gone is found."""

import pytest

from tests.faults import breaks
from tests.faults.constraints import run
from tests.faults.report import Options


def test_every_wall_of_the_database_refuses_by_itself():
    """Rows that mean nothing cannot stand. [D-19, D-28, D-37, spec 2.5 snapshot, spec 3.1 never deleted, spec 5.4]"""
    report = run.run(Options())
    assert not report.failures, report.failures


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("drop-the-unique-key", "invoice_one_per_cycle"),
        ("forget-a-policy", "rows of invoice"),
    ],
)
def test_a_missing_wall_is_found(monkeypatch: pytest.MonkeyPatch, name: str, found: str):
    """[D-28, spec 5.2]"""
    monkeypatch.setenv(breaks.VARIABLE, name)
    report = run.run(Options())
    assert any(found in failure for failure in report.failures), report.failures
