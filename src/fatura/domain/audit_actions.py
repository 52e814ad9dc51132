"""The catalogue of actions in the audit log. Each route that changes something declares one of them (D-63)."""

from fatura.domain.audit import AuditAction, Resource

ACCOUNT = Resource("account", frozenset({"currency", "keyId", "mode", "name", "suspendedAt"}))
API_KEY = Resource(
    "api_key", frozenset({"id", "name", "prefix", "scopes", "expiresAt", "createdAt", "revokedAt"})
)
CUSTOMER = Resource("customer", frozenset({"id", "hasDocument", "createdAt"}))
EVENT = Resource("event", frozenset({"type"}))
GATEWAY_CONNECTION = Resource(
    "gateway_connection",
    frozenset(
        {
            "active",
            "connectionId",
            "createdAt",
            "credentialsExpireAt",
            "duplicates",
            "fault",
            "id",
            "issuesCharges",
            "label",
            "maxInstallments",
            "methods",
            "minAmountCents",
            "minInstallmentCents",
            "operation",
            "payments",
            "productCatalog",
            "provider",
            "refunds",
            "seconds",
            "settings",
            "times",
            "toConnectionId",
        }
    ),
)
INTEGRATION_SECRET = Resource("integration_secret", frozenset({"previousValidUntil"}))
INVOICE = Resource(
    "invoice",
    frozenset(
        {
            "amountCents",
            "dueDate",
            "installments",
            "itemId",
            "method",
            "paidAt",
            "paymentMethod",
            "refundId",
            "status",
        }
    ),
)
PAY_PAGE = Resource("pay_page", frozenset({"color", "name"}))
PLAN = Resource(
    "plan",
    frozenset(
        {
            "archivedAt",
            "commitmentCycles",
            "createdAt",
            "defaultPaymentMethod",
            "fromVersion",
            "id",
            "items",
            "maxInstallments",
            "name",
            "periodMonths",
            "version",
        }
    ),
)
PRODUCT = Resource(
    "product",
    frozenset(
        {
            "archivedAt",
            "capCents",
            "createdAt",
            "description",
            "endpointUrl",
            "externalRef",
            "id",
            "monthlyPriceCents",
            "name",
            "pricingMode",
        }
    ),
)
SANDBOX_CHARGE = Resource(
    "sandbox_charge", frozenset({"amountCents", "chargeId", "invoiceId", "paidAt", "status", "won"})
)
SUBSCRIPTION = Resource(
    "subscription",
    frozenset(
        {
            "canceledAt",
            "chargeDay",
            "commitmentCycles",
            "customized",
            "cycleCount",
            "gatewayConnectionId",
            "id",
            "nextDueDate",
            "paymentMethod",
            "paymentMethodSource",
            "planId",
            "planVersion",
            "startedAt",
            "status",
            "terms",
        }
    ),
)
TEST_CLOCK = Resource("test_clock", frozenset({"now", "target"}))
WEBHOOK = Resource("webhook", frozenset({"createdAt", "disabledAt", "enabled", "url"}))

