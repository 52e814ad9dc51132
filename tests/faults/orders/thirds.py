"""Outcomes that no serial order has, and that are right all the same: each is named narrowly, with its reason."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.faults.orders.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Third:
    """An outcome like that of a run of both (`a b`, `b a`) or of one alone (`a`, `b`), save what is named here.

    `answers` are patterns of what a side says instead; the rows of the tables `apart` are not compared.
    """

    reason: str
    like: str
    answers: Mapping[str, str] = field(default_factory=dict[str, str])
    apart: frozenset[str] = frozenset()

    def is_met(self, outcome: Outcome, reference: Outcome) -> bool:
        """Say whether an outcome is this one; `reference` is that of the run it is like."""
        return outcome.rows_beside(self.apart) == reference.rows_beside(self.apart) and all(
            re.search(self.answers[side], answer)
            if side in self.answers
            else answer == reference.answers.get(side)
            for side, answer in outcome.answers.items()
        )


_ASKED = frozenset({"price_pull", "pricing_attempt"})
_ANSWERED = frozenset({"idempotency_key"})
_ASKED_BEFORE = "the endpoint was asked before: its answer is kept as an attempt, and changes nothing (D-32)"
_BEING_ISSUED = "the invoice was being issued, or issued meanwhile: it is not canceled (D-27)"
_ISSUED_BY_THE_OTHER = "the other one was issuing it: the answer shows the invoice as it was (D-34)"
_NOT_CANCELABLE = r"engine\.invoice_not_cancelable"

THIRDS: Mapping[tuple[str, str], tuple[Third, ...]] = {
    ("price pull", "manual value"): (Third(_ASKED_BEFORE, "b a", apart=_ASKED),),
    ("price pull", "cancel invoice"): (Third(_ASKED_BEFORE, "b a", apart=_ASKED),),
    ("price pull", "retry-pricing"): (Third(_ASKED_BEFORE, "a b", {"b": r'"retried": 1'}, _ASKED),),
    ("retry-pricing", "manual value"): (Third(_ASKED_BEFORE, "b a", {"a": r'"retried": 1'}, _ASKED),),
    ("retry-pricing", "cancel invoice"): (Third(_ASKED_BEFORE, "b a", {"a": r'"retried": 1'}, _ASKED),),
    ("issuance", "cancel invoice"): (Third(_BEING_ISSUED, "a", {"b": _NOT_CANCELABLE}),),
    ("issuance", "retry-issuance"): (
        Third(_ISSUED_BY_THE_OTHER, "a b", {"b": r'"status": "(ready|issued)"'}),
        Third(_ISSUED_BY_THE_OTHER, "b a", {"b": r'"status": "(ready|issued)"'}),
    ),
    ("retry-issuance", "cancel invoice"): (
        Third(_BEING_ISSUED, "a", {"b": _NOT_CANCELABLE}),
        Third("it was canceled before its answer was read", "a b", {"a": r'"status": "canceled"'}),
    ),
    ("cancel invoice", "cancel invoice again"): (
        Third(
            "the gateway confirmed both before either was recorded",
            "a b",
            {"b": r'"status": "canceled"'},
            _ANSWERED,
        ),
    ),
    ("push", "other webhook"): (
        Third(
            "what was on its way to the old URL says nothing of the new one's health",
            "a b",
            apart=frozenset({"webhook"}),
        ),
    ),
}
"""By the names of a pair's operations."""
