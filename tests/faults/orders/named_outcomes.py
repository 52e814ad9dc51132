"""Named outcomes: correct outcomes of two concurrent operations that neither serial order of the operations has.

Each named outcome has the reason why it is correct.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.faults.orders.outcome import NEW_ID, Outcome


@dataclass(frozen=True, slots=True)
class NamedOutcome:
    """A correct outcome, described by its differences from the outcome of another execution.

    `reference` names that execution: both operations in serial order (`a b` or `b a`), or one operation alone (`a` or
    `b`). `answers` has, by operation, a regular expression for the response, if it differs. Rows of `ignored_tables`
    are not compared. `other_references` maps a table to another execution, whose rows of this table must be equal. If
    `ignored_tables` or `other_references` is not empty, all new ids count as equal. `outcome_of` names a new id after
    all rows that contain the id, so a row that may differ would change names in other tables.
    """

    reason: str
    reference: str
    answers: Mapping[str, str] = field(default_factory=dict[str, str])
    ignored_tables: frozenset[str] = frozenset()
    other_references: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def references(self) -> frozenset[str]:
        return frozenset({self.reference, *self.other_references.values()})

    def is_met(self, outcome: Outcome, references: Mapping[str, Outcome]) -> bool:
        """Return whether `outcome` differs from other executions only as allowed. `references` has their outcomes."""
        reference = references[self.reference]
        rows = reference.rows_except(self.ignored_tables | self.other_references.keys())
        for table, other in self.other_references.items():
            rows += references[other].rows_of(table)
        return self._sorted(outcome.rows_except(self.ignored_tables)) == self._sorted(rows) and all(
            re.search(self.answers[side], answer)
            if side in self.answers
            else self._compared(answer) == self._compared(reference.answers.get(side, ""))
            for side, answer in outcome.answers.items()
        )

    def _sorted(self, rows: Iterable[str]) -> list[str]:
        return sorted(map(self._compared, rows))

    def _compared(self, text: str) -> str:
        return NEW_ID.sub("new", text) if self.ignored_tables or self.other_references else text


_ASKED = frozenset({"price_pull", "pricing_attempt"})
_ANSWERED = frozenset({"idempotency_key"})
_SUCCEEDED: Mapping[str, str] = dict.fromkeys(["idempotency_key", "account_counter", "audit_entry"], "a b")
"""For `other_references`: the tables that record the success of a request must be as after the order `a b`.

