"""Store an endpoint's health; disable the webhook after a 410 answer or five days of failures (D-36, D-39)."""

from collections.abc import Sequence
from dataclasses import replace

from fatura.domain.delivery import HTTP_GONE, AttemptResult, EndpointHealth
from fatura.observability import log
from fatura.store.webhooks import webhooks
from fatura.store.webhooks.webhooks import StoredWebhook
from fatura.usecases.transaction import Work
from fatura.views.events import WebhookDisabledDataView, WebhookErrorView
from fatura.views.view import instant
from fatura.views.webhooks import WebhookView

DISABLED = "webhook.disabled"


async def store(
    work: Work, stored: StoredWebhook, health: EndpointHealth, *, results: Sequence[AttemptResult]
) -> None:
    """Store the health. If the webhook should be disabled, disable it and emit `webhook.disabled`."""
    if not health.should_disable(results, now=work.now):
        await webhooks.set_health(work.tx, health, disabled_at=None)
        return
    await webhooks.set_health(work.tx, health, disabled_at=work.now)
    error = _error(health, results)
    log.warning("webhook.disabled", code=error.code, account_id=str(work.account.account_id))
    webhook = replace(stored.webhook, disabled_at=work.now)
    work.emit(DISABLED, WebhookDisabledDataView(webhook=WebhookView.of(webhook), error=error))


def _error(health: EndpointHealth, results: Sequence[AttemptResult]) -> WebhookErrorView:
    gone = next((result for result in results if result.response_status == HTTP_GONE), None)
    if gone is not None:
        code, message, last = "gone", "The endpoint answered 410 Gone.", gone
    else:
        code, last = "failed_for_too_long", results[-1]
        message = f"Every delivery has failed since {instant(health.failing_since)}."
    return WebhookErrorView(
        code=code,
        message=f"{message} Register it again with PUT /v1/integration/webhook to resume deliveries.",
        last_error=last.error,
        response_status=last.response_status,
    )
