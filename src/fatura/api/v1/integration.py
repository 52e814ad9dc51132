"""The routes of the integration: API keys, the secret, gateway connections (spec 4.6, D-41 to D-43)."""

from typing import Annotated, Any, ClassVar
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import StrictBool, Text
from fatura.api.http.forms import Body, Examples, unsent
from fatura.api.http.replies import answer, replay, run, run_once
from fatura.api.http.route import Call, PathId
from fatura.usecases.accounts import accounts, integration_secret
from fatura.usecases.charging import gateway_connections
from fatura.views.integration import (
    ApiKeyListView,
    ConnectionListView,
    ConnectionView,
    IntegrationView,
    NewApiKeyView,
    NewSecretView,
)

routes = Routes("Integration", "API keys, the secret that signs calls to you, and connections to gateways.")
ApiKeyId = Annotated[UUID, PathId("API key")]
ConnectionId = Annotated[UUID, PathId("gateway connection")]
Label = Annotated[str, Text(1, 120), Field(description="Your own name for the connection.")]
Credentials = Annotated[
    dict[str, Any], Field(description="The provider's credentials, never shown again; `{}` in the sandbox.")
]
GatewaySettings = Annotated[
    dict[str, Any], Field(description="The provider's settings. A PATCH changes only the keys that are sent.")
]


class ApiKeyForm(Body):
    """An API key to create."""

    examples: ClassVar[Examples] = {"a key": {"name": "checkout server"}}

    name: Annotated[str, Text(1, 120), Field(description="The purpose of the key.")]


class ConnectionForm(Body):
    """A gateway to connect."""

    examples: ClassVar[Examples] = {
        "the sandbox": {"provider": "sandbox", "label": "Main", "credentials": {}, "settings": {}}
    }

    provider: Annotated[str, Text(1, 60), Field(description="Name of the provider.")]
    label: Label | None = None
    credentials: Credentials
    settings: GatewaySettings = Field(default_factory=dict[str, Any])


class ConnectionPatch(Body):
    """The fields to change of a connection."""

    examples: ClassVar[Examples] = {"a new label": {"label": "Second"}}

    label: Label | None = unsent()
    credentials: Credentials = unsent()
    settings: GatewaySettings = unsent()
    active: Annotated[
        StrictBool, Field(description="false refuses new subscriptions on this connection.")
    ] = unsent()


@routes.get("/v1/integration", "Read the integration", answers=IntegrationView)
async def read_integration(call: Call) -> Response:
    """Return the account and its gateway connections."""
    return await run(call, gateway_connections.integration)


@routes.post(
    "/v1/integration/api-keys", "Create an API key", answers=NewApiKeyView, status=201, holds_secret=True
)
async def create_api_key(call: Call, body: ApiKeyForm) -> Response:
    """Create an API key. Only this answer shows it."""
    return await run_once(call, accounts.issue_api_key, body.name)


@routes.get("/v1/integration/api-keys", "List API keys", answers=ApiKeyListView)
async def list_api_keys(call: Call) -> Response:
    """Return all API keys, newest first, revoked ones included."""
    return await run(call, accounts.list_api_keys)


@routes.delete("/v1/integration/api-keys/{apiKeyId}", "Revoke an API key")
async def revoke_api_key(call: Call, api_key_id: ApiKeyId) -> Response:
    """Revoke an API key immediately and for good."""
    return await run(call, accounts.revoke_api_key, api_key_id)


@routes.post("/v1/integration/secret/rotate", "Rotate the secret", answers=NewSecretView, holds_secret=True)
async def rotate_secret(call: Call) -> Response:
    """Make a new integration secret. Only this answer shows it. For 24 hours, calls are signed with both secrets."""
    return await run_once(call, integration_secret.rotate)


@routes.post("/v1/integration/gateways", "Connect a gateway", answers=ConnectionView, status=201)
async def connect_gateway(call: Call, body: ConnectionForm) -> Response:
    """Connect a gateway. Its credentials are checked at the provider, and stored encrypted."""
    if repeated := await replay(call):
        return repeated
    await gateway_connections.check_new(
        call.deps, call.account, provider=body.provider, credentials=body.credentials, settings=body.settings
    )
    return await run_once(
        call,
        gateway_connections.connect,
        provider=body.provider,
        label=body.label,
        credentials=body.credentials,
        settings=body.settings,
    )


@routes.get("/v1/integration/gateways", "List gateway connections", answers=ConnectionListView)
async def list_gateways(call: Call) -> Response:
    """Return all gateway connections, oldest first."""
    return await run(call, gateway_connections.read_all)


@routes.patch(
    "/v1/integration/gateways/{connectionId}", "Change a gateway connection", answers=ConnectionView
)
async def patch_gateway(call: Call, connection_id: ConnectionId, body: ConnectionPatch) -> Response:
    """Change the fields that are sent. Invoices that waited for the connection are issued automatically."""
    return answer(await gateway_connections.patch(call.deps, call.account, connection_id, body.sent()))
