"""The invoice's state machine and its generated page in the docs equal the table written by hand."""

from pathlib import Path

import pytest

from fatura.domain.errors import INVOICE_NOT_CANCELABLE, INVOICE_NOT_REISSUABLE
from fatura.domain.events import CATALOGUE
from fatura.domain.invoice_states import (
    ENTRY_FACTS,
    INITIAL_STATES,
    MEANINGS,
    REFUSALS,
    TABLE,
    Fact,
    InvoiceStatus,
    decide,
    moves,
)
from fatura.reference import states_page
from tests.support import invoice_table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "states.md"


def outcome(state: InvoiceStatus, fact: Fact, total_cents: int | None) -> str:
    """Return the domain's decision in the notation of the hand-written table."""
    if (state, fact) in REFUSALS:
        return str(REFUSALS[state, fact].status)
    row = decide(state, fact, total_cents=total_cents)
    if row is None:
        return "-"
    return "stays" if row.to is state else row.to


@pytest.mark.parametrize(("state", "fact", "total_cents"), invoice_table.OUTCOMES)
def test_every_fact_in_every_state_has_the_outcome_written_by_hand(state, fact, total_cents):
    """[D-28, D-9, spec 3.3 ready to issued, spec 3.3 issued to paid, spec 3.3 rule 1, spec 3.3 rule 2]"""
    expected = invoice_table.OUTCOMES[state, fact, total_cents]
    assert outcome(InvoiceStatus(state), Fact(fact), total_cents) == expected
    if fact != "values_closed":
        assert outcome(InvoiceStatus(state), Fact(fact), None) == expected


def test_the_hand_written_table_has_every_state_and_fact():
    """[D-28]"""
    assert tuple(InvoiceStatus) == invoice_table.STATES
    assert set(Fact) == set(invoice_table.FACTS) == set(MEANINGS)
    assert len(invoice_table.OUTCOMES) == len(InvoiceStatus) * len(Fact) * 2


@pytest.mark.parametrize("transition", TABLE, ids=lambda each: f"{each.from_} {each.fact} {each.to}")
def test_each_transition_emits_its_event_and_sets_its_columns(transition):
    """[D-28, spec 3.3 ready to issued, spec 3.3 issued to paid]"""
    to = "stays" if transition.to is transition.from_ else transition.to
    assert (transition.emits, transition.stamps) == invoice_table.EFFECTS[transition.fact, to]
    assert transition.emits in CATALOGUE


def test_a_won_dispute_clears_the_dispute():
    """[D-50]"""
    assert {each.fact for each in TABLE if each.clears} == {Fact.DISPUTE_WON}
    assert {each.clears for each in TABLE if each.fact is Fact.DISPUTE_WON} == {("disputed_at",)}


def test_the_facts_of_the_ledger_have_an_event_in_every_state_in_which_they_can_happen():
    """Every state has a row for at least one fact that reports a payment, and for each fact of refunds and disputes.

    An event can thus report every entry of the ledger. [D-50]
    """
    emits = {(each.from_, each.fact) for each in TABLE}
    payments = {Fact.PAID_IN_PART, Fact.OVERPAID, Fact.PAYMENT_UNEXPECTED}
    for state in InvoiceStatus:
        assert any((state, fact) in emits for fact in payments)
        assert all((state, fact) in emits for fact in ENTRY_FACTS - payments - {Fact.PAID_IN_FULL})


def test_exactly_seventeen_changes_of_state_are_allowed():
    """[D-28]"""
    by_hand = {
        (from_, to)
        for from_, cells in invoice_table.MOVES.items()
        for to, may in cells.items()
        if may == "yes" and from_ != to
    }
    assert moves() == by_hand
    assert len(by_hand) == 17


def test_invoices_are_created_draft_ready_or_paid():
    """[D-24]"""
    assert set(invoice_table.INITIAL_STATES) == INITIAL_STATES


def test_requests_that_the_state_forbids_are_refused():
    """[D-28]"""
    assert set(REFUSALS.values()) == {INVOICE_NOT_CANCELABLE, INVOICE_NOT_REISSUABLE}


def matrix_of(page: str) -> dict[tuple[str, str], str]:
    """Parse the page's table "Every state and every fact". Return each outcome by its state and fact."""
    _, section = page.split("## Every state and every fact")
    table = [line for line in section.splitlines() if line.startswith("|")]
    [_, *states], _, *body = ([cell.strip() for cell in line[1:-1].split("|")] for line in table)
    found: dict[tuple[str, str], str] = {}
    for fact, *cells in body:
        found |= {(state, fact): cell for state, cell in zip(states, cells, strict=True)}
    return found


def test_the_page_shows_the_outcomes_written_by_hand():
    """[D-28]"""
    shown = matrix_of(PAGE.read_text("utf-8"))
    expected: dict[tuple[str, str], set[str]] = {}
    for (state, fact, _), cell in invoice_table.OUTCOMES.items():
        expected.setdefault((state, fact), set()).update({cell} - {"-"})
    assert shown == {pair: " or ".join(sorted(cells)) for pair, cells in expected.items()}


def test_the_page_is_up_to_date():
    """[D-28]"""
    assert PAGE.read_text("utf-8") == states_page()
