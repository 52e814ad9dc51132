"""The domain's table of charge stages equals a hand-written table, and PostgreSQL allows the same moves."""

import re
from pathlib import Path

from fatura.domain.charge import MAY_APPEAR, PAYABLE, STAGES, ChargeStage, ChargeStatus, moves
from tests.support.world import rows

MIGRATION = Path(__file__).parents[2] / "src" / "fatura" / "store" / "migrations" / "0006_charging.sql"

# `live`: the payer can pay the charge, or it is unknown whether the gateway has created it.
# `confirmed`: the gateway gave the charge an id.
BY_HAND = rows("""
    stage    | status   | live | confirmed | closed | to
    planned  | sending  | no   | no        | no     | sending unknown failed
    sending  | sending  | yes  | no        | no     | unknown absent parked open failed
    unknown  | unknown  | yes  | no        | no     | absent parked open failed
    absent   | sending  | yes  | no        | no     | sending unknown parked open failed
    parked   | unknown  | yes  | no        | no     | unknown open failed
    open     | open     | yes  | yes       | no     | paid refused expired canceled missing
    refused  | refused  | yes  | yes       | no     | open paid expired canceled missing
    expired  | expired  | no   | yes       | yes    | open refused paid canceled missing
    canceled | canceled | no   | yes       | yes    | paid
    paid     | paid     | no   | yes       | yes    |
    failed   | not_made | no   | no        | yes    |
    missing  | not_made | no   | yes       | yes    | open refused expired paid canceled
""")


def test_the_table_equals_the_one_written_by_hand() -> None:
    """[D-49, D-33]"""
    assert {stage for stage, *_ in BY_HAND} == set(ChargeStage)
    for stage, status, live, confirmed, closed, to in BY_HAND:
        rule = STAGES[ChargeStage(stage)]
        flags = ["yes" if flag else "no" for flag in (rule.is_live, rule.is_confirmed, rule.is_closed)]
        assert (stage, rule.status, *flags) == (stage, status, live, confirmed, closed)
        assert set(rule.to) == set(to.split())
    assert {rule.status for rule in STAGES.values()} == set(ChargeStatus)


def test_postgresql_enforces_the_same_moves_and_sets() -> None:
    """[D-49, D-33]"""
    sql = MIGRATION.read_text("utf-8")
    (function,) = re.findall(r"FUNCTION refuse_illegal_charge\(\) RETURNS.*?\$\$;", sql, re.DOTALL)
    pairs = {tuple(pair.split()) for pair in re.findall(r"'([a-z]+ [a-z]+)'", function)}
    assert pairs == {(str(stage), str(to)) for stage, to in moves()}
    assert _listed(sql, r"charge_one_live .*?stage IN \((.*?)\)") == {
        s for s, rule in STAGES.items() if rule.is_live
    }
    confirmed = {stage for stage, rule in STAGES.items() if rule.is_confirmed}
    assert _listed(sql, r"charge_confirmed CHECK .*?stage IN \((.*?)\)") == confirmed
    closed = {stage for stage, rule in STAGES.items() if rule.is_closed}
    assert _listed(sql, r"charge_closed CHECK .*?stage IN \((.*?)\)") == closed
    assert _listed(sql, r"charge_stage CHECK .*?stage IN \((.*?)\)") == set(ChargeStage)


def _listed(sql: str, pattern: str) -> set[str]:
    (listed,) = re.findall(pattern, sql, re.DOTALL)
    return set(re.findall(r"'([a-z]+)'", listed))


def test_a_live_charge_is_payable_or_may_appear() -> None:
    """[D-49]"""
    assert {stage for stage, rule in STAGES.items() if rule.is_live} == PAYABLE | MAY_APPEAR
