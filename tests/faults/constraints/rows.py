"""Invalid rows, each with the constraint that must refuse it."""

from tests.support.world import rows

# `once`: a unique index's columns except `account_id`. `where`: values that meet the condition of a partial index.
UNIQUE_ROWS = rows("""
    index                          | table              | once                             | where
    invoice_one_per_cycle          | invoice            | subscription_id cycle            |
    invoice_charge_once            | invoice            | connection_id gateway_invoice_id | "gateway_invoice_id": "ch"
    charge_one_live                | charge             | invoice_id                       | "stage": "sending"
    charge_gateway_id_once         | charge             | connection_id gateway_invoice_id | "gateway_invoice_id": "ch"
    refund_request_one_open        | refund_request     | invoice_id                       | "stage": "planned"
    refund_request_entry_once      | refund_request     | payment_entry_id                 |
    payment_entry_reference_once   | payment_entry      | connection_id kind reference     | "source": "gateway"
    pix_key_entry_pk               | pix_key_entry      | kind reference                   | "kind": "refund"
    pix_key_entry_alike            | pix_key_entry      | connection_id txid amount_cents occurred_on | "kind": "payment", "is_confirmed": false
    pricing_attempt_one_scheduled  | pricing_attempt    | invoice_id position              | "outcome": null, "by_hand": false
    event_id_once                  | event              | event_id                         |
    api_key_hash_once              | api_key            | secret_hash                      |
    integration_secret_one_current | integration_secret |                                  | "valid_until": null
    customer_ref_once              | customer           | external_ref                     |
    subscription_terms_pk          | subscription_terms | subscription_id number           |
    propagation_one_running        | propagation        | plan_id                          | "status": "running", "ended_at": null
    propagation_skip_pk            | propagation_skip   | propagation_id subscription_id   |
    connection_move_one_running    | connection_move    | from_connection_id               | "status": "running", "ended_at": null
    connection_move_skip_pk        | connection_move_skip | connection_move_id subscription_id |
    plan_version_number_once       | plan_version       | plan_id version                  | "subscription_id": null
    event_pk                       | event              | sequence                         |
    audit_entry_pk                 | audit_entry        | sequence                         |
    idempotency_key_pk             | idempotency_key    | key                              |
    charge_number_once             | charge             | invoice_id number                |
    merchant_request_number        | merchant_request   | invoice_id number                |
    invoice_item_pk                | invoice_item       | invoice_id position              |
    delivery_pk                    | delivery           | sequence                         |
    account_gate_pk                | account_gate       |                                  |
    account_counter_pk             | account_counter    |                                  |
    retention_pk                   | retention          | kind                             |
    gateway_webhook_pk             | gateway_webhook    | connection_id digest             |
    lost_invoice_pk                | lost_invoice       | subscription_id cycle            |
""")  # noqa: E501 - wrapped rows would be hard to read

