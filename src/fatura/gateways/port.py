"""The interface between the engine and a payment provider's adapter (D-33 to D-35, D-43).

Implement `Gateway`, raise only the errors at the end of this file, and pass the tests in `tests/contract`.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, Protocol, Self
from uuid import UUID

from fatura.domain.charge import NO_PAY_DATA, PayData
from fatura.domain.offer import PaymentMethod
from fatura.domain.payments import EntryKind
from fatura.ids import bill_same_cycle

CALL_TIMEOUT_SECONDS = 20
"""The engine cancels a call after this time, so adapters need no timeout of their own."""


class ChargeState(StrEnum):
    """The state of a charge at the gateway."""

    OPEN = "open"
    """The payer can still pay the charge."""
    PAID = "paid"
    """The provider regards the charge as paid. Refunds and disputes do not change this state."""
    REFUSED = "refused"
    """The payment was declined; the payer can try again."""
    EXPIRED = "expired"
    """The provider closed the unpaid charge."""
    CANCELED = "canceled"
    """The charge was canceled, and can no longer be paid."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the provider offers with a connection's settings.

    `idempotency` decides what the engine does after a lost answer (D-33):
    - "key": the provider deduplicates by an idempotency key during `idempotency_ttl`; the engine repeats the request.
    - "natural_id": the provider deduplicates by the reference (see `ChargeRequest`) without a time limit; the engine
      repeats the request.
    - "lookup": the provider does not deduplicate, but finds charges by the reference; the engine looks the charge up.
    - "none": the provider neither deduplicates nor finds charges by reference; a person must decide.

    `refunds` says whether `refund_charge` works, and what the engine does after a lost answer (D-53):
    - "key": the provider makes one refund for each `refund_id`, however often the request is repeated. The engine looks
      the refund up, and repeats the request if the charge does not show the refund.
    - "lookup": the provider does not deduplicate, but `Charge.refunds` shows the refund. The engine looks the refund
      up before it sends the request, and never repeats the request. If the refund does not appear, the refund fails.
    - "none": `refund_charge` raises PermanentError.

    `lists_charges` is true if `charges_since` works. The nightly sweep (D-161) and a restore from a backup (D-123) need
    this call.
    `min_amount_cents` is the lowest amount of a charge. `min_installment_cents` is the lowest amount of one installment
    of a card payment. None means that there is no minimum. The engine sends no charge below a minimum (D-49).
    `polls_per_minute` limits how fast the engine polls the connection's charges; None means no limit (D-55).
    `credentials_expire_at` is when the provider stops accepting the credentials, or None if they have no end (D-268).
    """

    issues_charges: bool
    methods: tuple[PaymentMethod, ...]
    max_installments: int
    product_catalog: bool
    idempotency: Literal["key", "natural_id", "lookup", "none"]
    idempotency_ttl: timedelta | None = None
    lists_charges: bool = False
    refunds: Literal["key", "lookup", "none"] = "none"
    polls_per_minute: int | None = 1200
    min_amount_cents: int | None = None
    min_installment_cents: int | None = None
    credentials_expire_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """A merchant's connection with decrypted credentials, and the current time of the account's clock."""

    account_id: UUID
    connection_id: UUID
    settings: Mapping[str, Any] = field(repr=False)
    credentials: Mapping[str, Any] = field(repr=False)
    now: datetime


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a charge's description, which the payer sees."""

    description: str
    amount_cents: int


@dataclass(frozen=True, slots=True)
class Payer:
    """The customer; `document` is the tax id (CPF or CNPJ), if known."""

    customer_id: UUID
    name: str
    email: str
    document: str | None


@dataclass(frozen=True, slots=True)
class ChargeRequest:
    """A charge to create.

    `invoice_id` and `attempt` together are the reference. Store both with the charge, and derive the
    idempotency key from them. `installments` is set only if a card pays in several installments. When the
    request is first sent, `due_date` is today or later.
    """

    invoice_id: UUID
    attempt: int
    amount_cents: int
    currency: str
    method: PaymentMethod
    installments: int | None
    due_date: date
    lines: tuple[Line, ...]
    payer: Payer


