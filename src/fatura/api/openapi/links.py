"""The links of the OpenAPI document.

Each link says which value of an answer a client can pass as a parameter of another operation.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Lead:
    """Links from each operation in `answers` to each operation in `lead_to`.

    `found` maps each parameter of the linked operation to a JSON pointer, which says where the answer has the
    parameter's value. Links never fill request bodies, because client generators refuse a link whose `requestBody` is
    an object.
    """

    answers: tuple[str, ...]
    found: Mapping[str, str]
    lead_to: tuple[str, ...]


_PRODUCT = ("read_product", "patch_product", "archive_product", "unarchive_product", "pricing_test_product")
_PLAN = ("read_plan", "publish_plan", "archive_plan", "propagate_plan", "read_propagation")
_SUBSCRIPTION = (
    "read_subscription",
    "read_terms",
    "read_terms_history",
    "preview_subscription",
    "customize_subscription",
    "cancel_subscription",
    "list_invoices",
)
_CUSTOMER = ("read_customer", "patch_customer", "erase_customer", "list_subscriptions")
_INVOICE = (
    "read_invoice",
    "retry_pricing",
    "retry_issuance",
    "reissue_invoice",
    "record_payment",
    "list_payments",
    "refund_invoice",
    "rotate_pay_link",
    "cancel_invoice",
    "list_sandbox_charges",
)
_CHARGE = (
    "pay_sandbox_charge",
    "refuse_sandbox_charge",
    "cancel_sandbox_charge",
    "refund_sandbox_charge",
    "dispute_sandbox_charge",
    "close_sandbox_dispute",
    "double_sandbox_charge",
    "forget_sandbox_charge",
)
_CONNECTION = (
    "patch_gateway",
    "check_gateway",
    "end_sandbox_faults",
    "move_subscriptions",
    "read_move",
    "import_statement",
)
_EVENT = ("read_event", "read_deliveries", "redeliver_event")

LEADS: tuple[Lead, ...] = (
    Lead(("create_product",), {"productId": "/id"}, _PRODUCT),
    Lead(("list_products",), {"productId": "/data/0/id"}, _PRODUCT),
    Lead(("create_plan",), {"planId": "/id"}, _PLAN),
    Lead(("list_plans",), {"planId": "/data/0/id"}, _PLAN),
    Lead(("create_subscription",), {"subscriptionId": "/id"}, _SUBSCRIPTION),
    Lead(("list_subscriptions",), {"subscriptionId": "/data/0/id"}, _SUBSCRIPTION),
    Lead(("create_subscription", "read_subscription"), {"customerId": "/customer/id"}, _CUSTOMER),
    Lead(("list_customers",), {"customerId": "/data/0/id"}, (*_CUSTOMER, "list_invoices")),
    Lead(("list_invoices",), {"invoiceId": "/data/0/id"}, _INVOICE),
    Lead(("read_invoice",), {"invoiceId": "/id", "itemId": "/items/0/id"}, ("close_item",)),
    Lead(("read_invoice",), {"invoiceId": "/id", "chargeId": "/charges/0/id"}, ("list_charge_calls",)),
    Lead(("read_invoice",), {"subscriptionId": "/subscriptionId"}, ("read_subscription",)),
    Lead(("list_sandbox_charges",), {"chargeId": "/data/0/chargeId"}, _CHARGE),
    Lead(("list_sandbox_charges",), {"invoiceId": "/data/0/invoiceId"}, ("read_invoice",)),
    Lead(("list_events",), {"cursor": "/nextCursor"}, ("list_events",)),
    Lead(("list_events",), {"eventId": "/data/0/id"}, _EVENT),
    Lead(("list_audit_entries",), {"cursor": "/nextCursor"}, ("list_audit_entries",)),
    Lead(("create_api_key",), {"apiKeyId": "/id"}, ("revoke_api_key",)),
    Lead(("connect_gateway",), {"connectionId": "/connectionId"}, _CONNECTION),
    Lead(("list_gateways",), {"connectionId": "/data/0/connectionId"}, _CONNECTION),
    Lead(
        ("read_integration",),
        {"accountId": "/accountId", "connectionId": "/gateways/0/connectionId"},
        ("receive_gateway_webhook",),
    ),
    Lead(("put_pay_page",), {}, ("read_pay_page",)),
    Lead(("put_webhook",), {}, ("read_webhook", "delete_webhook")),
    Lead(("advance_test_clock",), {}, ("read_test_clock",)),
)


def links_of(operation_id: str) -> Schema:
    return {name: link for lead in LEADS if operation_id in lead.answers for name, link in _links(lead)}


def _links(lead: Lead) -> Iterator[tuple[str, Schema]]:
    parameters = {name: f"$response.body#{pointer}" for name, pointer in lead.found.items()}
    for target in lead.lead_to:
        yield target, {"operationId": target} | ({"parameters": parameters} if parameters else {})