# Each line changes a copy of a valid row so that `check` must refuse the copy.
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
    gateway_connection_minimums     | gateway_connection | "min_amount_cents": 0
    gateway_connection_minimums     | gateway_connection | "min_installment_cents": 0
    connection_health_failing       | connection_health  | "failures": 3
    connection_health_failing       | connection_health  | "failures": -1
    connection_health_failing       | connection_health  | "next_probe_at": "2035-01-01"
    connection_health_failing       | connection_health  | "error_code": "timeout"
    connection_health_failing       | connection_health  | "emitted": true
    connection_health_failing       | connection_health  | "polls_per_minute": 0
    connection_health_reads         | connection_health  | "failed_reads": 1
    connection_health_reads         | connection_health  | "failed_reads": -1
    connection_health_reads         | connection_health  | "read_error_code": "timeout"
    connection_health_reads         | connection_health  | "emitted": true, "reads_reported": true
    connection_sweep_progress       | connection_sweep   | "started_at": "2035-01-01"
    connection_sweep_progress       | connection_sweep   | "listed_to": "2035-01-01"
    connection_sweep_progress       | connection_sweep   | "checked_to": "00000000-0000-0000-0000-000000000000"
    connection_sweep_progress       | connection_sweep   | "started_at": "2000-01-01", "listed_to": "2000-01-01"
    poll_round_running              | poll_round         | "done_to": "00000000-0000-0000-0000-000000000000"
    poll_round_running              | poll_round         | "again": true
    provider_call_operation           | provider_call        | "operation": "pay"
    provider_call_duration            | provider_call        | "duration_ms": -1
    gateway_webhook_digest          | gateway_webhook    | "digest": "\\\\x00"
    late_charge_check_unread        | late_charge_check  | "unread_ids": ["a"]
    late_charge_check_unread        | late_charge_check  | "unread_since": [null]
    unmatched_charge_state          | unmatched_charge   | "state": "guess"
    unmatched_charge_looked         | unmatched_charge   | "next_look_at": null, "state": null
    unmatched_charge_looked         | unmatched_charge   | "paid_at": "2035-01-01", "state": null
    subscription_status             | subscription       | "status": "canceled"
    subscription_status             | subscription       | "status": "paused"
    subscription_status             | subscription       | "canceled_at": "2035-01-01"
    subscription_charge_day         | subscription       | "charge_day": 0
    subscription_charge_day         | subscription       | "charge_day": 29
    subscription_method             | subscription       | "payment_method": "cash"
    subscription_method_source      | subscription       | "payment_method_source": "guess"
    subscription_start              | subscription       | "start_cycle": 0
    subscription_start              | subscription       | "start_cycle": 1201, "cycle_count": 1200
    subscription_cycles             | subscription       | "cycle_count": -1
    subscription_cycles             | subscription       | "start_cycle": 7, "cycle_count": 5
    subscription_put_off            | subscription       | "failures": 1
    subscription_put_off            | subscription       | "put_off_until": "2035-01-01"
    subscription_put_off            | subscription       | "failures": -1
    subscription_put_off            | subscription       | "failure_emitted": true
    subscription_commitment         | subscription       | "commitment_cycles": 0
    subscription_terms_cycle        | subscription_terms | "from_cycle": 0
    subscription_terms_reason       | subscription_terms | "number": 2, "reason": "guess"
    subscription_terms_first        | subscription_terms | "reason": "propagated"
    subscription_terms_first        | subscription_terms | "number": 2
    subscription_terms_first        | subscription_terms | "number": 0, "reason": "customized"
    propagation_status              | propagation        | "status": "running"
    propagation_status              | propagation        | "ended_at": null
    propagation_status              | propagation        | "status": "lost"
    propagation_progress            | propagation        | "moved": -1
    propagation_progress            | propagation        | "skipped": -1
    propagation_progress            | propagation        | "cents_after": 0.5
    propagation_skip_reason         | propagation_skip   | "reason": "guess"
    connection_move_elsewhere       | connection_move    | "from_connection_id": "00000000-0000-0000-0000-000000000000", "to_connection_id": "00000000-0000-0000-0000-000000000000"
    connection_move_status          | connection_move    | "status": "running"
    connection_move_status          | connection_move    | "ended_at": null
    connection_move_status          | connection_move    | "status": "lost"
    connection_move_moved           | connection_move    | "moved": -1
    connection_move_moved           | connection_move    | "skipped": -1
    connection_move_skip_reason     | connection_move_skip | "reason": "guess"
    customer_document               | customer           | "document_hash": "00"
    invoice_status                  | invoice            | "status": "lost"
    invoice_cycle                   | invoice            | "cycle": 0
    invoice_period                  | invoice            | "period_start": "2034-02-02", "period_end": "2034-02-01"
    invoice_method                  | invoice            | "payment_method": "cash"
    invoice_currency                | invoice            | "currency": "brl"
    invoice_pay_link_version        | invoice            | "pay_link_version": -1
    invoice_item_currency           | invoice_item       | "currency": "R$"
    invoice_installments            | invoice            | "payment_method": "pix", "installments": 2
    invoice_installments            | invoice            | "payment_method": "card", "installments": 1
    invoice_total                   | invoice            | "status": "draft", "total_cents": 1
    invoice_total                   | invoice            | "status": "ready", "total_cents": 0
    invoice_total                   | invoice            | "status": "issued", "total_cents": null
    invoice_total                   | invoice            | "status": "paid", "total_cents": -1
    invoice_charge                  | invoice            | "status": "draft", "gateway_invoice_id": "ch"
    invoice_charge                  | invoice            | "status": "issued", "gateway_invoice_id": null
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
    charge_stage                    | charge             | "stage": "lost"
    charge_confirmed                | charge             | "stage": "sending", "gateway_invoice_id": "ch"
    charge_confirmed                | charge             | "stage": "open", "gateway_invoice_id": null
    charge_confirmed                | charge             | "gateway_invoice_id": "ch", "confirmed_at": null
    charge_closed                   | charge             | "stage": "failed", "closed_at": null
    charge_closed                   | charge             | "stage": "sending", "closed_at": "2034-01-01"
    charge_error                    | charge             | "error_code": "x", "error_detail": null
    charge_amount                   | charge             | "amount_cents": 0
    charge_number                   | charge             | "number": 0
    charge_currency                 | charge             | "currency": "brl"
    charge_method                   | charge             | "payment_method": "cash"
    charge_installments             | charge             | "payment_method": "pix", "installments": 2
    charge_installments             | charge             | "payment_method": "card", "installments": 1
    payment_entry_kind              | payment_entry      | "kind": "gift"
    payment_entry_amount            | payment_entry      | "amount_cents": 0
    payment_entry_amount            | payment_entry      | "fee_cents": -1
    payment_entry_currency          | payment_entry      | "currency": "brl"
    payment_entry_occurred          | payment_entry      | "occurred_at": "1999-12-31T23:59:59Z"
    payment_entry_occurred          | payment_entry      | "occurred_at": "3000-01-01T00:00:01Z"
    payment_entry_occurred          | payment_entry      | "occurred_at": "infinity"
    payment_entry_method            | payment_entry      | "method": "gold"
    payment_entry_source            | payment_entry      | "source": "rumour"
    payment_entry_source            | payment_entry      | "source": "gateway"
    payment_entry_source            | payment_entry      | "kind": "payment", "method": null
    payment_entry_source            | payment_entry      | "gateway_charge_id": "ch"
    refund_request_stage            | refund_request     | "stage": "lost"
    refund_request_stage            | refund_request     | "stage": "sending", "sent_at": null
    refund_request_stage            | refund_request     | "stage": "accepted", "sent_at": null
    refund_request_stage            | refund_request     | "stage": "done", "payment_entry_id": null
    refund_request_stage            | refund_request     | "stage": "failed", "error_code": null
    refund_request_closed           | refund_request     | "stage": "planned", "closed_at": "2034-01-01"
    refund_request_closed           | refund_request     | "stage": "done", "closed_at": null
    refund_request_closed           | refund_request     | "stage": "done", "closed_at": "2034-01-01", "next_attempt_at": "2034-01-01"
    refund_request_closed           | refund_request     | "stage": "done", "closed_at": "2034-01-01", "next_attempt_at": null, "lease_until": "2034-01-01"
    refund_request_closed           | refund_request     | "stage": "planned", "closed_at": null, "next_attempt_at": "2034-01-01", "payment_entry_id": "019a0000-0000-7000-8000-000000000000"
    refund_request_closed           | refund_request     | "error_code": "x", "error_detail": null
    refund_request_amount           | refund_request     | "amount_cents": 0
    refund_request_amount           | refund_request     | "amount_cents": 3, "left_cents": 2
    refund_request_currency         | refund_request     | "currency": "brl"
    refund_request_source           | refund_request     | "connection_id": "019a0000-0000-7000-8000-000000000000", "gateway_charge_id": null
    refund_request_source           | refund_request     | "connection_id": null, "gateway_charge_id": null, "charge_id": null, "stage": "planned"
    refund_request_source           | refund_request     | "connection_id": null, "gateway_charge_id": null, "charge_id": "019a0000-0000-7000-8000-000000000000", "stage": "done"
    merchant_request_kind           | merchant_request   | "payment_method": "pix", "installments": null, "due_date": "2034-01-01", "amount_cents": 1, "at_most_open": false, "occurred_at": "2034-01-01", "method": "cash"
    merchant_request_terms          | merchant_request   | "payment_method": "cash", "installments": null, "due_date": "2034-01-01", "amount_cents": null, "at_most_open": null, "occurred_at": null, "method": null
    merchant_request_terms          | merchant_request   | "payment_method": null, "installments": null, "due_date": "2034-01-01", "amount_cents": null, "at_most_open": null, "occurred_at": null, "method": null
    merchant_request_installments   | merchant_request   | "payment_method": "pix", "installments": 2, "due_date": "2034-01-01", "amount_cents": null, "at_most_open": null, "occurred_at": null, "method": null
    merchant_request_installments   | merchant_request   | "payment_method": "card", "installments": 1, "due_date": "2034-01-01", "amount_cents": null, "at_most_open": null, "occurred_at": null, "method": null
    merchant_request_amount         | merchant_request   | "payment_method": null, "installments": null, "due_date": null, "amount_cents": 0, "at_most_open": false, "occurred_at": "2034-01-01", "method": "cash"
    merchant_request_amount         | merchant_request   | "payment_method": null, "installments": null, "due_date": null, "amount_cents": 1, "at_most_open": false, "occurred_at": "2034-01-01", "method": null
    merchant_request_method         | merchant_request   | "payment_method": null, "installments": null, "due_date": null, "amount_cents": 1, "at_most_open": false, "occurred_at": "2034-01-01", "method": "gold"
    lost_invoice_amount             | lost_invoice       | "amount_cents": 0
    product_mirror_done             | product_mirror     | "gateway_product_id": "p", "mirrored_at": null
    test_clock_status               | test_clock         | "status": "advancing"
    account_clock                   | account            | "mode": "live", "clock_offset": "1 s"
    account_clock                   | account            | "clock_offset": "-1 s"
    account_mode                    | account            | "mode": "demo"
    account_currency                | account            | "currency": "brl"
    account_pay_page_color          | account            | "pay_page_color": "red"
    account_pay_page_logo           | account            | "pay_page_logo": ""
    api_key_scopes                  | api_key            | "scopes": []
    api_key_scopes                  | api_key            | "scopes": ["all"]
    account_counter_not_negative    | account_counter    | "invoices_paid": -1
    account_counter_not_negative    | account_counter    | "customers": -1
    account_counter_not_negative    | account_counter    | "last_audit_sequence": -1
    audit_entry_actor               | audit_entry        | "actor_kind": "nobody", "actor_id": null
    audit_entry_actor               | audit_entry        | "actor_kind": "api_key", "actor_id": null, "request_id": "x"
    audit_entry_actor               | audit_entry        | "actor_kind": "engine", "actor_id": "019a0000-0000-7000-8000-000000000000"
    idempotency_key_answered        | idempotency_key    | "answer": null
    customer_erased                 | customer           | "email": null
    customer_erased                 | customer           | "external_ref": "erased-x"
    customer_erased                 | customer           | "email_key": null
    customer_erased                 | customer           | "erased_at": "2035-01-01"
    erasure_stage                   | erasure            | "stage": "begun"
    erasure_stage                   | erasure            | "visited_key": "x"
    erasure_stage                   | erasure            | "stage": "invoices", "visited_cycle": 1
    price_pull_counts               | price_pull         | "failures": 13, "attempts": 13
    price_pull_counts               | price_pull         | "failures": 2, "attempts": 1
    price_pull_deleted              | price_pull         | "calls_deleted": true, "closed_at": null
    retention_kind                  | retention          | "kind": "rows"
    retention_deleted               | retention          | "deleted_to": -1
    pricing_attempt_number          | pricing_attempt    | "attempt": 0
    pricing_attempt_outcome         | pricing_attempt    | "outcome": "fine"
    pricing_attempt_open            | pricing_attempt    | "outcome": null, "latency_ms": 1
    webhook_at_once                 | webhook            | "at_once": 65
    webhook_at_once                 | webhook            | "at_once": 0
    webhook_pushes                  | webhook            | "delivered": -1
    webhook_pushes                  | webhook            | "failed": -1
    webhook_failures                | webhook            | "failures": 1, "failing_since": null
    delivery_state                  | delivery           | "next_attempt_at": null, "delivered_at": null
    delivery_attempts               | delivery           | "attempts": 1, "failures": 2
    delivery_attempt_outcome        | delivery_attempt   | "outcome": "lost"
    pix_key_charge_amount           | pix_key_charge     | "amount_cents": 0
    pix_key_entry_kind              | pix_key_entry      | "kind": "fee"
    pix_key_entry_amount            | pix_key_entry      | "amount_cents": 0
    sandbox_charge_status           | sandbox_charge     | "status": "lost"
    sandbox_fault_call              | sandbox_fault      | "operation": "call"
    sandbox_fault_fault             | sandbox_fault      | "fault": "yawns"
    sandbox_fault_times             | sandbox_fault      | "times_left": -1
    sandbox_fault_length            | sandbox_fault      | "active_until": "2035-01-01"
    sandbox_fault_length            | sandbox_fault      | "times_left": null
