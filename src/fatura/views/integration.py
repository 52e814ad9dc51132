"""The integration of an account: API keys, the secret and gateway connections (spec 4.6, D-41 to D-43)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Self

from msgspec import Meta

from fatura.domain.account import Account
from fatura.domain.connection import MAX_COUNTED, Connection, Reconciliation
from fatura.domain.credentials import ApiKey, Mode, Scope
from fatura.domain.gateway_health import HEALTHY, CallError, ConnectionHealth, HealthState
from fatura.domain.offer import MAX_INSTALLMENTS, PaymentMethod
from fatura.views.view import Count, Currency, Id, Instant, ListView, Ordinal, PageView, View, instant


class ApiKeyView(View):
    """An API key as lists show it (D-41, D-64)."""

    id: Id
    name: Annotated[str, Meta(min_length=1, max_length=120)]
    prefix: Annotated[str, Meta(description="Start of the key, to tell keys apart.")]
    scopes: Annotated[Sequence[Scope], Meta(min_length=1, description="What the key allows.")]
    created_at: Instant
    expires_at: Annotated[
        Instant | None,
        Meta(description="From then on, on the account's clock, the key is refused; null: it never expires."),
    ]
    last_used_at: Annotated[
        Instant | None, Meta(description="Last use, accurate to a minute; null when never used.")
    ]
    revoked_at: Annotated[Instant | None, Meta(description="null while the key is not revoked.")]

    @classmethod
    def of(cls, api_key: ApiKey, **more: Any) -> Self:
        return cls.from_attributes(api_key, id=str(api_key.api_key_id), **more)


class ApiKeyPageView(PageView[ApiKeyView]):
    """A page of API keys, newest first."""


class NewApiKeyView(ApiKeyView):
    """A new API key (D-41)."""

    key: Annotated[str, Meta(description="The text of the key, shown only in this answer.")]


class NewSecretView(View):
    """A new integration secret (D-42)."""

    secret: Annotated[
        str, Meta(description="Key that signs every call to your server; shown only in this answer.")
    ]
    previous_valid_until: Annotated[
        Instant,
        Meta(description="Until then, every call is signed with both secrets, and either one verifies it."),
    ]


class ConnectionErrorView(View):
    """Why the most recent failed call to a gateway failed (D-55)."""

    code: Annotated[
        str,
        Meta(
            description="`timeout`, `failed`, `unknown`, `credentials_refused` or `credentials_unreadable`; for a "
            "check also `refused` or `invalid`."
        ),
    ]
    detail: str

    @classmethod
    def of(cls, error: CallError) -> Self:
        return cls.from_attributes(error)


class ConnectionHealthView(View):
    """Whether the calls to a gateway succeed (D-55)."""

    state: Annotated[
        HealthState,
        Meta(
            description="`failing` after three failed calls in a row: the engine then makes only single probes, and "
            "calls that people request. Also `failing` if all polls of charges have failed for an hour, although other "
            "calls may succeed. `paused` while the connection is inactive."
        ),
    ]
    since: Annotated[
        Instant | None,
        Meta(
            description="`failing`: when the first failed call ended; `paused`: when it became inactive; `ok`: null."
        ),
    ]
    error: Annotated[
        ConnectionErrorView | None,
        Meta(
            description="The newest failure since a call succeeded, or since a poll succeeded if only polls fail. "
            "It may be set while `state` is `ok`."
        ),
    ]

    @classmethod
    def of(cls, connection: Connection, health: ConnectionHealth, *, paused_at: datetime | None) -> Self:
        since = health.shown_since
        state = HealthState.OK if since is None else HealthState.FAILING
        if not connection.active:
            state, since = HealthState.PAUSED, paused_at
        error = None if health.shown_error is None else ConnectionErrorView.of(health.shown_error)
        return cls(state=state, since=instant(since), error=error)


class ConnectionView(View):
    """A connection to a payment gateway. Its credentials are never shown (D-43)."""

    connection_id: Id
    provider: str
    label: Annotated[str, Meta(max_length=120)] | None
    active: bool
    issues_charges: Annotated[bool, Meta(description="Whether the connection can create charges.")]
    methods: Annotated[
        Sequence[PaymentMethod], Meta(description="Payment methods that the connection can charge.")
    ]
    max_installments: Annotated[
        int, Meta(ge=1, le=MAX_INSTALLMENTS, description="Highest number of card installments.")
    ]
    min_amount_cents: Annotated[
        Ordinal | None, Meta(description="Lowest amount of a charge; null if there is no minimum.")
    ]
    min_installment_cents: Annotated[
        Ordinal | None,
        Meta(description="Lowest amount of each installment of a card; null if there is no minimum."),
    ]
    credentials_expire_at: Annotated[
        Instant | None,
        Meta(
            description="When the provider stops accepting the credentials, for example the end of a client "
            "certificate; null if they have no end."
        ),
    ]
    product_catalog: Annotated[
        bool, Meta(description="Whether Fatura copies products to the gateway's catalog.")
    ]
    refunds: Annotated[bool, Meta(description="Whether Fatura can refund payments through the gateway.")]
    settings: Annotated[
        Mapping[str, Any],
        Meta(
            description="The provider's settings that were sent, without the secret ones.",
            extra_json_schema={"additionalProperties": True},
        ),
    ]
    created_at: Instant
    health: ConnectionHealthView

    @classmethod
    def of(
        cls,
        connection: Connection,
        health: ConnectionHealth = HEALTHY,
        *,
        settings: Mapping[str, Any],
        paused_at: datetime | None = None,
    ) -> Self:
        shown = ConnectionHealthView.of(connection, health, paused_at=paused_at)
        return cls.from_attributes(connection, settings=settings, health=shown)


class ReconciliationView(View):
    """How far Fatura has compared its charges with those of the gateway (D-269)."""

    compared_to: Annotated[
        Instant,
        Meta(
            description="Until when the newest complete nightly comparison covers; before the first one, when the "
            "connection was made."
        ),
    ]
    next_comparison_at: Annotated[
        Instant, Meta(description="When the nightly comparison begins or continues.")
    ]
    poll_due_since: Annotated[
        Instant | None,
        Meta(description="Since when the poll that has waited longest is due; null if no poll waits."),
    ]
    polls_allowed_at: Annotated[
        Instant | None,
        Meta(
            description="When the provider's limit of calls allows the next poll; null if it allows one now."
        ),
    ]
    unknown_charges: Annotated[
        Count,
        Meta(
            le=MAX_COUNTED,
            description="Charges of which Fatura does not know whether the gateway created them, because the answer "
            f"was lost; at most {MAX_COUNTED} are counted.",
        ),
    ]
    unmatched_charges: Annotated[
        Count,
        Meta(
            le=MAX_COUNTED,
            description="Charges at the gateway that Fatura watches although they are not the charge of an invoice, "
            f"such as second charges; at most {MAX_COUNTED} are counted.",
        ),
    ]

    @classmethod
    def of(cls, found: Reconciliation) -> Self:
        return cls.from_attributes(found)


class IntegratedConnectionView(ConnectionView):
    """A connection to a payment gateway, with the progress of its reconciliation."""

    reconciliation: ReconciliationView

    @classmethod
    def with_reconciliation(cls, connection: ConnectionView, found: Reconciliation) -> Self:
        return cls.from_attributes(connection, reconciliation=ReconciliationView.of(found))


class ConnectionListView(ListView[ConnectionView]):
    """All gateway connections, oldest first."""


class ReceivedView(View):
    """The gateway's webhook is authentic and accepted (D-35)."""

    received: bool


class IntegrationView(View):
    """The account and its gateway connections (spec 4.6)."""

    account_id: Id
    mode: Mode
    currency: Currency
    gateways: list[IntegratedConnectionView]

    @classmethod
    def of(cls, account: Account, gateways: list[IntegratedConnectionView]) -> Self:
        return cls.from_attributes(account, gateways=gateways)
