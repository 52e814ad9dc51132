"""Keep how an endpoint fares, and disable one that is gone or has failed for too long (D-36, D-39)."""

from collections.abc import Sequence
from dataclasses import replace

from fatura.domain import shapes
from fatura.domain.delivery import HTTP_GONE, AttemptResult, EndpointHealth
from fatura.observability import log
from fatura.store.webhooks import webhooks
from fatura.store.webhooks.webhooks import StoredWebhook
from fatura.usecases.transaction import Work

DISABLED = "webhook.disabled"


async def store(
    work: Work, stored: StoredWebhook, health: EndpointHealth, *, answers: Sequence[AttemptResult]
) -> None:
    """Store an endpoint's health after a round; disable it and tell so when there is no hope."""
    if not health.should_disable(answers, now=work.now):
        await webhooks.set_health(work.tx, health, disabled_at=None)
        return
    await webhooks.set_health(work.tx, health, disabled_at=work.now)
    error = _error(health, answers)
    log.warning("push.webhook_disabled", code=error["code"], account_id=str(work.account.account_id))
    webhook = replace(stored.webhook, disabled_at=work.now)
    work.emit(DISABLED, {"webhook": shapes.webhook(webhook), "error": error})


def _error(health: EndpointHealth, answers: Sequence[AttemptResult]) -> shapes.Shape:
    gone = next((answer for answer in answers if answer.response_status == HTTP_GONE), None)
    if gone is not None:
        code, message, last = "gone", "The endpoint answered 410 Gone.", gone
    else:
        code, last = "failed_for_too_long", answers[-1]
        message = f"Every delivery has failed since {shapes.instant(health.failing_since)}."
    return {
        "code": code,
        "message": f"{message} Register it again with PUT /v1/integration/webhook, and pushing goes on.",
        "lastError": last.error,
        "responseStatus": last.response_status,
    }
