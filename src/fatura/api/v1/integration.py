"""The routes of the integration: API keys, the secret, gateway connections (spec 4.6, D-41 to D-43)."""

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.answers import answer
from fatura.api.http.declare import Routes
from fatura.api.http.fields import StrictBool, Text
from fatura.api.http.forms import Body, unsent
from fatura.api.http.replies import replay, run, run_once
from fatura.api.http.route import Call, Noun
from fatura.api.models.integration import ApiKey, Connection, Integration, NewApiKey
from fatura.api.models.shared import Listed
from fatura.api.models.webhooks import NewSecret
from fatura.usecases.accounts import accounts, integration_secret
from fatura.usecases.charging import gateway_connections

routes = Routes("Integration")
ApiKeyId = Annotated[UUID, Noun("API key")]
ConnectionId = Annotated[UUID, Noun("gateway connection")]
Label = Annotated[str, Text(1, 120), Field(description="Your own name for the connection.")]
Credentials = Annotated[
    dict[str, Any], Field(description="What the provider asks for; `{}` in the sandbox. Never shown again.")
]
GatewaySettings = Annotated[dict[str, Any], Field(description="The provider's settings, merged key by key.")]


class ApiKeyForm(Body):
    """An API key to create."""

    name: Annotated[str, Text(1, 120), Field(description="What the key is for.")]


class ConnectionForm(Body):
    """A gateway to connect."""

    provider: Annotated[str, Text(1, 60), Field(description="Provider's name.", examples=["sandbox"])]
    label: Label | None = None
    credentials: Credentials
    settings: GatewaySettings = Field(default_factory=dict[str, Any])


class ConnectionPatch(Body):
    """What changes of a connection."""

    label: Label | None = unsent()
    credentials: Credentials = unsent()
    settings: GatewaySettings = unsent()
    active: Annotated[StrictBool, Field(description="An inactive connection takes no new subscriptions.")] = (
        unsent()
    )


@routes.get("/v1/integration", answers=Integration)
async def read_integration(call: Call) -> Response:
    """Return the account and its gateway connections."""
    return await run(call, gateway_connections.integration)


@routes.post("/v1/integration/api-keys", answers=NewApiKey, status=201, holds_secret=True)
async def create_api_key(call: Call, body: ApiKeyForm) -> Response:
    """Create an API key; the answer shows it, for the only time."""
    return await run_once(call, accounts.issue_api_key, body.name)


@routes.get("/v1/integration/api-keys", answers=Listed[ApiKey])
async def list_api_keys(call: Call) -> Response:
    """List the account's API keys, newest first, revoked ones included."""
    return await run(call, accounts.list_api_keys)


@routes.delete("/v1/integration/api-keys/{apiKeyId}")
async def revoke_api_key(call: Call, api_key_id: ApiKeyId) -> Response:
    """Revoke an API key at once, everywhere and for good."""
    return await run(call, accounts.revoke_api_key, api_key_id)


@routes.post("/v1/integration/secret/rotate", answers=NewSecret, holds_secret=True)
async def rotate_secret(call: Call) -> Response:
    """Make a new integration secret, shown this once; the one before it still signs beside it for 24 hours."""
    return await run_once(call, integration_secret.rotate)


@routes.post("/v1/integration/gateways", answers=Connection, status=201)
async def connect_gateway(call: Call, body: ConnectionForm) -> Response:
    """Connect a gateway; its credentials are checked there first, and kept encrypted."""
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


@routes.get("/v1/integration/gateways", answers=Listed[Connection])
async def list_gateways(call: Call) -> Response:
    """List the account's gateway connections, oldest first."""
    return await run(call, gateway_connections.read_all)


@routes.patch("/v1/integration/gateways/{connectionId}", answers=Connection)
async def patch_gateway(call: Call, connection_id: ConnectionId, body: ConnectionPatch) -> Response:
    """Change what is sent; invoices that waited for the connection go on by themselves."""
    return answer(await gateway_connections.patch(call.deps, call.account, connection_id, body.sent()))
