"""The webhook, and the attempts to deliver an event to it (D-39)."""

from typing import Annotated, Self

from msgspec import Meta

from fatura.domain.delivery import Attempt, DeliveryStatus, Outcome, Webhook
from fatura.domain.endpoint_url import without_path
from fatura.views.view import Count, Instant, Ordinal, Url, View, instant

WebhookUrl = Annotated[
    Url,
    Meta(
        description="API keys without the scope `admin`, and events, see `/...` instead of the path and the query, "
        "which may contain a token."
    ),
]


def _shown(url: str, *, shows_path: bool) -> str:
    return url if shows_path else without_path(url)


class WebhookView(View):
    """The URL to which the account's events are delivered (D-39)."""

    url: WebhookUrl
    enabled: Annotated[bool, Meta(description="Register a disabled webhook again to enable it.")]
    created_at: Instant
    disabled_at: Annotated[
        Instant | None,
        Meta(
            description="Set when the URL answered 410, or when all deliveries failed for five days, which must "
            "include ten minutes of real time."
        ),
    ]

    @classmethod
    def of(cls, webhook: Webhook, *, shows_path: bool) -> Self:
        url = _shown(webhook.url, shows_path=shows_path)
        return cls.from_attributes(webhook, url=url, enabled=webhook.disabled_at is None)


class AdvancedWebhookView(View):
    """What happened to the account's webhook while the test clock advanced (D-65)."""

    enabled: Annotated[bool, Meta(description="False if the URL answered 410, or failed for too long.")]
    delivered: Annotated[Count, Meta(description="Pushes that the URL answered with 2xx.")]
    failed: Annotated[
        Count,
        Meta(
            description="Pushes that failed, counting each retry. Their events stay pending; "
            "`GET /v1/events/{eventId}/deliveries` shows why they failed."
        ),
    ]


class DeliveryAttemptView(View):
    """One attempt to deliver an event (D-39)."""

    attempt: Ordinal
    url: WebhookUrl
    outcome: Annotated[Outcome, Meta(description="`delivered` is any 2xx within 10 seconds.")]
    response_status: Annotated[int | None, Meta(description="null when there was no response.")]
    latency_ms: Count
    error: Annotated[str | None, Meta(description="Reason of a failure, for people.")]
    response_body: Annotated[
        Annotated[str, Meta(max_length=1000)] | None,
        Meta(description="First 1000 characters of the answer of a failed attempt."),
    ]
    created_at: Annotated[Instant, Meta(description="When the attempt ended, on the account's clock.")]

    @classmethod
    def of(cls, attempt: Attempt, *, shows_path: bool) -> Self:
        return cls.from_attributes(
            attempt.result,
            attempt=attempt.number,
            url=_shown(attempt.url, shows_path=shows_path),
            created_at=instant(attempt.created_at),
        )


class DeliveriesView(View):
    """The delivery of an event and its attempts (D-39)."""

    status: Annotated[
        DeliveryStatus,
        Meta(
            description="`not_sent` if no webhook was registered when the event was emitted; it can be redelivered."
        ),
    ]
    next_attempt_at: Annotated[
        Instant | None,
        Meta(
            description="Earliest time of the next attempt of a `pending` event; null before its first attempt is "
            "scheduled, while the webhook is disabled, and when the delivery has ended."
        ),
    ]
    data: Annotated[list[DeliveryAttemptView], Meta(description="The newest 100 attempts, oldest first.")]
