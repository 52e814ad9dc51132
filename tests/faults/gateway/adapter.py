"""The adapter to the test gateway of `tests.faults.gateway.provider`."""

from typing import Any

import msgspec

from fatura.gateways.port import (
    AuthFailedError,
    Charge,
    Webhook,
    WebhookHint,
)
from tests.faults.external_gateway import ExternalGateway
from tests.faults.gateway.provider import CONNECTION, MERCHANT, PROVIDER_ACCOUNT
from tests.faults.simulator.gateway import HOOK_HEADER
from tests.faults.simulator.gateway_state import OWN_ACCOUNT


class ProviderGateway(ExternalGateway):
    async def check_credentials(self) -> str | None:
        """Return the id of the credentials' account at the provider. Raises AuthFailedError, TransientError."""
        return (await self._ask("GET", "/account"))["id"]

    def read_webhook(self, webhook: Webhook) -> WebhookHint:
        """Accept webhooks whose header HOOK_HEADER is the id of the engine's account. Raises AuthFailedError."""
        if webhook.headers.get(HOOK_HEADER) != str(self._config.account_id):
            raise AuthFailedError("not signed")
        event = msgspec.json.decode(webhook.body)
        return WebhookHint((event["chargeId"],), event["id"])

    def _charge(self, row: Any) -> Charge:
        return msgspec.convert(row, Charge)

    def _headers(self) -> dict[str, str]:
        account = self._config.credentials.get("account", OWN_ACCOUNT)
        return {
            CONNECTION: str(self._config.connection_id),
            MERCHANT: str(self._config.account_id),
            PROVIDER_ACCOUNT: account,
        }