ACCOUNT_CREATE = AuditAction("account.create", ACCOUNT, "the account was opened")
ACCOUNT_RESTORE = AuditAction(
    "account.restore",
    ACCOUNT,
    "after a restore from a backup, billing stopped until the charges are compared with the gateways",
)
ACCOUNT_REENCRYPT = AuditAction(
    "account.reencrypt", ACCOUNT, "the account's secrets were encrypted with another key of the key ring"
)
ACCOUNT_SUSPEND = AuditAction(
    "account.suspend",
    ACCOUNT,
    "an operator stopped the account's billing, calls and API keys",
)
ACCOUNT_RESUME = AuditAction("account.resume", ACCOUNT, "an operator let a suspended account continue")
API_KEY_CREATE = AuditAction("api_key.create", API_KEY, "an API key was created")
API_KEY_REVOKE = AuditAction("api_key.revoke", API_KEY, "an API key was revoked")
CUSTOMER_ERASE = AuditAction("customer.erase", CUSTOMER, "the erasure of a customer's data began")
CUSTOMER_UPDATE = AuditAction("customer.update", CUSTOMER, "a customer's name, e-mail or document was set")
EVENT_REDELIVER = AuditAction("event.redeliver", EVENT, "another delivery of an event was requested")
GATEWAY_CONNECT = AuditAction("gateway_connection.create", GATEWAY_CONNECTION, "a gateway was connected")
GATEWAY_UPDATE = AuditAction(
    "gateway_connection.update", GATEWAY_CONNECTION, "a connection's label, credentials or settings were set"
)
GATEWAY_MOVE = AuditAction(
    "gateway_connection.move",
    GATEWAY_CONNECTION,
    "a move of a connection's subscriptions to another connection was requested",
)
GATEWAY_STATEMENT = AuditAction(
    "gateway_connection.import_statement", GATEWAY_CONNECTION, "payments of a bank statement were imported"
)
GATEWAY_FAULT = AuditAction(
    "gateway_connection.add_fault", GATEWAY_CONNECTION, "a fault of the sandbox gateway was queued"
)
GATEWAY_END_FAULTS = AuditAction(
    "gateway_connection.end_faults", GATEWAY_CONNECTION, "the queued faults of the sandbox gateway were ended"
)
SECRET_ROTATE = AuditAction("integration_secret.rotate", INTEGRATION_SECRET, "the secret was rotated")
INVOICE_CANCEL = AuditAction("invoice.cancel", INVOICE, "an invoice was canceled")
INVOICE_ENTER_VALUE = AuditAction("invoice.enter_value", INVOICE, "the value of an item was entered")
INVOICE_RECORD_PAYMENT = AuditAction("invoice.record_payment", INVOICE, "a manual payment was recorded")
INVOICE_REFUND = AuditAction("invoice.refund", INVOICE, "a refund was requested")
INVOICE_REISSUE = AuditAction("invoice.reissue", INVOICE, "an invoice gets another charge")
INVOICE_RETRY_ISSUANCE = AuditAction(
    "invoice.retry_issuance", INVOICE, "an attempt to issue an invoice was requested"
)
INVOICE_RETRY_PRICING = AuditAction(
    "invoice.retry_pricing", INVOICE, "calls for an invoice's prices were requested"
)
INVOICE_ROTATE_PAY_LINK = AuditAction(
    "invoice.rotate_pay_link", INVOICE, "an invoice's link to its pay page was replaced"
)
PAY_PAGE_UPDATE = AuditAction("pay_page.update", PAY_PAGE, "the look of the account's pay pages was set")
PLAN_ARCHIVE = AuditAction("plan.archive", PLAN, "a plan was archived")
PLAN_CREATE = AuditAction("plan.create", PLAN, "a plan was created")
PLAN_PROPAGATE = AuditAction(
    "plan.propagate", PLAN, "a move of a plan's subscribers to its current version was requested"
)
PLAN_PUBLISH = AuditAction("plan.publish", PLAN, "a new version of a plan was published")
PRODUCT_ARCHIVE = AuditAction("product.archive", PRODUCT, "a product was archived")
PRODUCT_CREATE = AuditAction("product.create", PRODUCT, "a product was created")
PRODUCT_UNARCHIVE = AuditAction("product.unarchive", PRODUCT, "an archived product was unarchived")
PRODUCT_UPDATE = AuditAction("product.update", PRODUCT, "a product's fields were set")
SANDBOX_PAY = AuditAction("sandbox_charge.pay", SANDBOX_CHARGE, "a sandbox charge was paid")
SANDBOX_REFUSE = AuditAction("sandbox_charge.refuse", SANDBOX_CHARGE, "a sandbox charge was refused")
SANDBOX_CANCEL = AuditAction("sandbox_charge.cancel", SANDBOX_CHARGE, "a sandbox charge was canceled")
SANDBOX_REFUND = AuditAction("sandbox_charge.refund", SANDBOX_CHARGE, "a sandbox charge was refunded")
SANDBOX_DISPUTE = AuditAction("sandbox_charge.dispute", SANDBOX_CHARGE, "a sandbox charge was disputed")
SANDBOX_CLOSE_DISPUTE = AuditAction(
    "sandbox_charge.close_dispute", SANDBOX_CHARGE, "the dispute of a sandbox charge was decided"
)
SANDBOX_DOUBLE = AuditAction("sandbox_charge.double", SANDBOX_CHARGE, "a second sandbox charge was made")
SANDBOX_FORGET = AuditAction("sandbox_charge.forget", SANDBOX_CHARGE, "a sandbox charge was forgotten")
SUBSCRIPTION_CANCEL = AuditAction("subscription.cancel", SUBSCRIPTION, "a subscription was canceled")
SUBSCRIPTION_CREATE = AuditAction("subscription.create", SUBSCRIPTION, "a subscription was created")
SUBSCRIPTION_CUSTOMIZE = AuditAction(
    "subscription.customize", SUBSCRIPTION, "a subscription got terms of its own"
)
TEST_CLOCK_ADVANCE = AuditAction("test_clock.advance", TEST_CLOCK, "the test clock began to advance")
TEST_CLOCK_STOP = AuditAction("test_clock.stop", TEST_CLOCK, "the test clock was stopped")
WEBHOOK_DISABLE = AuditAction("webhook.disable", WEBHOOK, "the engine disabled a failing webhook")
WEBHOOK_REGISTER = AuditAction("webhook.register", WEBHOOK, "the webhook was registered, or enabled again")
WEBHOOK_REMOVE = AuditAction("webhook.remove", WEBHOOK, "the webhook was removed")

CATALOGUE: tuple[AuditAction, ...] = tuple(
    each for each in list(globals().values()) if isinstance(each, AuditAction)
)
"""All actions above, in the order of their definitions."""
