"""The routes of the webhook and its deliveries (spec 6, D-39)."""

from typing import Annotated, ClassVar

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import EndpointUrl
from fatura.api.http.forms import Body, Examples
from fatura.api.http.replies import answer_once, run
from fatura.api.http.route import Call
from fatura.api.v1.events import EventId
from fatura.domain import audit_actions, errors
from fatura.domain.credentials import Scope
from fatura.usecases.webhooks import webhooks
from fatura.views.samples.story import WEBHOOK_URL
from fatura.views.webhooks import DeliveriesView, WebhookView

routes = Routes("Webhooks", "Where events are delivered, and the deliveries of each event.")
PATH = "/v1/integration/webhook"


class WebhookForm(Body):
    """A webhook to register."""

    examples: ClassVar[Examples] = {"a webhook": {"url": WEBHOOK_URL}}

    url: Annotated[
        str,
        EndpointUrl(),
        Field(
            description="Fatura sends a POST request for every event to this URL. Answer each request with 2xx.",
            examples=[WEBHOOK_URL],
        ),
    ]


def _shows_path(call: Call) -> bool:
    """Return whether the API key may see the whole URL of the webhook, which may contain a token (D-64)."""
    return Scope.ADMIN in call.caller.scopes


@routes.put(
    PATH, "Register the webhook", answers=WebhookView, audit=audit_actions.WEBHOOK_REGISTER, scope=Scope.ADMIN
)
async def put_webhook(call: Call, body: WebhookForm) -> Response:
    """Register the webhook for new events, change its URL, or enable it again after Fatura disabled it.

    A webhook that you enable again continues with its first undelivered event.
    """
    return await run(call, webhooks.register, body.url)


@routes.get(PATH, "Read the webhook", answers=WebhookView, problems=[errors.NOT_FOUND])
async def read_webhook(call: Call) -> Response:
    """Return the webhook."""
    return await run(call, webhooks.read, shows_path=_shows_path(call))


@routes.delete(
    PATH,
    "Remove the webhook",
    audit=audit_actions.WEBHOOK_REMOVE,
    scope=Scope.ADMIN,
    problems=[errors.NOT_FOUND],
)
async def delete_webhook(call: Call) -> Response:
    """Remove the webhook and give up its pending deliveries. The events stay in the list of events."""
    return await run(call, webhooks.remove)


@routes.get("/v1/events/{eventId}/deliveries", "Read an event's deliveries", answers=DeliveriesView)
async def read_deliveries(call: Call, event_id: EventId) -> Response:
    """Return the state of an event's delivery, and its attempts."""
    return await run(call, webhooks.read_deliveries, event_id, shows_path=_shows_path(call))


@routes.post(
    "/v1/events/{eventId}/redeliver",
    "Redeliver an event",
    answers=DeliveriesView,
    audit=audit_actions.EVENT_REDELIVER,
    status=202,
    problems=[errors.WEBHOOK_DISABLED],
)
async def redeliver_event(call: Call, event_id: EventId) -> Response:
    """Deliver an event again now, even one that was delivered, given up, or emitted before the webhook existed.

    The answer shows the state of the delivery. A request that repeats an Idempotency-Key delivers nothing; its answer
    shows the current state.
    """
    redelivered = await webhooks.redeliver(
        call.deps, call.account, call.request, event_id, shows_path=_shows_path(call), draft=call.draft
    )
    return answer_once(redelivered.view, status=call.success_status, is_replayed=redelivered.is_replayed)