In this order, both requests succeed.
"""
_ASKED_BEFORE = "the endpoint was called before the other operation, so its answer is only recorded (D-32)"
_BEING_ISSUED = "the invoice was being issued, so it is not canceled (D-27)"
_ONE_PROPAGATION = "the second request joined the propagation that was running (D-141)"
_LONG_PROPAGATION = "the joined propagation ran for longer than the second request waits (D-54)"
_STILL_RUNNING = r'"moved": 0,.*"status": 202'
_PENDING_REFUND = "the other refund was pending, so this one is refused (D-151)"
_REFUND_FIRST = "the refund was pending, so the invoice is not reissued (D-53)"
_ONE_REFUND = "both requests have the same key, so one may answer before the other has made the refund (D-53)"
_NOT_REFUNDABLE = r"engine\.invoice_not_refundable"
_NOT_CANCELABLE = r"engine\.invoice_not_cancelable"
_IN_PROGRESS = tuple(
    NamedOutcome("the other request with the key was in progress (D-14)", done, {refused: "in_progress"})
    for done, refused in ("ab", "ba")
)
_OTHER_IN_PROGRESS = tuple(
    NamedOutcome(
        "the other request was in progress, so this one is refused (D-52)",
        done,
        {refused: "is in progress|Another payment waits"},
    )
    for done, refused in ("ab", "ba")
)
_LATER_DECIDES = NamedOutcome(
    "the other request began later, while the cancellation waited for the gateway, so the other one decides (D-171)",
    "a",
    {"b": "A later request replaces this one"},
    _ANSWERED,
)

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
        NamedOutcome(
            "the other operation was issuing the invoice, so the request only adds its audit entry (D-221)",
            "b a",
            {"b": r'"status": "(ready|issued)"'},
            other_references={"invoice": "a b"},
        ),
    ),
    ("retry-issuance", "cancel invoice"): (
        NamedOutcome(_BEING_ISSUED, "a", {"b": _NOT_CANCELABLE}),
        NamedOutcome("the response shows the later cancellation", "a b", {"a": r'"status": "canceled"'}),
    ),
    ("cancel invoice", "reconciliation"): (
        NamedOutcome(
            "the poll read the charge before it was canceled, so the invoice is polled once more (D-125)",
            "a b",
            ignored_tables=frozenset({"invoice"}),
        ),
    ),
    ("propagate", "propagate again"): (
        NamedOutcome(_ONE_PROPAGATION, "a", {"b": r'"moved": 1'}, other_references=_SUCCEEDED),
        NamedOutcome(_ONE_PROPAGATION, "b", {"a": r'"moved": 1'}, other_references=_SUCCEEDED),
        NamedOutcome(_LONG_PROPAGATION, "a", {"b": _STILL_RUNNING}, other_references=_SUCCEEDED),
        NamedOutcome(_LONG_PROPAGATION, "b", {"a": _STILL_RUNNING}, other_references=_SUCCEEDED),
    ),
    ("cancel invoice", "cancel invoice again"): (
        NamedOutcome(
            "the gateway confirmed both cancellations before either was recorded",
            "a b",
            {"b": r'"status": "canceled"'},
            _ANSWERED,
        ),
    ),
    ("reissue", "reissue, same key"): _IN_PROGRESS,
    ("manual payment", "manual payment, same key"): _IN_PROGRESS,
    ("reissue", "manual payment"): (
        *_OTHER_IN_PROGRESS,
        NamedOutcome(
            "the reissue waited for the gateway, so no payment is recorded (D-52)",
            "a",
            {"b": "being reissued"},
        ),
    ),
    ("reissue", "reissue again"): _OTHER_IN_PROGRESS,
    ("reissue", "cancel invoice"): (
        *_OTHER_IN_PROGRESS,
        _LATER_DECIDES,
        NamedOutcome(
            "the invoice had its next charge before the cancellation called the gateway, so it is not canceled (D-171)",
            "a",
            {"b": "was reissued while it was being canceled"},
        ),
    ),
    ("manual payment", "manual payment again"): _OTHER_IN_PROGRESS,
    ("manual payment", "cancel invoice"): (*_OTHER_IN_PROGRESS, _LATER_DECIDES),
    ("refund", "refund again"): (
        NamedOutcome(_PENDING_REFUND, "a", {"b": _NOT_REFUNDABLE}),
        NamedOutcome(_PENDING_REFUND, "b", {"a": _NOT_REFUNDABLE}),
    ),
    ("refund", "refund, same key"): (
        NamedOutcome(_ONE_REFUND, "a b", dict.fromkeys("ab", r'"status": (200|202)')),
        NamedOutcome(_ONE_REFUND, "b a", dict.fromkeys("ab", r'"status": (200|202)')),
    ),
    ("move", "subscribe here"): (
        NamedOutcome(
            "the subscription was created between two batches, so its events are between those of the batches",
            "b a",
            ignored_tables=frozenset({"event"}),
        ),
    ),
    ("refund", "dispute poll"): (
        NamedOutcome(
            "the refund was stored before the dispute, and fails because its money is not left (D-53)",
            "b a",
            {"a": r'"code": "not_left"'},
            frozenset({"refund_request", "event"}),
            _SUCCEEDED,
        ),
        NamedOutcome(
            "the refund was being sent, so the dispute is recorded before it, each with its own event",
            "a b",
            ignored_tables=frozenset({"event"}),
        ),
    ),
    ("refund", "reissue"): (
        NamedOutcome(_REFUND_FIRST, "a", {"b": "A refund of the invoice is pending"}),
        NamedOutcome("the charge was being canceled, so nothing is refunded", "b", {"a": _NOT_REFUNDABLE}),
        NamedOutcome("the response shows a part of the later reissue", "a b", {"a": r'"number": 2'}),
    ),
    ("refund", "connection off"): (
        NamedOutcome(
            "the refund was stored, but not sent, so it waits until the connection is active again (D-151)",
            "b",
            {"a": r'"status": 202'},
            frozenset({"refund_request", "account_counter"}),
            {"idempotency_key": "a b", "audit_entry": "a b"},
        ),
    ),
    ("push", "redeliver"): (
        NamedOutcome(
            "the push delivered the event again before the response was read",
            "b a",
            {"b": r'"attempt": 2,.*"nextAttemptAt": null, "status": "delivered"}, .*"status": 202'},
        ),
    ),
    ("redeliver", "no webhook"): (
        NamedOutcome(
            "the webhook was removed before the response was read, so the event is not delivered again",
            "a b",
            {"a": r'"nextAttemptAt": null, "status": "delivered"}, .*"status": 202'},
        ),
    ),
    ("push", "other webhook"): (
        NamedOutcome(
            "a push to the old URL does not affect the health of the new URL",
            "a b",
            ignored_tables=frozenset({"webhook"}),
        ),
    ),
}
"""The named outcomes of each pair of operations."""
