"""A named outcome allows only the differences that it lists."""

import pytest

from tests.faults.orders.named_outcomes import NamedOutcome
from tests.faults.orders.outcome import Outcome

JOINED = NamedOutcome("joined", "a", {"b": "202"}, other_references={"audit_entry": "a b"})
REFERENCES = {
    "a": Outcome({"a": "200"}, ("audit_entry first", "invoice new-0000000001")),
    "a b": Outcome({"a": "200", "b": "200"}, ("audit_entry first", "audit_entry second", "invoice two")),
}
ANSWERS = {"a": "200", "b": "202"}
FIRST, SECOND, INVOICE = "audit_entry first", "audit_entry second", "invoice new-0000000002"


def test_rows_of_a_table_are_compared_with_another_execution():
    """[D-221]"""
    assert JOINED.is_met(Outcome(ANSWERS, (FIRST, SECOND, INVOICE)), REFERENCES)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(ANSWERS, (FIRST, INVOICE)),
        Outcome(ANSWERS, (FIRST, SECOND, SECOND, INVOICE)),
        Outcome(ANSWERS, (FIRST, SECOND, "invoice two")),
        Outcome(ANSWERS, (FIRST, SECOND, INVOICE, "charge another")),
        Outcome(ANSWERS | {"b": "409"}, (FIRST, SECOND, INVOICE)),
        Outcome(ANSWERS | {"a": "409"}, (FIRST, SECOND, INVOICE)),
    ],
)
def test_every_other_difference_is_refused(outcome: Outcome):
    """[D-221]"""
    assert not JOINED.is_met(outcome, REFERENCES)
