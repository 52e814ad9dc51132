"""The integration of an account: API keys, the secret and gateway connections (spec 4.6, D-41 to D-43)."""

from collections.abc import Sequence
from typing import Annotated, Any, Self

from msgspec import Meta

from fatura.domain.account import Account
from fatura.domain.connection import Connection
from fatura.domain.credentials import ApiKey, Mode
from fatura.domain.offer import MAX_INSTALLMENTS, PaymentMethod
from fatura.views.view import Id, Instant, ListView, View


class ApiKeyView(View):
    """An API key as lists show it (D-41)."""

    id: Id
    name: Annotated[str, Meta(min_length=1, max_length=120)]
    prefix: Annotated[str, Meta(description="Start of the key, to tell keys apart.")]
    created_at: Instant
    last_used_at: Annotated[Instant | None, Meta(description="To the minute; null when never used.")]
    revoked_at: Annotated[Instant | None, Meta(description="null while the key works.")]

    @classmethod
    def of(cls, api_key: ApiKey, **more: Any) -> Self:
        return cls.from_attributes(api_key, id=str(api_key.api_key_id), **more)


class ApiKeyListView(ListView[ApiKeyView]):
    """All API keys, newest first."""


class NewApiKeyView(ApiKeyView):
    """A new API key (D-41)."""

    key: Annotated[str, Meta(description="The key itself, shown once.")]


class NewSecretView(View):
    """A new integration secret (D-42)."""

    secret: Annotated[str, Meta(description="Signs every call to you; shown once.")]
    previous_valid_until: Annotated[
        Instant,
        Meta(description="Until then, every call is signed with both secrets, and either one verifies it."),
    ]


class ConnectionView(View):
    """A connection to a payment gateway. Its credentials are never shown (D-43)."""

    connection_id: Id
    provider: str
    label: Annotated[str, Meta(max_length=120)] | None
    active: bool
    issues_charges: Annotated[bool, Meta(description="Whether it can bill subscriptions.")]
    methods: Annotated[Sequence[PaymentMethod], Meta(description="Payment methods that it can charge.")]
    max_installments: Annotated[int, Meta(ge=1, le=MAX_INSTALLMENTS, description="Most card installments.")]
    product_catalog: Annotated[bool, Meta(description="Whether products are mirrored to it.")]
    created_at: Instant

    @classmethod
    def of(cls, connection: Connection) -> Self:
        return cls.from_attributes(connection)


class ConnectionListView(ListView[ConnectionView]):
    """All gateway connections, oldest first."""


class ReceivedView(View):
    """The gateway's webhook is authentic and accepted (D-35)."""

    received: bool


class IntegrationView(View):
    """The account and its gateway connections (spec 4.6)."""

    account_id: Id
    mode: Mode
    currency: Annotated[str, Meta(description="ISO 4217.")]
    gateways: list[ConnectionView]

    @classmethod
    def of(cls, account: Account, gateways: list[ConnectionView]) -> Self:
        return cls.from_attributes(account, gateways=gateways)
