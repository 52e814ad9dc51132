"""What connects a client, as answered: events, keys, gateways, the sandbox (spec 4.6, D-37 to D-46)."""

from typing import Any, Literal

from pydantic import Field

from fatura.api.models.shared import Shown, ShownDay, ShownId, ShownInstant, ShownTotalCents
from fatura.domain.credentials import Mode
from fatura.domain.events import CATALOGUE
from fatura.domain.offer import MAX_INSTALLMENTS, PaymentMethod
from fatura.domain.sandbox import SandboxFault, SandboxOperation


class Event(Shown):
    """One transition, as it was at that moment (D-37)."""

    id: ShownId
    sequence: int = Field(ge=1, description="1, 2, 3 ... per account, without gaps.", examples=[1])
    type: str = Field(json_schema_extra={"enum": list(CATALOGUE)}, examples=["invoice.paid"])
    createdAt: ShownInstant
    data: dict[str, Any] = Field(
        description="`invoice` (the detail without `pricingAttempts`) or `subscription`, with the `externalRef` of the "
        "customer, the subscription and the products; alerts add `error`. `webhook.disabled` has `webhook` and `error`."
    )


class Events(Shown):
    """A stretch of the account's events, oldest first (D-38)."""

    data: list[Event]
    nextCursor: str = Field(
        description="Send it as `cursor` to go on; it is there at the end too, so poll with it.",
        examples=["42"],
    )


class ApiKey(Shown):
    """An API key as lists show it (D-41)."""

    id: ShownId
    name: str = Field(min_length=1, max_length=120, examples=["checkout server"])
    prefix: str = Field(
        description="Start of the key, to tell keys apart.", examples=["rk_test_0tqrK9wzYtYl2bVnJd1sPc_8fKq"]
    )
    createdAt: ShownInstant
    lastUsedAt: ShownInstant | None = Field(description="To the minute; null when it was never used.")
    revokedAt: ShownInstant | None = Field(description="null while it works.")


class NewApiKey(ApiKey):
    """A new API key; `key` is shown this once (D-41)."""

    key: str = Field(description="The key itself, shown once.", examples=["rk_test_..."])


class Connection(Shown):
    """A connection to a payment gateway; its credentials are never shown (D-43)."""

    connectionId: ShownId
    provider: str = Field(examples=["sandbox"])
    label: str | None = Field(max_length=120, examples=["Main"])
    active: bool
    issuesCharges: bool = Field(description="Whether it can bill subscriptions.")
    methods: list[PaymentMethod] = Field(description="Payment methods it issues.")
    maxInstallments: int = Field(
        ge=1, le=MAX_INSTALLMENTS, description="Most card installments.", examples=[12]
    )
    productCatalog: bool = Field(description="Whether products are mirrored to it.")
    createdAt: ShownInstant


class Integration(Shown):
    """What a client's engineer needs to connect (spec 4.6)."""

    accountId: ShownId
    mode: Mode
    currency: str = Field(description="ISO 4217.", examples=["BRL"])
    gateways: list[Connection]


class TestClock(Shown):
    """A sandbox account's clock (D-45)."""

    now: ShownInstant
    status: Literal["ready", "advancing"]
    processed: dict[str, int] = Field(
        description="What the last advance did so far, by kind of work.", examples=[{"generation": 20}]
    )
    target: ShownInstant | None = Field(
        default=None, description="Where it is advancing to; left out when it stands."
    )


class SandboxCharge(Shown):
    """A charge in the sandbox gateway's books (D-46)."""

    chargeId: str = Field(description="The invoice's `gatewayInvoiceId`.", examples=["ch_0001"])
    invoiceId: ShownId
    connectionId: ShownId
    amountCents: ShownTotalCents
    paymentMethod: PaymentMethod
    installments: int | None = Field(ge=2, le=MAX_INSTALLMENTS, examples=[3])
    dueDate: ShownDay
    status: Literal["open", "paid", "refused", "canceled", "refunded"]


class SandboxProduct(Shown):
    """A product that was mirrored to the sandbox gateway's catalog (D-46)."""

    id: str = Field(
        description="Its id in the catalog.", examples=["prod_019a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f50"]
    )
    productId: ShownId
    connectionId: ShownId
    name: str
    description: str | None
    createdAt: ShownInstant


class QueuedFault(Shown):
    """A fault queued for the next calls of an operation (D-46)."""

    id: ShownId
    connectionId: ShownId
    operation: SandboxOperation
    fault: SandboxFault
    times: int = Field(ge=1, examples=[1])
