"""The payment providers that an account can connect, and the check of a connection (D-259)."""

from collections.abc import Sequence
from typing import Annotated, Self

from msgspec import Meta

from fatura.domain.gateway_health import CallError
from fatura.domain.provider_field import FieldType, ProviderField
from fatura.views.integration import ConnectionErrorView, ConnectionView
from fatura.views.view import ListView, View


class ProviderFieldView(View):
    """A setting or a credential of a provider's connections."""

    name: str
    description: str
    type: Annotated[FieldType, Meta(description="JSON type of the value.")]
    required: bool
    secret: Annotated[bool, Meta(description="Whether Fatura encrypts the value and never shows it.")]

    @classmethod
    def of(cls, field: ProviderField) -> Self:
        return cls(
            name=field.name,
            description=field.means,
            type=field.type,
            required=field.is_required,
            secret=field.is_secret,
        )


class ProviderView(View):
    """A payment provider that the account can connect."""

    provider: str
    settings: Sequence[ProviderFieldView]
    credentials: Sequence[ProviderFieldView]
    returns_money: Annotated[
        bool,
        Meta(
            description="Whether a refund returns the money; false: you return it, and Fatura records the refund."
        ),
    ]

    @classmethod
    def of(
        cls,
        provider: str,
        *,
        settings: Sequence[ProviderField],
        credentials: Sequence[ProviderField],
        returns_money: bool,
    ) -> Self:
        return cls(
            provider=provider,
            settings=list(map(ProviderFieldView.of, settings)),
            credentials=list(map(ProviderFieldView.of, credentials)),
            returns_money=returns_money,
        )


class ProviderListView(ListView[ProviderView]):
    """All providers that the account can connect, by name."""


class ConnectionCheckView(View):
    """The result of checking a connection's credentials at the provider."""

    error: Annotated[
        ConnectionErrorView | None,
        Meta(description="Why the check failed; null: the provider accepts the credentials."),
    ]
    connection: ConnectionView

    @classmethod
    def of(cls, connection: ConnectionView, error: CallError | None) -> Self:
        return cls(error=None if error is None else ConnectionErrorView.of(error), connection=connection)
