"""The address that payment providers call without an API key. The content of a call is not trusted (D-35)."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from fastapi import Request
from starlette.responses import Response

from fatura.api.http import body
from fatura.api.http.authentication import Gate, content_length
from fatura.api.http.client_address import client_network
from fatura.api.http.fields import read_uuid
from fatura.api.http.replies import answer
from fatura.api.http.route import Documentation, OpenRoute
from fatura.domain import errors
from fatura.domain.errors import EngineError
from fatura.usecases.reconciliation import gateway_webhooks
from fatura.usecases.reconciliation.gateway_webhooks import WEBHOOK_MAX_BYTES, Webhook
from fatura.views.integration import ReceivedView
from fatura.views.samples.story import CHARGE_ID

TAG = ("Gateways", "The address to which payment providers send their webhooks.")


async def receive_gateway_webhook(request: Request) -> Response:
    """Enter this address in the payment provider's dashboard.

    Fatura verifies the provider's signature. Then Fatura polls the charges that the webhook names. If the webhook names
    none, Fatura polls all unpaid charges of the connection. Fatura uses nothing else of the webhook, and ignores copies
    of one event. An unknown address and a wrong signature get the same answer.

    For a sandbox connection, the body is `{"chargeId": "...", "id": "..."}`. The header `X-Sandbox-Signature` has the
    form of `X-Service-Signature`, and its key is the connection's setting `webhookSecret`. `id` is the id of the event.
    Without `id`, Fatura does not recognize copies.
    """
    gate: Gate = request.app.state.gate
    with _refusals_counted(gate, request):
        account_id, connection_id = _ids(request)
        gateway_webhooks.check_ids(gate.deps, account_id, connection_id)
    raw = await body.read(
        request.receive, announced_bytes=content_length(request.scope["headers"]), max_bytes=WEBHOOK_MAX_BYTES
    )
    webhook = Webhook(dict(request.headers), request.scope["query_string"].decode("latin-1"), raw)
    with _refusals_counted(gate, request):
        verified = await gateway_webhooks.verify(gate.deps, account_id, connection_id, webhook)
    gate.limits.webhooks.take((verified.account.account_id, verified.connection_id))
    await gateway_webhooks.accept(gate.deps, verified)
    return answer(ReceivedView(received=True))


@contextmanager
def _refusals_counted(gate: Gate, request: Request) -> Generator[None]:
    """If the code in the `with` block refuses a webhook, count the refusal for the client's network.

    Raises EngineError: `engine.rate_limited` if the network sent too many refused webhooks; else the block's error.
    """
    try:
        yield
    except EngineError:
        gate.limits.refused_webhooks.take(client_network(gate.client_address(request.scope)))
        raise


def _ids(request: Request) -> tuple[UUID, UUID]:
    """Return the ids of the account and the connection. Raises EngineError: `engine.not_found`."""
    try:
        return read_uuid(request.path_params["accountId"]), read_uuid(request.path_params["connectionId"])
    except ValueError:
        raise gateway_webhooks.webhook_refused() from None


def _path_id(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}


_PROBLEMS = frozenset(
    {
        errors.INVALID_REQUEST,
        errors.NOT_FOUND,
        errors.PAYLOAD_TOO_LARGE,
        errors.RATE_LIMITED,
        errors.INTERNAL,
        errors.UNAVAILABLE,
    }
)
_INPUTS = {
    "parameters": [_path_id("accountId"), _path_id("connectionId")],
    "requestBody": {
        "description": "As the provider sends it, at most 64 KiB.",
        "content": {
            "application/json": {
                "schema": {"type": "object", "additionalProperties": True},
                "examples": {"sandbox": {"value": {"chargeId": CHARGE_ID, "id": "evt_1"}}},
            }
        },
    },
}
ROUTES = (
    OpenRoute(
        "/gateways/{accountId}/{connectionId}/webhook",
        receive_gateway_webhook,
        Documentation(TAG[0], "Receive a gateway's webhook", {200: ReceivedView}, _PROBLEMS),
        method="POST",
        inputs=_INPUTS,
    ),
    # banks with the Pix API append /pix to the URL that they were given (D-262)
    OpenRoute("/gateways/{accountId}/{connectionId}/webhook/pix", receive_gateway_webhook, method="POST"),
)
