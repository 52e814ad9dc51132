"""The invoice's state machine, written by hand from the specification (3.3) and D-9, D-24 to D-28.

Nothing here is generated from the engine. Tests compare the domain, the docs and PostgreSQL with this table.
"""

from tests.support.world import rows

STATES = ("draft", "awaiting_value", "ready", "issued", "paid", "overdue", "canceled")

# `-`: nothing changes. `stays`: the state stays, and an event is emitted. `409`: refused.
_OUTCOMES = rows("""
    fact              | total | draft          | awaiting | ready    | issued   | paid  | overdue  | canceled
    value_missed      | any   | awaiting_value | -        | -        | -        | -     | -        | -
    values_closed     | > 0   | ready          | ready    | -        | -        | -     | -        | -
    values_closed     | = 0   | paid           | paid     | -        | -        | -     | -        | -
    charge_confirmed  | any   | -              | -        | issued   | -        | -     | -        | -
    paid_in_part      | any   | -              | -        | stays    | stays    | -     | stays    | -
    paid_in_full      | any   | -              | -        | paid     | paid     | -     | paid     | -
    overpaid          | any   | -              | -        | -        | -        | stays | -        | -
    payment_unexpected | any  | stays          | stays    | stays    | stays    | stays | stays    | stays
    payment_missed    | any   | -              | -        | -        | overdue  | -     | -        | -
    cancel_requested  | any   | canceled       | canceled | canceled | canceled | 409   | canceled | 409
    charge_canceled   | any   | -              | -        | -        | canceled | -     | canceled | -
    reissue_requested | any   | 409            | 409      | stays    | ready    | 409   | ready    | 409
    refunded_in_part  | any   | stays          | stays    | stays    | stays    | stays | stays    | stays
    refunded_in_full  | any   | stays          | stays    | stays    | stays    | stays | stays    | stays
    disputed          | any   | stays          | stays    | stays    | stays    | stays | stays    | stays
    dispute_won       | any   | stays          | stays    | stays    | stays    | stays | stays    | stays
    dispute_lost      | any   | stays          | stays    | stays    | stays    | stays | stays    | stays
""")

FACTS = tuple(dict.fromkeys(fact for fact, *_ in _OUTCOMES))

OUTCOMES: dict[tuple[str, str, int], str] = {
    (state, fact, total_cents): outcome
    for fact, total, *cells in _OUTCOMES
    for state, outcome in zip(STATES, cells, strict=True)
    for total_cents in {"any": (0, 1000), "> 0": (1000,), "= 0": (0,)}[total]
}
"""The outcome of each fact, by state and total."""

# The event that a transition emits and the columns that it sets, by fact and target state.
EFFECTS: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {
    (fact, to): (emits, tuple(stamps.split()))
    for fact, to, emits, stamps in rows("""
        fact              | to             | emits                      | stamps
        value_missed      | awaiting_value | invoice.held               |
        values_closed     | ready          | invoice.ready              |
        values_closed     | paid           | invoice.paid               | paid_at
        charge_confirmed  | issued         | invoice.issued             | gateway_invoice_id issued_at
        paid_in_part      | stays          | invoice.partially_paid     |
        paid_in_full      | paid           | invoice.paid               | paid_at
        overpaid          | stays          | invoice.overpaid           |
        payment_unexpected | stays         | invoice.payment_unexpected | unexpected_payment_at
        payment_missed    | overdue        | invoice.overdue            |
        cancel_requested  | canceled       | invoice.canceled           | canceled_at
        charge_canceled   | canceled       | invoice.canceled           | canceled_at
        reissue_requested | ready          | invoice.reissued           |
        reissue_requested | stays          | invoice.reissued           |
        refunded_in_part  | stays          | invoice.refunded           |
        refunded_in_full  | stays          | invoice.refunded           | refunded_at
        disputed          | stays          | invoice.disputed           | disputed_at
        dispute_won       | stays          | invoice.dispute_closed     |
        dispute_lost      | stays          | invoice.dispute_closed     |
    """)
}

# The changes of state that PostgreSQL allows: each line is the state before, each column the state after.
_MOVES = rows("""
    from           | draft | awaiting_value | ready | issued | paid | overdue | canceled
    draft          | yes   | yes            | yes   | no     | yes  | no      | yes
    awaiting_value | no    | yes            | yes   | no     | yes  | no      | yes
    ready          | no    | no             | yes   | yes    | yes  | no      | yes
    issued         | no    | no             | yes   | yes    | yes  | yes     | yes
    paid           | no    | no             | no    | no     | yes  | no      | no
    overdue        | no    | no             | yes   | no     | yes  | yes     | yes
    canceled       | no    | no             | no    | no     | no   | no      | yes
""")
MOVES: dict[str, dict[str, str]] = {from_: dict(zip(STATES, cells, strict=True)) for from_, *cells in _MOVES}

INITIAL_STATES = ("draft", "ready", "paid")
