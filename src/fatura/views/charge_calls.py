"""The requests to a provider about a charge, and the provider's answers (D-267)."""

from typing import Annotated, Literal

from msgspec import Meta

from fatura.views.view import Count, Id, Instant, PageView, View

Operation = Literal["create", "find", "read", "cancel", "refund"]


class ChargeCallView(View):
    """A request to the provider, and its answer. Neither contains credentials, and bodies end after 64 KiB."""

    id: Id
    at: Annotated[Instant, Meta(description="When the request was sent.")]
    operation: Annotated[
        Operation,
        Meta(description="What Fatura wanted. An operation can need several requests."),
    ]
    method: Annotated[str, Meta(description="HTTP method.")]
    path: Annotated[str, Meta(description="Path and query, after the base URL of the provider's API.")]
    request_body: str | None
    response_status: Annotated[int | None, Meta(description="HTTP status; null when there was no answer.")]
    response_body: str | None
    failure: Annotated[str | None, Meta(description="Why there was no answer; null if there was one.")]
    latency_ms: Count


class ChargeCallPageView(PageView[ChargeCallView]):
    """A page of the requests about a charge, newest first."""
