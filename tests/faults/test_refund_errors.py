"""Test `payments.refund_errors`: it accepts every correct outcome of a refund, and reports every other outcome."""

import pytest

from tests.faults.payments import AskedRefund, MadeRefund, refund_errors

pytestmark = pytest.mark.faults

DONE, PENDING, FAILED = (MadeRefund("i1", 500, state) for state in ("done", "pending", "failed"))
OTHER_AMOUNT, OTHER_INVOICE = MadeRefund("i1", 499, "done"), MadeRefund("i2", 500, "done")
# Each row: refunds at the provider, stage in the engine, HTTP statuses, whether the refund must be final, the findings.
CASES = (
    ((), None, (409,), True, []),
    ((DONE,), "done", (202, 200), True, []),
    ((DONE,), "sending", (202,), False, []),
    ((DONE,), "done", (409, 200), True, []),
    ((PENDING,), "accepted", (202,), False, []),
    ((FAILED,), "failed", (202, 422), True, []),
    ((), "failed", (202, 422), True, []),
    ((DONE, DONE), "done", (200,), True, ["made 2 times"]),
    ((DONE, PENDING), "sending", (202,), False, ["made 2 times"]),
    ((OTHER_AMOUNT,), "done", (200,), True, ["499 cents of invoice i1 were refunded instead"]),
    ((OTHER_INVOICE,), "done", (200,), True, ["500 cents of invoice i2 were refunded instead"]),
    ((DONE,), None, (), False, ["made, but the engine does not know it"]),
    ((FAILED,), "done", (), True, ["done in the engine, but not made"]),
    ((), "sending", (200,), False, ["answered 200, but not made"]),
    ((DONE,), "done", (422,), False, ["answered [422], but made"]),
    ((DONE,), "sending", (202,), True, ["sending in the engine, but made"]),
    ((), "planned", (202,), True, ["planned in the engine, but not made"]),
)


@pytest.mark.parametrize(("made", "stage", "answers", "complete", "reported"), CASES)
def test_a_refund_is_made_once_as_asked_and_known_to_the_engine(
    made: tuple[MadeRefund, ...],
    stage: str | None,
    answers: tuple[int, ...],
    *,
    complete: bool,
    reported: list[str],
) -> None:
    """[D-53] [D-151]"""
    asked = AskedRefund("i1", "refund 1", 500, list(answers))
    assert list(refund_errors(asked, made, stage=stage, complete=complete)) == reported
