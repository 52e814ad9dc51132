"""If an adapter's answer contains a malformed refund, the answer is refused before the engine uses it."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from fatura.domain.payments import EntryKind
from fatura.gateways.answers import checked
from fatura.gateways.port import Charge, ChargeEntry, ChargeState, InvalidAnswerError, Refund, RefundState

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
PAYMENT = ChargeEntry(EntryKind.PAYMENT, "pay_1", 9990, "BRL", NOW)
REFUNDED = ChargeEntry(EntryKind.REFUND, "ref_1", 4000, "BRL", NOW)
DONE = Refund(uuid4(), RefundState.DONE, "ref_1")
PENDING, FAILED = (
    Refund(uuid4(), RefundState.PENDING),
    Refund(uuid4(), RefundState.FAILED, detail="no balance"),
)
CHARGE = Charge("ch_1", uuid4(), 1, ChargeState.PAID, 9990, entries=(PAYMENT, REFUNDED))


@pytest.mark.parametrize("refunds", [(), (DONE,), (DONE, PENDING, FAILED)])
def test_refunds_of_every_state_are_accepted(refunds: tuple[Refund, ...]) -> None:
    """[D-53]"""
    charge = replace(CHARGE, refunds=refunds)
    assert checked(charge, currency="BRL", now=NOW) == charge


@pytest.mark.parametrize(
    ("refunds", "message"),
    [
        ([DONE], "refunds of the charge"),
        (("refund",), "a refund of the charge"),
        ((replace(DONE, reference="ref_2"),), "no entry of its own"),
        ((replace(DONE, reference="pay_1"),), "no entry of its own"),
        ((replace(DONE, reference=None),), "no entry of its own"),
        ((DONE, replace(DONE, refund_id=uuid4())), "no entry of its own"),
        ((DONE, DONE), "two refunds with one id"),
        ((PENDING, replace(PENDING, state=RefundState.FAILED)), "two refunds with one id"),
    ],
)
def test_refunds_that_contradict_the_charge_are_refused(refunds: Any, message: str) -> None:
    """[D-53]"""
    with pytest.raises(InvalidAnswerError, match=message):
        checked(replace(CHARGE, refunds=refunds), currency="BRL", now=NOW)


@pytest.mark.parametrize(
    "wrong",
    [
        {"refund_id": "7"},
        {"refund_id": None},
        {"state": "done"},
        {"state": None},
        {"reference": ""},
        {"reference": 7},
        {"reference": "a\x00b"},
        {"detail": 7},
        {"detail": b"no"},
    ],
    ids=str,
)
def test_a_refund_with_a_wrong_type_is_refused(wrong: dict[str, Any]) -> None:
    """[D-53]"""
    (field,) = wrong
    made: Any = DONE
    with pytest.raises(InvalidAnswerError, match=f"{field} of a refund"):
        checked(replace(CHARGE, refunds=(replace(made, **wrong),)), currency="BRL", now=NOW)
