"""The catalog of error codes, and the fields of a problem document (spec 7, D-12, D-101)."""

from fatura.domain.errors import CATALOGUE
from tests.support.expect import UNKNOWN_ID
from tests.support.world import World, rows

CODES = rows("""
    code                                  | status
    engine.invalid_request                | 400
    engine.idempotency_key_required       | 400
    engine.unauthorized                   | 401
    engine.forbidden                      | 403
    engine.account_suspended              | 403
    engine.not_found                      | 404
    engine.method_not_allowed             | 405
    engine.pricing_mode_immutable         | 409
    engine.product_archived               | 409
    engine.plan_archived                  | 409
    engine.subscription_canceled          | 409
    engine.customer_in_use                | 409
    engine.customer_erased                | 409
    engine.propagation_running            | 409
    engine.item_not_pending               | 409
    engine.invoice_not_cancelable         | 409
    engine.invoice_not_reissuable         | 409
    engine.invoice_not_ready              | 409
    engine.invoice_not_payable            | 409
    engine.invoice_not_refundable         | 409
    engine.clock_conflict                 | 409
    engine.webhook_disabled               | 409
    engine.idempotency_in_progress        | 409
    engine.sandbox_charge_conflict        | 409
    engine.gateway_account_changed        | 409
    engine.gateway_move_running           | 409
    engine.gateway_connection_failing     | 409
    engine.last_key                       | 409
    engine.events_deleted                 | 410
    engine.payload_too_large              | 413
    engine.discount_on_variable_product   | 422
    engine.payment_method_unsupported     | 422
    engine.installments_unsupported       | 422
    engine.amount_unsupported             | 422
    engine.gateway_choice_required        | 422
    engine.gateway_connection_not_found   | 422
    engine.clock_limit                    | 422
    engine.too_many_connections           | 422
    engine.too_many_api_keys              | 422
    engine.quota_exceeded                 | 422
    engine.too_many_payments              | 422
    engine.too_many_refunds               | 422
    engine.idempotency_key_reused         | 422
    engine.amount_exceeds_open            | 422
    engine.amount_exceeds_paid            | 422
    engine.refund_unsupported             | 422
    engine.statement_unsupported | 422
    engine.refund_refused                 | 422
    engine.rate_limited                   | 429
    engine.internal                       | 500
    engine.unavailable                    | 503
    engine.account_recovering             | 503
""")


def test_each_code_has_one_status_and_one_title():
    """[D-12, D-100, D-101]"""
    assert [(each.type, str(each.status)) for each in CATALOGUE] == CODES
    assert len({each.title for each in CATALOGUE}) == len(CATALOGUE)


async def test_a_problem_has_at_most_six_fields(world: World):
    """[spec 7 problem+json]"""
    request_id = {"X-Request-Id": "r-1"}
    unknown = await world.get(f"/v1/products/{UNKNOWN_ID}", headers=request_id)
    invalid = await world.get("/v1/products?page=x", headers=request_id)

    assert unknown.headers["content-type"] == "application/problem+json"
    assert unknown.json == {
        "type": "engine.not_found",
        "title": "Not found",
        "status": 404,
        "detail": f"No product has the id {UNKNOWN_ID}.",
        "requestId": "r-1",
    }
    assert invalid.json == {
        "type": "engine.invalid_request",
        "title": "Invalid request",
        "status": 400,
        "detail": "The request has invalid fields.",
        "requestId": "r-1",
        "meta": {"fields": [{"path": "page", "message": "must be an integer from 1 to 1000000000"}]},
    }
