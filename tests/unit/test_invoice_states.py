"""The invoice table of the domain and its printed page, held against the table written by hand."""

from pathlib import Path

import pytest

from fatura.domain.errors import INVOICE_NOT_CANCELABLE
from fatura.domain.events import CATALOGUE
from fatura.domain.invoice_states import BIRTHS, MEANINGS, REFUSALS, TABLE, Fact, InvoiceStatus, decide, moves
from fatura.reference import states_page
from tests.support import invoice_table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "states.md"


def outcome(state: InvoiceStatus, fact: Fact, total_cents: int | None) -> str:
    """Return what the domain makes of a fact, in the words of the table written by hand."""
    if (state, fact) in REFUSALS:
        return str(REFUSALS[state, fact].status)
    row = decide(state, fact, total_cents=total_cents)
    if row is None:
        return "-"
    return "stays" if row.to is state else row.to


@pytest.mark.parametrize(("state", "fact", "total_cents"), invoice_table.OUTCOMES)
def test_every_state_and_every_fact(state, fact, total_cents):
    """Every state x every fact x total zero or positive.

    [D-28, D-9, spec 3.3 ready to issued, spec 3.3 issued to paid, spec 3.3 rule 1, spec 3.3 rule 2]
    """
    expected = invoice_table.OUTCOMES[state, fact, total_cents]
    assert outcome(InvoiceStatus(state), Fact(fact), total_cents) == expected
    if fact != "values_closed":
        assert outcome(InvoiceStatus(state), Fact(fact), None) == expected


def test_the_table_is_whole():
    """The hand-written table knows every state and fact that the engine knows. [D-28]"""
    assert tuple(InvoiceStatus) == invoice_table.STATES
    assert set(Fact) == set(invoice_table.FACTS) == set(MEANINGS)
    assert len(invoice_table.OUTCOMES) == len(InvoiceStatus) * len(Fact) * 2


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.from_} {row.fact} {row.to}")
def test_what_a_row_tells_and_stamps(row):
    """Each row tells its event and sets its columns. [D-28, spec 3.3 ready to issued, spec 3.3 issued to paid]"""
    to = "stays" if row.to is row.from_ else row.to
    assert (row.tells, row.stamps) == invoice_table.EFFECTS[row.fact, to]
    assert row.tells in CATALOGUE


@pytest.mark.parametrize(
    ("state", "fact", "stamp"),
    [
        ("paid", "refunded", "refunded_at"),
        ("paid", "disputed", "disputed_at"),
        ("canceled", "payment_confirmed", "unexpected_payment_at"),
    ],
)
def test_a_fact_that_stays_counts_once(state, fact, stamp):
    """Told again by the gateway, it changes and tells nothing; another stamp does not stand in for it. [D-28]"""
    status, each = InvoiceStatus(state), Fact(fact)
    others = {"refunded_at", "disputed_at", "unexpected_payment_at"} - {stamp}
    assert decide(status, each, total_cents=1000, stamped=[stamp]) is None
    assert decide(status, each, total_cents=1000, stamped=others) is not None


def test_the_pairs():
    """Fourteen pairs of states are moves, and no other. [D-28]"""
    by_hand = {
        (from_, to)
        for from_, cells in invoice_table.MOVES.items()
        for to, may in cells.items()
        if may == "yes" and from_ != to
    }
    assert moves() == by_hand
    assert len(by_hand) == 14


def test_births():
    """Generation bears drafts, ready ones, and paid ones of nothing. [D-24]"""
    assert set(invoice_table.BIRTHS) == BIRTHS


def test_the_client_is_told():
    """Canceling what is paid or canceled is refused by its code. [D-28]"""
    assert set(REFUSALS.values()) == {INVOICE_NOT_CANCELABLE}


def matrix_of(page: str) -> dict[tuple[str, str], str]:
    """Return the cells of the page's last table by state and fact."""
    _, section = page.split("## Every state and every fact")
    table = [line for line in section.splitlines() if line.startswith("|")]
    [_, *states], _, *body = ([cell.strip() for cell in line[1:-1].split("|")] for line in table)
    found: dict[tuple[str, str], str] = {}
    for fact, *cells in body:
        found |= {(state, fact): cell for state, cell in zip(states, cells, strict=True)}
    return found


def test_the_page_says_what_was_written_by_hand():
    """docs/reference/states.md shows the very outcomes of the hand-written table. [D-28]"""
    shown = matrix_of(PAGE.read_text("utf-8"))
    expected: dict[tuple[str, str], set[str]] = {}
    for (state, fact, _), cell in invoice_table.OUTCOMES.items():
        expected.setdefault((state, fact), set()).update({cell} - {"-"})
    assert shown == {pair: " or ".join(sorted(cells)) for pair, cells in expected.items()}


def test_the_page_is_what_the_code_prints():
    """docs/reference/states.md is generated, and current. [D-28]"""
    assert PAGE.read_text("utf-8") == states_page()
