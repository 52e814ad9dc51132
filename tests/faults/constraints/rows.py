"""Invalid rows, each with the constraint that must refuse it."""

from tests.support.world import rows

# `once`: the columns of a unique index, except `account_id`. `where`: values that bring a row into a partial index.
UNIQUE_ROWS = rows("""
    index                          | table              | once                             | where
    invoice_one_per_cycle          | invoice            | subscription_id cycle            |
    invoice_charge_once            | invoice            | connection_id gateway_invoice_id | "gateway_invoice_id": "ch"
    charge_attempt_one_live        | charge_attempt     | invoice_id                       | "state": "sending"
    pricing_attempt_one_scheduled  | pricing_attempt    | invoice_id position              | "outcome": null, "by_hand": false
    event_id_once                  | event              | event_id                         |
    api_key_hash_once              | api_key            | secret_hash                      |
    integration_secret_one_current | integration_secret |                                  | "valid_until": null
    customer_ref_once              | customer           | external_ref                     |
    plan_version_number_once       | plan_version       | plan_id version                  | "subscription_id": null
    event_pk                       | event              | sequence                         |
    idempotency_key_pk             | idempotency_key    | key                              |
    charge_attempt_pk              | charge_attempt     | invoice_id attempt               |
    invoice_item_pk                | invoice_item       | invoice_id position              |
    delivery_pk                    | delivery           | sequence                         |
    account_counter_pk             | account_counter    |                                  |
    lost_invoice_pk                | lost_invoice       | subscription_id cycle            |
""")  # noqa: E501 - wrapped rows would be hard to read

# Changes that make a copy of a valid row invalid, and the check that refuses each.
CHECKS = rows("""
    check                           | table              | changed
    product_pricing                 | product            | "monthly_price_cents": -1
    product_pricing                 | product            | "monthly_price_cents": 1000000000000
    product_pricing                 | product            | "monthly_price_cents": null
    product_pricing                 | product            | "cap_cents": 1
    product_pricing                 | product            | "endpoint_url": "https://merchant.example"
    product_pricing                 | product            | "pricing_mode": "endpoint"
    product_pricing                 | product            | "pricing_mode": "free"
    plan_version_counts             | plan               | "current_version": 0
    plan_version_period             | plan_version       | "period_months": 2
    plan_version_method             | plan_version       | "default_payment_method": "cash", "max_installments": 1
    plan_version_installments       | plan_version       | "max_installments": 0
    plan_version_installments       | plan_version       | "max_installments": 13
    plan_version_installments       | plan_version       | "default_payment_method": "pix", "max_installments": 2
    plan_version_commitment         | plan_version       | "commitment_cycles": 0
    plan_item_position              | plan_item          | "position": -1
    plan_item_position              | plan_item          | "position": 20
    plan_discount_priority          | plan_discount      | "priority": 20
    plan_discount_percent           | plan_discount      | "percent": 0
    plan_discount_percent           | plan_discount      | "percent": 101
    plan_discount_cycles            | plan_discount      | "from_cycle": 0
    plan_discount_cycles            | plan_discount      | "from_cycle": 4, "to_cycle": 3
    gateway_connection_methods      | gateway_connection | "methods": ["card", "cash"]
    gateway_connection_installments | gateway_connection | "max_installments": 13
    subscription_status             | subscription       | "status": "canceled"
    subscription_status             | subscription       | "status": "paused"
    subscription_status             | subscription       | "canceled_at": "2035-01-01"
    subscription_charge_day         | subscription       | "charge_day": 0
    subscription_charge_day         | subscription       | "charge_day": 29
    subscription_method             | subscription       | "payment_method": "cash"
    subscription_method_source      | subscription       | "payment_method_source": "guess"
    subscription_cycles             | subscription       | "cycle_count": -1
    subscription_commitment         | subscription       | "commitment_cycles": 0
    customer_document               | customer           | "document_hash": "00"
    invoice_status                  | invoice            | "status": "lost"
    invoice_cycle                   | invoice            | "cycle": 0
    invoice_period                  | invoice            | "period_start": "2034-02-02", "period_end": "2034-02-01"
    invoice_method                  | invoice            | "payment_method": "cash"
    invoice_installments            | invoice            | "payment_method": "pix", "installments": 2
    invoice_installments            | invoice            | "payment_method": "card", "installments": 1
    invoice_total                   | invoice            | "status": "draft", "total_cents": 1
    invoice_total                   | invoice            | "status": "ready", "total_cents": 0
    invoice_total                   | invoice            | "status": "issued", "total_cents": null
    invoice_total                   | invoice            | "status": "paid", "total_cents": -1
    invoice_charge                  | invoice            | "status": "ready", "gateway_invoice_id": "ch"
    invoice_charge                  | invoice            | "status": "issued", "gateway_invoice_id": null
    invoice_charge                  | invoice            | "status": "paid", "total_cents": 1, "gateway_invoice_id": null
    invoice_charge                  | invoice            | "status": "paid", "total_cents": 0, "gateway_invoice_id": "ch"
    invoice_issued_at               | invoice            | "gateway_invoice_id": "ch", "issued_at": null
    invoice_issued_at               | invoice            | "gateway_invoice_id": null, "issued_at": "2034-01-01"
    invoice_paid_at                 | invoice            | "status": "paid", "paid_at": null
    invoice_paid_at                 | invoice            | "status": "ready", "paid_at": "2034-01-01"
    invoice_canceled_at             | invoice            | "status": "ready", "canceled_at": "2034-01-01"
    invoice_issue_error             | invoice            | "issue_error_code": "rejected"
    invoice_item_source             | invoice_item       | "pricing_source": "guess"
    invoice_item_table              | invoice_item       | "amount_cents": 1
    invoice_item_table              | invoice_item       | "discount_percent": 21
    invoice_item_table              | invoice_item       | "pricing_source": "manual"
    invoice_item_status             | invoice_item       | "amount_cents": null
    invoice_item_status             | invoice_item       | "pricing_status": "pending"
    invoice_item_status             | invoice_item       | "amount_cents": -1
    charge_attempt_state            | charge_attempt     | "state": "lost"
    charge_attempt_confirmed        | charge_attempt     | "state": "sending", "gateway_invoice_id": "ch"
    charge_attempt_confirmed        | charge_attempt     | "state": "confirmed", "gateway_invoice_id": null
    charge_attempt_amount           | charge_attempt     | "amount_cents": 0
    lost_invoice_amount             | lost_invoice       | "amount_cents": 0
    product_mirror_done             | product_mirror     | "gateway_product_id": "p", "mirrored_at": null
    test_clock_status               | test_clock         | "status": "advancing"
    account_clock                   | account            | "mode": "live", "clock_offset": "1 s"
    account_clock                   | account            | "clock_offset": "-1 s"
    account_mode                    | account            | "mode": "demo"
    account_currency                | account            | "currency": "brl"
    account_counter_not_negative    | account_counter    | "invoices_paid": -1
    account_counter_not_negative    | account_counter    | "customers": -1
    idempotency_key_answered        | idempotency_key    | "answer": null
    price_pull_counts               | price_pull         | "failures": 13, "attempts": 13
    price_pull_counts               | price_pull         | "failures": 2, "attempts": 1
    pricing_attempt_number          | pricing_attempt    | "attempt": 0
    pricing_attempt_outcome         | pricing_attempt    | "outcome": "fine"
    pricing_attempt_open            | pricing_attempt    | "outcome": null, "latency_ms": 1
    webhook_at_once                 | webhook            | "at_once": 65
    webhook_at_once                 | webhook            | "at_once": 0
    webhook_failures                | webhook            | "failures": 1, "failing_since": null
    delivery_state                  | delivery           | "next_attempt_at": null, "delivered_at": null
    delivery_attempts               | delivery           | "attempts": 1, "failures": 2
    delivery_attempt_outcome        | delivery_attempt   | "outcome": "lost"
    sandbox_charge_status           | sandbox_charge     | "status": "lost"
    sandbox_fault_call              | sandbox_fault      | "operation": "call"
    sandbox_fault_fault             | sandbox_fault      | "fault": "yawns"
    sandbox_fault_times             | sandbox_fault      | "times_left": -1
""")  # noqa: E501 - wrapped rows would be hard to read