@dataclass(frozen=True, slots=True)
class ChargeEntry:
    """A payment, a refund, or a step of a dispute of a charge (D-50).

    `reference` is the provider's own id of the entry. It never changes, and is unique among the connection's entries of
    one kind. The steps of one dispute have the same reference. `amount_cents` is gross, and `fee_cents` is the
    provider's fee, which is included in `amount_cents`.
    """

    kind: EntryKind
    reference: str
    amount_cents: int
    currency: str
    occurred_at: datetime
    fee_cents: int = 0


class RefundState(StrEnum):
    """The state of a refund that `refund_charge` asked for."""

    PENDING = "pending"
    """The provider works on the refund. No money has moved yet."""
    DONE = "done"
    """The money was returned."""
    FAILED = "failed"
    """The provider did not make the refund, and will not make it later."""


@dataclass(frozen=True, slots=True)
class Refund:
    """A refund that `refund_charge` asked for.

    `refund_id` is the engine's id. A refund that is DONE has the `reference` of its entry in `Charge.entries`. If it
    FAILED, `detail` says why. The merchant sees this text.
    """

    refund_id: UUID
    state: RefundState
    reference: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class RefundRequest:
    """A refund of a charge, in whole or in part.

    Store `refund_id` with the refund, and derive the idempotency key from it. The provider may show the `reason` to
    the payer.
    """

    refund_id: UUID
    charge_id: str
    amount_cents: int
    currency: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Charge:
    """A charge at the gateway, with the reference from its request.

    `entries` are all payments, refunds and disputes of the charge so far, including part payments of an open charge and
    payments of a canceled charge. `refunds` are the refunds that `refund_charge` asked for, in any state; leave them
    out if the provider does not return the `refund_id`. `due_date` is None if the provider does not return it. `pay`
    says how the payer can pay the charge, as far as the provider returns it. Only `create_charge` and `find_charges`
    must return all of it, because the engine keeps the pay data that it has stored. `created_at` is when the provider
    created the charge; the charges of `charges_since` must have it.
    """

    charge_id: str
    invoice_id: UUID
    attempt: int
    state: ChargeState
    amount_cents: int
    due_date: date | None = None
    pay: PayData = NO_PAY_DATA
    entries: tuple[ChargeEntry, ...] = ()
    refunds: tuple[Refund, ...] = ()
    created_at: datetime | None = None

    @property
    def is_payable(self) -> bool:
        return self.state in {ChargeState.OPEN, ChargeState.REFUSED}

    def of_invoice(self, invoice_id: UUID) -> Self:
        """Return a copy of the charge with this `invoice_id`, which must belong to the same cycle (D-181).

        After a restore from a backup, a cycle's invoice may have a new id; its charge at the gateway keeps the old id.
        Raises InvalidAnswerError if the charge has the reference of another cycle's invoice.
        """
        if not bill_same_cycle(self.invoice_id, invoice_id):
            raise InvalidAnswerError("the charge has the reference of another invoice")
        return replace(self, invoice_id=invoice_id)


