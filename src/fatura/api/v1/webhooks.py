"""The routes of push: the webhook, what became of an event, and pushing it again (spec 6, D-39)."""

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import EndpointUrl
from fatura.api.http.forms import Body
from fatura.api.http.replies import run, run_once
from fatura.api.http.route import Call
from fatura.api.models.webhooks import Deliveries, Webhook
from fatura.api.v1.events import EventId
from fatura.domain.errors import NOT_FOUND, WEBHOOK_DISABLED
from fatura.usecases.webhooks import webhooks

routes = Routes("Webhooks")
PATH = "/v1/integration/webhook"


class WebhookForm(Body):
    """Where events are to be pushed."""

    url: Annotated[str, EndpointUrl(), Field(description="Takes a POST for every event; answer it with 2xx.")]


@routes.put(PATH, answers=Webhook)
async def put_webhook(call: Call, body: WebhookForm) -> Response:
    """Register the webhook for the events from now on, change its URL, or enable it to go on where it stopped."""
    return await run(call, webhooks.register, body.url)


@routes.get(PATH, answers=Webhook, problems=[NOT_FOUND])
async def read_webhook(call: Call) -> Response:
    """Return the webhook."""
    return await run(call, webhooks.read)


@routes.delete(PATH, problems=[NOT_FOUND])
async def delete_webhook(call: Call) -> Response:
    """Forget the webhook; what was not delivered yet is given up. The stream keeps every event."""
    return await run(call, webhooks.remove)


@routes.get("/v1/events/{eventId}/deliveries", answers=Deliveries)
async def read_deliveries(call: Call, event_id: EventId) -> Response:
    """Return what became of an event that was to be pushed, attempt by attempt."""
    return await run(call, webhooks.read_deliveries, event_id)


@routes.post("/v1/events/{eventId}/redeliver", answers=Deliveries, status=202, problems=[WEBHOOK_DISABLED])
async def redeliver_event(call: Call, event_id: EventId) -> Response:
    """Push an event again at once, whatever became of it, and events from before the webhook too."""
    return await run_once(call, webhooks.redeliver, event_id)
