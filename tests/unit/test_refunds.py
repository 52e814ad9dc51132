"""The stages of refunds, and the choice of the charge that is refunded."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from fatura.domain.errors import EngineError
from fatura.domain.payments import EntryKind, EntrySource, ManualMethod, PaymentEntry
from fatura.domain.refunds import (
    PARTS_SHOWN,
    STAGES,
    RefundStage,
    RefundStatus,
    choose,
    moves,
    parts,
)
from tests.support.world import rows

MIGRATION = Path(__file__).parents[2] / "src" / "fatura" / "store" / "migrations" / "0006_charging.sql"
AT = datetime(2034, 1, 1, tzinfo=UTC)
CONNECTION, INVOICE = uuid4(), uuid4()
P, R, D, WON = EntryKind.PAYMENT, EntryKind.REFUND, EntryKind.DISPUTE_OPENED, EntryKind.DISPUTE_WON

BY_HAND = rows("""
    stage    | status  | to
    planned  | pending | sending accepted done failed
    sending  | pending | planned accepted done failed
    accepted | pending | done failed
    done     | done    |
    failed   | failed  | done
""")


def test_the_table_equals_the_one_written_by_hand() -> None:
    """[D-53]"""
    assert {stage for stage, *_ in BY_HAND} == set(RefundStage)
    for stage, status, to in BY_HAND:
        rule = STAGES[RefundStage(stage)]
        assert (stage, rule.status, set(rule.to)) == (stage, status, set(to.split()))
    assert {rule.status for rule in STAGES.values()} == set(RefundStatus)


def test_postgresql_enforces_the_same_moves_and_sets() -> None:
    """[D-53]"""
    sql = MIGRATION.read_text("utf-8")
    (function,) = re.findall(r"FUNCTION refuse_illegal_refund\(\) RETURNS.*?\$\$;", sql, re.DOTALL)
    pairs = {tuple(pair.split()) for pair in re.findall(r"'([a-z]+ [a-z]+)'", function)}
    assert pairs == {(str(stage), str(to)) for stage, to in moves()}
    (listed,) = re.findall(r"INDEX refund_request_one_open .*?stage IN \((.*?)\)", sql, re.DOTALL)
    assert set(re.findall(r"'([a-z]+)'", listed)) == {stage for stage, rule in STAGES.items() if rule.is_open}


def ledger(*entries: tuple[str, EntryKind, int]) -> list[PaymentEntry]:
    """Return ledger entries in the order in which they happened. `-` instead of a charge means a manual entry."""
    return [
        PaymentEntry(
            payment_entry_id=uuid4(),
            invoice_id=INVOICE,
            connection_id=None if charge == "-" else CONNECTION,
            gateway_charge_id=None if charge == "-" else charge,
            kind=kind,
            amount_cents=cents,
            fee_cents=7,
            currency="BRL",
            occurred_at=AT + timedelta(minutes=place),
            source=EntrySource.MANUAL if charge == "-" else EntrySource.GATEWAY,
            reference="dispute" if kind in {D, WON} else str(place),
            method=ManualMethod.CASH if charge == "-" and kind is P else None,
            recorded_at=AT,
        )
        for place, (charge, kind, cents) in enumerate(entries)
    ]


@pytest.mark.parametrize(
    ("entries", "left"),
    [
        ([], []),
        ([("a", P, 100)], [("a", 100)]),
        ([("a", P, 60), ("a", P, 40), ("a", R, 30)], [("a", 70)]),
        ([("a", P, 60), ("b", P, 40)], [("b", 40), ("a", 60)]),
        ([("a", P, 60), ("b", P, 40), ("a", P, 1)], [("a", 61), ("b", 40)]),
        ([("a", P, 60), ("-", P, 40), ("-", R, 1)], [("a", 60), (None, 39)]),
        ([("a", P, 100), ("a", D, 30)], [("a", 70)]),
        ([("a", P, 100), ("a", D, 30), ("a", WON, 30)], [("a", 100)]),
        ([("a", P, 100), ("a", R, 50), ("a", D, 100)], [("a", 0)]),
    ],
)
def test_what_is_left_is_counted_for_each_charge(
    entries: list[tuple[str, EntryKind, int]], left: list[tuple[str | None, int]]
) -> None:
    """[D-151]"""
    found = parts(ledger(*entries))
    assert [(part.gateway_charge_id, part.left_cents) for part in found] == left


@pytest.mark.parametrize(
    ("entries", "asked", "taken"),
    [
        ([("a", P, 100)], None, ("a", 100)),
        ([("a", P, 100)], 40, ("a", 40)),
        ([("a", P, 60), ("b", P, 40)], 40, ("b", 40)),
        ([("a", P, 60), ("b", P, 40)], 41, ("a", 41)),
        ([("a", P, 60), ("-", P, 40)], 40, ("a", 40)),
        ([("a", P, 60), ("a", R, 60), ("-", P, 40)], None, (None, 40)),
        ([], None, "engine.invoice_not_refundable"),
        ([("a", P, 100), ("a", D, 100)], None, "engine.invoice_not_refundable"),
        ([("a", P, 100)], 101, "engine.amount_exceeds_paid"),
        ([("a", P, 100), ("a", R, 100)], None, "engine.amount_exceeds_paid"),
        ([("a", P, 60), ("b", P, 40)], None, "engine.amount_exceeds_paid"),
        ([("a", P, 60), ("b", P, 40)], 100, "engine.amount_exceeds_paid"),
    ],
)
def test_the_newest_charge_that_has_enough_is_refunded_first(
    entries: list[tuple[str, EntryKind, int]], asked: int | None, taken: tuple[str | None, int] | str
) -> None:
    """[D-151, D-67 refund]"""
    if isinstance(taken, str):
        with pytest.raises(EngineError, match=taken):
            choose(ledger(*entries), asked)
    else:
        part, cents = choose(ledger(*entries), asked)
        assert (part.gateway_charge_id, cents) == taken


def test_the_error_lists_a_maximum_of_parts() -> None:
    """[D-151]"""
    with pytest.raises(EngineError, match=r"engine\.amount_exceeds_paid") as raised:
        choose(ledger(*((f"charge {number}", P, 1) for number in range(PARTS_SHOWN + 1))), 2)
    meta = raised.value.meta
    assert meta is not None
    assert len(meta["parts"]) == PARTS_SHOWN
