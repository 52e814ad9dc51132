"""Correct outcomes that differ from both serial orders, each with its reason."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.faults.orders.outcome import Outcome


@dataclass(frozen=True, slots=True)
class NamedOutcome:
    """An outcome that is also correct. It equals the outcome of the run `reference`, except in the fields below.

    `reference` is a serial order (`a b`, `b a`) or one side alone (`a`, `b`). `answers` has patterns for the responses
    that differ. Rows of `ignored_tables` are not compared.
    """

    reason: str
    reference: str
    answers: Mapping[str, str] = field(default_factory=dict[str, str])
    ignored_tables: frozenset[str] = frozenset()

    def is_met(self, outcome: Outcome, reference: Outcome) -> bool:
        """Return whether an outcome matches. `reference` is the outcome of the run with that name."""
        return outcome.rows_except(self.ignored_tables) == reference.rows_except(self.ignored_tables) and all(
            re.search(self.answers[side], answer)
            if side in self.answers
            else answer == reference.answers.get(side)
            for side, answer in outcome.answers.items()
        )


_ASKED = frozenset({"price_pull", "pricing_attempt"})
_ANSWERED = frozenset({"idempotency_key"})
_ASKED_BEFORE = (
    "the endpoint was called first: its answer is recorded as an attempt and changes nothing (D-32)"
)
_BEING_ISSUED = "the invoice was being issued, so it is not canceled (D-27)"
_ISSUED_BY_THE_OTHER = "the other side was issuing it: the answer shows the invoice before that (D-34)"
_NOT_CANCELABLE = r"engine\.invoice_not_cancelable"

NAMED_OUTCOMES: Mapping[tuple[str, str], tuple[NamedOutcome, ...]] = {
    ("price pull", "manual value"): (NamedOutcome(_ASKED_BEFORE, "b a", ignored_tables=_ASKED),),
    ("price pull", "cancel invoice"): (NamedOutcome(_ASKED_BEFORE, "b a", ignored_tables=_ASKED),),
    ("price pull", "retry-pricing"): (NamedOutcome(_ASKED_BEFORE, "a b", {"b": r'"retried": 1'}, _ASKED),),
    ("retry-pricing", "manual value"): (NamedOutcome(_ASKED_BEFORE, "b a", {"a": r'"retried": 1'}, _ASKED),),
    ("retry-pricing", "cancel invoice"): (
        NamedOutcome(_ASKED_BEFORE, "b a", {"a": r'"retried": 1'}, _ASKED),
    ),
    ("issuance", "cancel invoice"): (NamedOutcome(_BEING_ISSUED, "a", {"b": _NOT_CANCELABLE}),),
    ("issuance", "retry-issuance"): (
        NamedOutcome(_ISSUED_BY_THE_OTHER, "a b", {"b": r'"status": "(ready|issued)"'}),
        NamedOutcome(_ISSUED_BY_THE_OTHER, "b a", {"b": r'"status": "(ready|issued)"'}),
    ),
    ("retry-issuance", "cancel invoice"): (
        NamedOutcome(_BEING_ISSUED, "a", {"b": _NOT_CANCELABLE}),
        NamedOutcome("it was canceled before its answer was read", "a b", {"a": r'"status": "canceled"'}),
    ),
    ("cancel invoice", "cancel invoice again"): (
        NamedOutcome(
            "the gateway confirmed both before either was recorded",
            "a b",
            {"b": r'"status": "canceled"'},
            _ANSWERED,
        ),
    ),
    ("push", "other webhook"): (
        NamedOutcome(
            "a push to the old URL does not affect the health of the new one",
            "a b",
            ignored_tables=frozenset({"webhook"}),
        ),
    ),
}
"""Named outcomes by the names of the two operations."""