""")  # noqa: E501 - wrapped rows would be hard to read

# The assignment `when` brings a row into a state. In this state, the trigger must refuse changes of `columns`.
# A blank `when` means every state, and `*` means every column.
FROZEN = rows("""
    trigger                | table            | when                       | columns
    event_kept             | event            |                            | *
    audit_entry_kept       | audit_entry      |                            | *
    payment_entry_kept     | payment_entry    |                            | *
    gateway_connection_frozen | gateway_connection | provider_account = 'one' | provider_account
    plan_version_kept      | plan_version     |                            | *
    plan_item_kept         | plan_item        |                            | *
    plan_discount_kept     | plan_discount    |                            | *
    subscription_terms_kept | subscription_terms |                          | *
    propagation_frozen     | propagation      | status = 'done'            | *
    propagation_frozen     | propagation      | status = 'running'         | account_id propagation_id plan_id plan_version_id
    propagation_frozen     | propagation      | status = 'running'         | version from_version created_at
    propagation_skip_kept  | propagation_skip |                            | *
    connection_move_frozen | connection_move  | status = 'done'            | *
    connection_move_frozen | connection_move  | status = 'running'         | account_id connection_move_id from_connection_id
    connection_move_frozen | connection_move  | status = 'running'         | to_connection_id created_at
    connection_move_skip_kept | connection_move_skip |                     | *
    subscription_start_kept | subscription    |                            | start_cycle
    delivery_attempt_kept  | delivery_attempt |                            | *
    invoice_moves          | invoice          |                            | account_id invoice_id subscription_id connection_id
    invoice_moves          | invoice          |                            | cycle period_start period_end due_date created_at plan_version_id
    invoice_moves          | invoice          |                            | payment_method installments total_cents issued_at
    invoice_moves          | invoice          |                            | gateway_invoice_id charge_due_date paid_at
    invoice_moves          | invoice          |                            | refunded_at canceled_at unexpected_payment_at currency
    invoice_item_frozen    | invoice_item     | pricing_status = 'priced'  | *
    invoice_item_frozen    | invoice_item     | pricing_status = 'skipped' | *
    invoice_item_frozen    | invoice_item     | pricing_status = 'pending' | account_id invoice_id position item_id months
    invoice_item_frozen    | invoice_item     | pricing_status = 'pending' | product_id product_name currency
    charge_moves           | charge           |                            | account_id charge_id invoice_id number created_at
    charge_moves           | charge           |                            | connection_id amount_cents currency
    charge_moves           | charge           |                            | payment_method installments gateway_invoice_id
    charge_moves           | charge           | gateway_invoice_id = 'ch'  | confirmed_at due_date sent_at
    charge_moves           | charge           | erased = true              | erased
    customer_frozen        | customer         | email = NULL, email_key = NULL, document_sealed = NULL, document_hash = NULL, name = '[erased]', external_ref = concat('erased-', customer_id) | email
    refund_request_moves   | refund_request   | erased = true              | erased
    refund_request_moves   | refund_request   |                            | account_id refund_id invoice_id amount_cents left_cents
    refund_request_moves   | refund_request   |                            | currency created_at charge_id connection_id
    refund_request_moves   | refund_request   |                            | gateway_charge_id reason
    refund_request_moves   | refund_request   | stage = 'done'             | closed_at payment_entry_id
    pricing_attempt_frozen | pricing_attempt  | outcome = 'ok'             | *
    pricing_attempt_frozen | pricing_attempt  | outcome = NULL             | account_id invoice_id position attempt by_hand url
    pricing_attempt_frozen | pricing_attempt  | outcome = NULL             | cap_cents request_body created_at
