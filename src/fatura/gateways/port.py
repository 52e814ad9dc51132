"""What the engine asks of a payment provider, and the ways in which it can fail (D-33, D-34, D-43)."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, Literal, Protocol
from uuid import UUID

from fatura.domain.offer import PaymentMethod

CALL_TIMEOUT_SECONDS = 20
"""Deadline of one call to a gateway."""


class ChargeState(StrEnum):
    """What a gateway says of a charge."""

    OPEN = "open"
    PAID = "paid"
    REFUSED = "refused"
    EXPIRED = "expired"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a connection can do, as its provider and settings allow.

    `lists_charges`: it can say which charges were made since an instant, which a restore from a backup needs.
    """

    issues_charges: bool
    methods: tuple[PaymentMethod, ...]
    max_installments: int
    product_catalog: bool
    idempotency: Literal["key", "natural_id", "lookup", "none"]
    idempotency_ttl: timedelta | None = None
    lists_charges: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """One merchant's connection as an adapter needs it: settings, opened credentials, the account's clock."""

    account_id: UUID
    connection_id: UUID
    settings: Mapping[str, Any]
    credentials: Mapping[str, Any]
    now: datetime


@dataclass(frozen=True, slots=True)
class Line:
    """One line the payer reads."""

    description: str
    amount_cents: int


@dataclass(frozen=True, slots=True)
class Payer:
    """Who pays."""

    customer_id: UUID
    name: str
    email: str
    document: str | None


@dataclass(frozen=True, slots=True)
class ChargeRequest:
    """A charge to create; `invoice_id` and `attempt` together are its reference (D-33)."""

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
class Charge:
    """A charge as the gateway shows it; `paid_at` and `refunded` qualify a payment.

    `due_date` is null where the provider does not show it.
    """

    charge_id: str
    invoice_id: UUID
    attempt: int
    state: ChargeState
    amount_cents: int
    paid_at: datetime | None = None
    refunded: bool = False
    disputed: bool = False
    due_date: date | None = None


@dataclass(frozen=True, slots=True)
class ProductMirror:
    """A product to be shown in the gateway's own catalog (spec 2.2)."""

    product_id: UUID
    name: str
    description: str | None


@dataclass(frozen=True, slots=True)
class Webhook:
    """A request that says it comes from a provider, as it came: header names in lower case, the query, the raw body."""

    headers: Mapping[str, str]
    query: str
    body: bytes


@dataclass(frozen=True, slots=True)
class WebhookHint:
    """Which charges an authentic webhook is about, never what became of them (D-35); None: it does not say which."""

    charge_ids: tuple[str, ...] | None


class Gateway(Protocol):
    """One connection to one provider; made for each use, holds no state of its own."""

    provider: ClassVar[str]

    def capabilities(self) -> Capabilities:
        """Return what the connection can do with its settings. Raises GatewaySettingsError."""
        ...

    async def check_credentials(self) -> None:
        """Ask the provider whether the credentials work. Raises AuthFailedError, TransientError."""
        ...

    async def create_charge(self, request: ChargeRequest) -> Charge:
        """Create a charge. Raises any GatewayError; UnknownOutcomeError when it may exist all the same."""
        ...

    async def find_charge(self, invoice_id: UUID, attempt: int) -> Charge | None:
        """Look a charge up by its reference. Raises TransientError, AuthFailedError."""
        ...

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        """Return all charges with a reference, oldest first. Raises TransientError, AuthFailedError."""
        ...

    async def get_charge(self, charge_id: str) -> Charge:
        """Return a charge. Raises NotFoundError, TransientError, AuthFailedError."""
        ...

    def charges_since(self, since: datetime) -> AsyncIterator[Charge]:
        """Yield every charge that this connection made at or after an instant of its clock, oldest first.

        Whatever became of them, and whoever still knows them; pages are fetched as they are needed. What carries no
        reference of ours is left out. Raises TransientError, AuthFailedError between charges; PermanentError where
        `lists_charges` is false.
        """
        ...

    async def cancel_charge(self, charge_id: str) -> Charge:
        """Cancel a charge for good, and return it as it is afterwards; safe to repeat (D-27).

        CANCELED says that it can no longer be paid. One that the provider will not cancel comes back as it is (PAID).
        Raises NotFoundError, and any other GatewayError; UnknownOutcomeError when it may be canceled all the same.
        """
        ...

    def read_webhook(self, webhook: Webhook) -> WebhookHint:
        """Return what an authentic webhook is about. Asks nobody: strangers send them by the thousand (D-35).

        Raises AuthFailedError for whatever is not signed as the provider signs.
        """
        ...

    async def mirror_product(self, product: ProductMirror) -> str:
        """Create or update the product in the provider's catalog; safe to repeat. Returns its id there."""
        ...


class GatewayFactory(Protocol):
    """Makes a Gateway for one connection."""

    def __call__(self, config: ConnectionConfig) -> Gateway:
        """Bind the provider's adapter to a connection."""
        ...


class GatewayError(Exception):
    """Anything that went wrong between us and a gateway; the subclass says what follows from it."""


class TransientError(GatewayError):
    """Nothing was done, and later it may work: network down before sending, 429, 503 (D-34)."""


class UnknownOutcomeError(GatewayError):
    """The request may have taken effect: time-out, reset or 5xx after sending. Never resent blind (D-33)."""


class PermanentError(GatewayError):
    """The gateway refuses the data; the same request will never work (D-34)."""

    def __init__(self, code: str, detail: str) -> None:
        """Keep the provider's code and what it says."""
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class AuthFailedError(GatewayError):
    """The credentials are refused: the connection waits until they are mended (D-34)."""


class NotFoundError(GatewayError):
    """The gateway knows no such charge."""


class GatewaySettingsError(GatewayError):
    """The settings or credentials given for a connection break the provider's contract: `(path, message)` pairs."""

    def __init__(self, fields: tuple[tuple[str, str], ...]) -> None:
        """Keep every invalid field."""
        super().__init__(str(fields))
        self.fields = fields
