"""What push shows: the webhook, the attempts to deliver an event, a new secret (D-39, D-42)."""

from pydantic import Field

from fatura.api.models.shared import Shown, ShownInstant
from fatura.domain.delivery import DeliveryStatus, Outcome


class NewSecret(Shown):
    """A new integration secret (D-42)."""

    secret: str = Field(
        description="Signs every call to you; shown this once.",
        examples=["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"],
    )
    previousValidUntil: ShownInstant = Field(
        description="Until then the secret before it signs every call too, so that either one verifies it."
    )


class Webhook(Shown):
    """Where the account's events are pushed (D-39)."""

    url: str = Field(json_schema_extra={"format": "uri"}, examples=["https://merchant.example/events"])
    enabled: bool = Field(description="Register it again to enable it.")
    createdAt: ShownInstant
    disabledAt: ShownInstant | None = Field(
        description="Set when it answered 410, or had failed everything for five days."
    )


class DeliveryAttempt(Shown):
    """One attempt to push an event (D-39)."""

    attempt: int = Field(ge=1, examples=[1])
    url: str = Field(json_schema_extra={"format": "uri"}, examples=["https://merchant.example/events"])
    outcome: Outcome = Field(description="`delivered` is any 2xx within 10 seconds.")
    responseStatus: int | None = Field(description="null when no response came.", examples=[200])
    latencyMs: int = Field(ge=0, examples=[42])
    error: str | None = Field(description="What went wrong, in words.", examples=["answered 500"])
    responseBody: str | None = Field(
        max_length=1000, description="The first 1000 characters of a failure's answer."
    )
    createdAt: ShownInstant = Field(description="When it ended, on the account's clock.")


class Deliveries(Shown):
    """What became of an event that was to be pushed (D-39)."""

    status: DeliveryStatus = Field(
        description="`not_sent` when it was reported while no webhook was registered; it can be redelivered."
    )
    nextAttemptAt: ShownInstant | None = Field(
        description="When a `pending` event may be sent at the earliest; null before it is taken up, while the webhook "
        "is disabled, and when it is done."
    )
    data: list[DeliveryAttempt] = Field(description="Its newest 100 attempts, oldest first.")
