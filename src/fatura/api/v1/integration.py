"""The routes of the integration: the account, its API keys and its secret (spec 4.6, D-41, D-42)."""

from typing import Annotated, ClassVar
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import Distinct, Instant, StrictBool, Text
from fatura.api.http.forms import Body, Examples, Paging
from fatura.api.http.replies import run, run_once
from fatura.api.http.route import Call, PathId
from fatura.domain import audit_actions, errors
from fatura.domain.credentials import ALL_SCOPES, Scope
from fatura.usecases.accounts import api_keys, integration_secret
from fatura.usecases.connections import gateway_connections
from fatura.views.integration import (
    ApiKeyPageView,
    IntegrationView,
    NewApiKeyView,
    NewSecretView,
)

routes = Routes("Integration", "The account, its API keys, and the secret that signs calls to you.")
ApiKeyId = Annotated[UUID, PathId("API key")]


class ApiKeyForm(Body):
    """An API key to create."""

    examples: ClassVar[Examples] = {
        "a key": {"name": "checkout server"},
        "a key for reports": {
            "name": "reports",
            "scopes": ["read"],
            "expiresAt": "2027-01-01T00:00:00.000Z",
        },
    }

    name: Annotated[str, Text(1, 120), Field(description="The purpose of the key.")]
    scopes: Annotated[
        list[Scope],
        Field(
            min_length=1,
            max_length=len(ALL_SCOPES),
            description="What the key allows. `read`: every GET. `write`: everything that billing needs. `admin`: API "
            "keys, the secret, the webhook, the pay page, gateway connections, erasure and the audit log. No scope "
            "includes another.",
        ),
        Distinct(),
    ] = list(Scope)  # noqa: RUF012 - pydantic copies a default
    expiresAt: Annotated[
        Instant | None,
        Field(
            description="From then on, on the account's clock, the key is refused. null: it never expires."
        ),
    ] = None


class RotationForm(Body):
    """How to rotate the secret. A request without a body counts as `{}`."""

    examples: ClassVar[Examples] = {
        "with a day to change the receivers": {},
        "a leaked secret": {"revokePrevious": True},
    }
    may_be_absent: ClassVar[bool] = True

    revokePrevious: Annotated[
        StrictBool, Field(description="With true, all previous secrets are invalid at once.")
    ] = False


@routes.get("/v1/integration", "Read the integration", answers=IntegrationView)
async def read_integration(call: Call) -> Response:
    """Return the account and its gateway connections."""
    return await run(call, gateway_connections.integration)


@routes.post(
    "/v1/integration/api-keys",
    "Create an API key",
    answers=NewApiKeyView,
    audit=audit_actions.API_KEY_CREATE,
    scope=Scope.ADMIN,
    status=201,
    holds_secret=True,
    problems=[errors.TOO_MANY_API_KEYS],
)
async def create_api_key(call: Call, body: ApiKeyForm) -> Response:
    """Create an API key. Only this answer shows the text of the key."""
    return await run_once(call, api_keys.issue, body.name, scopes=body.scopes, expires_at=body.expiresAt)


@routes.get("/v1/integration/api-keys", "List API keys", answers=ApiKeyPageView)
async def list_api_keys(call: Call, query: Paging) -> Response:
    """Return a page of API keys, newest first, including revoked and expired keys."""
    return await run(call, api_keys.list_all, query.asked())


@routes.delete(
    "/v1/integration/api-keys/{apiKeyId}",
    "Revoke an API key",
    audit=audit_actions.API_KEY_REVOKE,
    scope=Scope.ADMIN,
    problems=[errors.LAST_KEY],
)
async def revoke_api_key(call: Call, api_key_id: ApiKeyId) -> Response:
    """Revoke an API key immediately and permanently.

    The account's last working key with the scope `admin` cannot be revoked.
    """
    return await run(call, api_keys.revoke, api_key_id)


@routes.post(
    "/v1/integration/secret/rotate",
    "Rotate the secret",
    answers=NewSecretView,
    audit=audit_actions.SECRET_ROTATE,
    scope=Scope.ADMIN,
    holds_secret=True,
)
async def rotate_secret(call: Call, body: RotationForm) -> Response:
    """Make a new integration secret. Only this answer shows the secret.

    For 24 hours, Fatura signs its calls to you with the old and the new secret. If the old secret has leaked, send
    `revokePrevious`: from then on, Fatura signs with the new secret only, and your receivers need it at once.
    """
    return await run_once(call, integration_secret.rotate, revoke_previous=body.revokePrevious)