@dataclass(frozen=True, slots=True)
class ProductMirror:
    """A product to copy to the gateway's catalog (spec 2.2)."""

    product_id: UUID
    name: str
    description: str | None


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook request as it was received, not verified yet. Header names are lower case; query and body are raw."""

    headers: Mapping[str, str]
    query: str
    body: bytes


@dataclass(frozen=True, slots=True)
class WebhookHint:
    """The charges that a verified webhook names; if None, the engine polls all of the connection's unpaid ones (D-35).

    A webhook with the `event_id` and charges of an earlier one is ignored. It must never identify two events (D-266).
    """

    charge_ids: tuple[str, ...] | None
    event_id: str | None = None


class Gateway(Protocol):
    """One connection to one provider.

    The engine creates a new instance for each batch of work. It calls the methods of the instance concurrently, outside
    any transaction. An instance must keep no state between calls. Every call may raise TransientError and
    AuthFailedError; other errors are named at each method. After an exception that is not a GatewayError, the engine
    treats the outcome as unknown.
    """

    def capabilities(self) -> Capabilities:
        """Return what these settings allow, without a call to the provider. Raises GatewaySettingsError."""
        ...

    async def check_credentials(self) -> str | None:
        """Check the credentials at the provider with a call that changes nothing.

        Return the provider's own id of the account that the credentials belong to. Return None only if the provider has
        no such id. Raises AuthFailedError.
        """
        ...

    async def create_charge(self, request: ChargeRequest) -> Charge:
        """Create a charge.

        Raises PermanentError when the provider refuses the data, and UnknownOutcomeError when the charge may exist.
        TransientError means that no charge was created.
        """
        ...

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        """Return all charges with this reference, including canceled charges, oldest first.

        Not called if `idempotency` is "none".
        """
        ...

    async def get_charge(self, charge_id: str) -> Charge:
        """Return a charge with its current state. Raises NotFoundError."""
        ...

    def charges_since(self, since: datetime) -> AsyncIterator[Charge | datetime]:
        """Yield the charges created at or after `since` (account's clock), in any state, ordered by `created_at`.

        Fetch a page only when the caller needs it. For a page without charges, yield an instant before which there are
        no further charges. Skip charges without a reference, because the engine did not create them.
        Raises PermanentError if `lists_charges` is false.
        """
        ...

    async def cancel_charge(self, charge_id: str) -> Charge:
        """Cancel a charge and return it with its new state; safe to repeat (D-27).

        The state is CANCELED only if the charge can no longer be paid. If the charge cannot be canceled, for example
        because it is paid, return it unchanged. Raises NotFoundError, PermanentError, UnknownOutcomeError.
        """
        ...

    async def refund_charge(self, request: RefundRequest) -> Charge:
        """Refund a charge, and return it with the refund in `Charge.refunds` (D-53).

        Raises NotFoundError, UnknownOutcomeError, and PermanentError if the provider refuses the refund.
        """
        ...

    def read_webhook(self, webhook: Webhook) -> WebhookHint:
        """Verify the provider's signature and return the charges that the webhook names.

        Make no call, because anyone can send webhooks in large numbers (D-35). Raises AuthFailedError if the signature
        is missing, wrong or too old.
        """
        ...

    async def mirror_product(self, product: ProductMirror) -> str:
        """Create or update a product in the provider's catalog, and return its id at the provider.

        The call can be repeated safely.
        Raises UnknownOutcomeError, and PermanentError if the data is refused or `product_catalog` is false.
        """
        ...


class GatewayFactory(Protocol):
    def __call__(self, config: ConnectionConfig) -> Gateway:
        """Return the adapter of a connection. Do not call the provider or validate settings."""
        ...


class GatewayError(Exception):
    """A failed call. Raise one of the subclasses, which decide what the engine does next.

    `text` may repeat what the provider says. The engine stores the text only with the charge or refund of the call,
    and an erasure removes it. Logs and the connection's health show only the error's class and `http_status` (D-229).
    """

    def __init__(self, text: str = "", *, http_status: int | None = None) -> None:
        super().__init__(text)
        self.http_status = http_status

    @property
    def log_text(self) -> str:
        return "" if self.http_status is None else f"HTTP {self.http_status}"


class TransientError(GatewayError):
    """The call had no effect, and a later call may succeed: no connection, HTTP 429, or 503 before any work (D-34)."""


class UnknownOutcomeError(GatewayError):
    """The call may have had an effect: timeout, reset or 5xx after sending. See `Capabilities.idempotency` (D-33)."""


class InvalidAnswerError(UnknownOutcomeError):
    """The provider's answer has a field of a wrong type or value. `gateways.answers` raises a subclass."""


class PermanentError(GatewayError):
    """The provider refuses the data; the same request will never succeed (D-34).

    `code` and `detail` come from the provider and are shown to the merchant.
    """

    def __init__(self, code: str, detail: str, *, http_status: int | None = None) -> None:
        super().__init__(f"{code}: {detail}", http_status=http_status)
        self.code = code
        self.detail = detail


class AuthFailedError(GatewayError):
    """The provider refuses the credentials. All work on the connection waits until somebody changes them (D-34).

    If the adapter itself knows which field is wrong, for example because a certificate has expired, `field` is the
    field's path and a message, as in GatewaySettingsError. The merchant sees the message.
    """

    def __init__(
        self, text: str = "", *, http_status: int | None = None, field: tuple[str, str] | None = None
    ) -> None:
        super().__init__(text, http_status=http_status)
        self.field = field


class NotFoundError(GatewayError):
    """The provider does not know the charge."""


class GatewaySettingsError(GatewayError):
    """Settings or credentials are invalid; `fields` pairs a path, such as `settings.methods`, with a message."""

    def __init__(self, fields: tuple[tuple[str, str], ...]) -> None:
        super().__init__(str(fields))
        self.fields = fields
