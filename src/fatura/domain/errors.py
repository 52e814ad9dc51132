"""The catalogue of errors in API answers. Each error has a stable code, `engine.*` (spec 7, D-12)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Problem:
    """One kind of error (spec 7)."""

    type: str
    status: int
    title: str
    when: str


INVALID_REQUEST = Problem(
    "engine.invalid_request",
    400,
    "Invalid request",
    "A header, the query or the body is invalid; `meta.fields` lists every invalid field.",
)
IDEMPOTENCY_KEY_REQUIRED = Problem(
    "engine.idempotency_key_required",
    400,
    "Idempotency-Key required",
    "The route requires the `Idempotency-Key` header, and it is missing.",
)
UNAUTHORIZED = Problem(
    "engine.unauthorized",
    401,
    "Unauthorized",
    "The API key is missing, malformed, unknown, revoked or expired.",
)
FORBIDDEN = Problem(
    "engine.forbidden",
    403,
    "Forbidden",
    "The API key lacks the scope of the route, which is `meta.scope` (D-64).",
)
ACCOUNT_SUSPENDED = Problem(
    "engine.account_suspended",
    403,
    "Account suspended",
    "The operator of this Fatura has suspended the account; ask the operator (D-242).",
)
NOT_FOUND = Problem(
    "engine.not_found",
    404,
    "Not found",
    "The route or the resource does not exist, or the resource belongs to another account.",
)
METHOD_NOT_ALLOWED = Problem(
    "engine.method_not_allowed", 405, "Method not allowed", "The route does not accept this method."
)
PRICING_MODE_IMMUTABLE = Problem(
    "engine.pricing_mode_immutable",
    409,
    "Pricing mode is immutable",
    "The change contains the pricing mode, which is fixed at creation, or a field that only the other mode has.",
)
PRODUCT_ARCHIVED = Problem(
    "engine.product_archived", 409, "Product archived", "The terms contain an archived product."
)
PLAN_ARCHIVED = Problem(
    "engine.plan_archived",
    409,
    "Plan archived",
    "The plan is archived: it takes no new versions or subscribers.",
)
SUBSCRIPTION_CANCELED = Problem(
    "engine.subscription_canceled",
    409,
    "Subscription canceled",
    "The subscription is canceled, which is final: it has no next invoice.",
)
CUSTOMER_IN_USE = Problem(
    "engine.customer_in_use",
    409,
    "Customer in use",
    "The customer has an active subscription, an open invoice or a call in progress; `meta` lists them, and `detail` "
    "says what to do before the customer can be erased.",
)
CUSTOMER_ERASED = Problem(
    "engine.customer_erased",
    409,
    "Customer erased",
    "The customer is erased: it cannot be changed, subscribed or charged.",
)
PROPAGATION_RUNNING = Problem(
    "engine.propagation_running",
    409,
    "Propagation running",
    "Another propagation of the plan is running, and the request would leave out some of its subscribers.",
)
ITEM_NOT_PENDING = Problem(
    "engine.item_not_pending", 409, "Item not pending", "The invoice item does not wait for a value."
)
INVOICE_NOT_CANCELABLE = Problem(
    "engine.invoice_not_cancelable",
    409,
    "Invoice not cancelable",
    "The invoice is paid, canceled or being issued, another request for the invoice is in progress or came later, or "
    "the gateway did not confirm the cancellation.",
)
INVOICE_NOT_REISSUABLE = Problem(
    "engine.invoice_not_reissuable",
    409,
    "Invoice not reissuable",
    "The invoice's state allows no reissue, it has 50 charges, another request for the invoice is in progress or came "
    "later, or the gateway did not confirm a cancellation.",
)
INVOICE_NOT_READY = Problem(
    "engine.invoice_not_ready",
    409,
    "Invoice not ready",
    "Only a `ready` invoice without a pending refund can be issued.",
)
INVOICE_NOT_PAYABLE = Problem(
    "engine.invoice_not_payable",
    409,
    "Invoice not payable",
    "The invoice's state allows no payment, another request for the invoice is in progress or came later, or the "
    "gateway did not confirm that its charge is canceled.",
)
INVOICE_NOT_REFUNDABLE = Problem(
    "engine.invoice_not_refundable",
    409,
    "Invoice not refundable",
    "Nothing was paid, the payments are disputed, another refund is pending, the invoice is being issued, a reissue "
    "or a payment waits for the cancellation of the charge, or the connection is inactive.",
)
CLOCK_CONFLICT = Problem(
    "engine.clock_conflict",
    409,
    "Clock conflict",
    "The test clock is already advancing or would go back, its advance was stopped, or the account is live.",
)
WEBHOOK_DISABLED = Problem(
    "engine.webhook_disabled",
    409,
    "Webhook disabled",
    "No webhook is registered, or it is disabled; `detail` says how to enable it.",
)
IDEMPOTENCY_IN_PROGRESS = Problem(
    "engine.idempotency_in_progress",
    409,
    "Request in progress",
    "Another request with this Idempotency-Key is still in progress; repeat the request after `Retry-After`.",
)
SANDBOX_CHARGE_CONFLICT = Problem(
    "engine.sandbox_charge_conflict",
    409,
    "Sandbox charge conflict",
    "The status of the sandbox charge does not allow the change (D-101).",
)
GATEWAY_ACCOUNT_CHANGED = Problem(
    "engine.gateway_account_changed",
    409,
    "Other account at the provider",
    "The credentials belong to another account at the provider; create another connection for it (D-59).",
)
GATEWAY_MOVE_RUNNING = Problem(
    "engine.gateway_move_running",
    409,
    "Move between gateways running",
    "Subscriptions are being moved from or to one of the connections; wait until that move has ended (D-59).",
)
GATEWAY_CONNECTION_FAILING = Problem(
    "engine.gateway_connection_failing",
    409,
    "Gateway connection failing",
    "The calls to the gateway of the connection fail, so no subscription can be moved to it (D-55, D-59).",
)
LAST_KEY = Problem(
    "engine.last_key",
    409,
    "Last key",
    "No other API key with the scope `admin` works; create one before you revoke this key (D-64).",
)
EVENTS_DELETED = Problem(
    "engine.events_deleted",
    410,
    "Events deleted",
    "Events after the cursor were deleted, because they are old; the stream is complete from `meta.completeFrom` on "
    "(D-248).",
)
PAYLOAD_TOO_LARGE = Problem(
    "engine.payload_too_large", 413, "Payload too large", "The request body is larger than 256 KiB."
)
DISCOUNT_ON_VARIABLE_PRODUCT = Problem(
    "engine.discount_on_variable_product",
    422,
    "Discount on a variable product",
    "A discount schedule is set on a product with a price endpoint.",
)
PAYMENT_METHOD_UNSUPPORTED = Problem(
    "engine.payment_method_unsupported",
    422,
    "Payment method unsupported",
    "No usable connection supports the payment method; `meta.options` lists what each connection supports.",
)
INSTALLMENTS_UNSUPPORTED = Problem(
    "engine.installments_unsupported",
    422,
    "Installments unsupported",
    "The connection supports fewer installments, or each one is below the minimum; `meta.gatewayMax` is the maximum.",
)
AMOUNT_UNSUPPORTED = Problem(
    "engine.amount_unsupported",
    422,
    "Amount unsupported",
    "A charge would be below the gateway's minimum, which is `meta.minAmountCents`.",
)
GATEWAY_CHOICE_REQUIRED = Problem(
    "engine.gateway_choice_required",
    422,
    "Gateway choice required",
    "Several connections can bill the subscription; send `gatewayConnectionId` with one of `meta.options`.",
)
GATEWAY_CONNECTION_NOT_FOUND = Problem(
    "engine.gateway_connection_not_found",
    422,
    "Gateway connection not found",
    "The gateway connection is missing, unknown or inactive, or cannot issue charges.",
)
CLOCK_LIMIT = Problem(
    "engine.clock_limit",
    422,
    "Clock limit",
    "A test clock cannot move further than 30 years ahead of real time, which is `meta.latest` (D-214).",
)
TOO_MANY_CONNECTIONS = Problem(
    "engine.too_many_connections",
    422,
    "Too many gateway connections",
    "The account has as many gateway connections as it may have, which is `meta.limit`.",
)
TOO_MANY_API_KEYS = Problem(
    "engine.too_many_api_keys",
    422,
    "Too many API keys",
    "The account has `meta.limit` API keys that are neither revoked nor expired; revoke one of them (D-189).",
)
QUOTA_EXCEEDED = Problem(
    "engine.quota_exceeded",
    422,
    "Quota exceeded",
    "The account stores as much of `meta.quota` as it may, which is `meta.limit`; `detail` says what to do (D-245).",
)
TOO_MANY_PAYMENTS = Problem(
    "engine.too_many_payments",
    422,
    "Too many payments",
    "The invoice has `meta.limit` manual payments. Only a payment that covers the rest of the total is accepted.",
)
TOO_MANY_REFUNDS = Problem(
    "engine.too_many_refunds",
    422,
    "Too many refunds",
    "The invoice has `meta.limit` refunds. A further refund must return all that is left, which is "
    "`meta.refundableCents`.",
)
IDEMPOTENCY_KEY_REUSED = Problem(
    "engine.idempotency_key_reused",
    422,
    "Idempotency-Key reused",
    "The key was used before, with another route or body.",
)
AMOUNT_EXCEEDS_OPEN = Problem(
    "engine.amount_exceeds_open",
    422,
    "Amount exceeds what is open",
    "The payment is higher than the open amount of the invoice, which is `meta.openCents`.",
)
AMOUNT_EXCEEDS_PAID = Problem(
    "engine.amount_exceeds_paid",
    422,
    "Amount exceeds what was paid",
    "The refund is higher than what one refund can return; `meta.parts` lists what can be refunded.",
)
REFUND_UNSUPPORTED = Problem(
    "engine.refund_unsupported",
    422,
    "Refund unsupported",
    "The gateway connection makes no refunds; refund the payment in the gateway instead.",
)
STATEMENT_UNSUPPORTED = Problem(
    "engine.statement_unsupported",
    422,
    "Statement unsupported",
    "The connection's provider reports payments itself, and takes no bank statements (D-257).",
)
REFUND_REFUSED = Problem(
    "engine.refund_refused",
    422,
    "Refund refused",
    "The gateway did not make the refund; `meta.code` is the reason, often the gateway's.",
)
RATE_LIMITED = Problem(
    "engine.rate_limited",
    429,
    "Too many requests",
    "Too many requests of this account, too many that are open or wait for third parties, too many webhooks of this "
    "connection, or too many refused webhooks or open requests from this address; continue after `Retry-After`.",
)
INTERNAL = Problem(
    "engine.internal",
    500,
    "Internal error",
    "The engine failed unexpectedly; search its logs for the `requestId`.",
)
UNAVAILABLE = Problem(
    "engine.unavailable",
    503,
    "Temporarily unavailable",
    "The database is unavailable or busy, the server has too many calls open, its clock is wrong, or it is stopping; "
    "repeat the request, with the same Idempotency-Key, after `Retry-After`.",
)
ACCOUNT_RECOVERING = Problem(
    "engine.account_recovering",
    503,
    "Account recovering",
    "The database was restored from a backup; the account's charges are being reconciled with its gateways (D-123).",
)

CATALOGUE: tuple[Problem, ...] = tuple(each for each in list(globals().values()) if isinstance(each, Problem))
"""All problems above, in the order of their definitions."""


class EngineError(Exception):
    """An error with a code of the catalogue; the API sends it as problem+json (spec 7)."""

    def __init__(
        self,
        problem: Problem,
        detail: str,
        *,
        meta: Mapping[str, Any] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        """`detail` says what happened and what to do next; it must be safe to show to end users."""
        super().__init__(f"{problem.type}: {detail}")
        self.problem = problem
        self.detail = detail
        self.meta = meta
        self.retry_after_seconds = retry_after_seconds

    @property
    def log_text(self) -> str:
        return self.problem.type


MAX_LISTED = 1000
"""Maximum number of invalid fields that a problem lists (D-104)."""
MAX_PATH_CHARS = 1000


def invalid_fields(*fields: tuple[str, str]) -> EngineError:
    """Return a 400 that lists the invalid fields given as `(path, message)` pairs (D-11, D-104)."""
    listed = [{"path": path[:MAX_PATH_CHARS], "message": message} for path, message in fields[:MAX_LISTED]]
    return EngineError(INVALID_REQUEST, "The request has invalid fields.", meta={"fields": listed})


def account_recovering() -> EngineError:
    """Return the 503 for an account whose charges are being compared with its gateways after a restore (D-123)."""
    detail = "The account's charges are being reconciled with its gateways; try again in a few minutes."
    return EngineError(ACCOUNT_RECOVERING, detail, retry_after_seconds=60)


def account_suspended() -> EngineError:
    """Return the 403 for an account that an operator has suspended (D-242)."""
    detail = (
        "The account is suspended: its API keys do not work. Ask the operator of this Fatura to resume it, or to erase "
        "a customer."
    )
    return EngineError(ACCOUNT_SUSPENDED, detail)


MAX_SHOWN_ID_CHARS = 100
"""Maximum length of an unknown id in the error detail, so that a long id does not make a long answer."""


def not_found(resource: str, sought: object) -> EngineError:
    """Return the 404. Unknown ids, malformed ids and ids of other accounts get the same error (spec 5 rule 4, D-11)."""
    return EngineError(NOT_FOUND, f"No {resource} has the id {str(sought)[:MAX_SHOWN_ID_CHARS]}.")


def require(record: T | None, resource: str, *, id_: object) -> T:
    """Return the record. Raises EngineError: `engine.not_found` if `record` is None."""
    if record is None:
        raise not_found(resource, id_)
    return record