""")  # noqa: E501 - wrapped rows would be hard to read

# Triggers that refuse a DELETE. Some of them allow the retention of old rows to delete (D-246).
DELETE_REFUSED = rows("""
    trigger               | table
    event_deleted         | event
    audit_entry_kept      | audit_entry
    payment_entry_kept    | payment_entry
    plan_version_kept     | plan_version
    plan_item_kept        | plan_item
    plan_discount_kept    | plan_discount
    invoice_kept          | invoice
    invoice_item_kept     | invoice_item
    charge_kept           | charge
    refund_request_kept   | refund_request
    pricing_attempt_kept  | pricing_attempt
    delivery_kept         | delivery
    delivery_attempt_deleted | delivery_attempt
    subscription_terms_kept | subscription_terms
    propagation_kept      | propagation
    connection_move_kept  | connection_move
    erasure_kept          | erasure
""")

# Columns that are named like another table's key but have no foreign key, each with the reason.
NO_FOREIGN_KEY = rows("""
    column                       | because
    event.subscription_id        | an event is a snapshot and stays readable without the row
    event.invoice_id             | as above
    audit_entry.request_id       | the X-Request-Id of the request, which may be any text
    charge.charge_id             | our own id; `charge_id` of sandbox_charge is the id that the gateway gave its charge
    lost_invoice.invoice_id      | a restore found charges of an invoice that the database lacks
    pix_key_charge.invoice_id    | the adapter stores the engine's ids without reading its tables
    sandbox_charge.invoice_id    | the sandbox gateway stores the engine's ids without reading its tables
    sandbox_product.product_id   | as above
""")