# Columns that never change after the assignment `when`. If `when` is blank, they never change. `*`: every column.
FROZEN = rows("""
    trigger                | table            | when                       | columns
    event_kept             | event            |                            | *
    plan_version_kept      | plan_version     |                            | *
    plan_item_kept         | plan_item        |                            | *
    plan_discount_kept     | plan_discount    |                            | *
    delivery_attempt_kept  | delivery_attempt |                            | *
    invoice_moves          | invoice          |                            | account_id invoice_id subscription_id connection_id
    invoice_moves          | invoice          |                            | cycle period_start period_end due_date created_at
    invoice_moves          | invoice          |                            | payment_method installments total_cents issued_at
    invoice_moves          | invoice          |                            | gateway_invoice_id charge_due_date paid_at
    invoice_moves          | invoice          |                            | refunded_at disputed_at canceled_at
    invoice_item_frozen    | invoice_item     | pricing_status = 'priced'  | *
    invoice_item_frozen    | invoice_item     | pricing_status = 'skipped' | *
    invoice_item_frozen    | invoice_item     | pricing_status = 'pending' | account_id invoice_id position item_id months
    invoice_item_frozen    | invoice_item     | pricing_status = 'pending' | product_id product_name
    charge_attempt_frozen  | charge_attempt   | state = 'confirmed'        | *
    charge_attempt_frozen  | charge_attempt   | state = 'failed'           | *
    charge_attempt_frozen  | charge_attempt   | state = 'sending'          | account_id invoice_id attempt connection_id
    charge_attempt_frozen  | charge_attempt   | state = 'sending'          | amount_cents
    pricing_attempt_frozen | pricing_attempt  | outcome = 'ok'             | *
    pricing_attempt_frozen | pricing_attempt  | outcome = NULL             | account_id invoice_id position attempt by_hand url
    pricing_attempt_frozen | pricing_attempt  | outcome = NULL             | cap_cents request_body created_at
""")  # noqa: E501 - wrapped rows would be hard to read

# Tables whose rows are never deleted.
NEVER_DELETED = rows("""
    trigger               | table
    event_kept            | event
    plan_version_kept     | plan_version
    plan_item_kept        | plan_item
    plan_discount_kept    | plan_discount
    invoice_kept          | invoice
    invoice_item_kept     | invoice_item
    charge_attempt_kept   | charge_attempt
    pricing_attempt_kept  | pricing_attempt
    delivery_kept         | delivery
    delivery_attempt_kept | delivery_attempt
""")

# Columns that are named like another table's key but have no foreign key, each with the reason.
NO_FOREIGN_KEY = rows("""
    column                       | because
    event.subscription_id        | an event is a snapshot and stays readable without the row
    event.invoice_id             | as above
    charge_attempt.connection_id | copied from the invoice, which has the foreign key, and frozen with the attempt
    lost_invoice.invoice_id      | a restore found charges of an invoice that is not generated yet
    sandbox_charge.invoice_id    | the sandbox gateway stores the engine's ids without reading its tables
    sandbox_product.product_id   | as above
""")
