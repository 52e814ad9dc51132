"""The one address that payment providers call: open to everybody, believed by nobody (D-35)."""

from typing import Any

from fastapi import Request
from starlette.responses import Response

from fatura.api.http import body
from fatura.api.http.answers import answer
from fatura.api.http.authentication import Gate, content_length
from fatura.api.http.fields import read_uuid
from fatura.api.http.openapi import problem_responses
from fatura.api.http.route import OpenRoute
from fatura.api.models.shared import Shown
from fatura.domain.errors import (
    INTERNAL,
    INVALID_REQUEST,
    NOT_FOUND,
    PAYLOAD_TOO_LARGE,
    RATE_LIMITED,
    UNAVAILABLE,
)
from fatura.usecases.charging import polling
from fatura.usecases.charging.polling import WEBHOOK_MAX_BYTES, Webhook
from fatura.views.integration import ReceivedView

TAG = "Gateways"


class Received(Shown):
    """The webhook is authentic, and heard."""

    received: bool


async def receive_gateway_webhook(request: Request) -> Response:
    """Take a payment provider's webhook: put this address into its dashboard.

    It is authenticated as the provider signs, and only has the charges it names asked after at once; what it says of
    them is not believed. Duplicates are harmless. An unknown address and a wrong signature are answered alike. The
    sandbox's webhooks are `{"chargeId": "..."}`, signed in `X-Sandbox-Signature` as `X-Service-Signature` is, with the
    connection's setting `webhookSecret`.
    """
    gate: Gate = request.app.state.gate
    try:
        account_id = read_uuid(request.path_params["accountId"])
        connection_id = read_uuid(request.path_params["connectionId"])
    except ValueError:
        raise polling.webhook_refused() from None
    gate.limiter.take(str(connection_id), who="The gateway of this connection")
    raw = await body.read(
        request.receive, announced_bytes=content_length(request.scope["headers"]), max_bytes=WEBHOOK_MAX_BYTES
    )
    webhook = Webhook(dict(request.headers), request.scope["query_string"].decode("latin-1"), raw)
    await polling.receive_webhook(gate.deps, account_id, connection_id, webhook)
    return answer(ReceivedView(received=True))


def _path_id(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}


_PROBLEMS = (INVALID_REQUEST, NOT_FOUND, PAYLOAD_TOO_LARGE, RATE_LIMITED, INTERNAL, UNAVAILABLE)
ROUTES = (
    OpenRoute(
        "/gateways/{accountId}/{connectionId}/webhook",
        receive_gateway_webhook,
        methods=["POST"],
        response_model=Received,
        response_description="Heard.",
        responses={**problem_responses(_PROBLEMS)},
        tags=[TAG],
        operation_id="receive_gateway_webhook",
        openapi_extra={
            "parameters": [_path_id("accountId"), _path_id("connectionId")],
            "requestBody": {
                "description": "As the provider sends it, at most 64 KiB.",
                "content": {"application/json": {"schema": {}}},
            },
        },
    ),
)
