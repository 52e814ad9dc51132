"""What each adapter must do at a provider's sandbox. The checks leave one canceled charge for each payment method."""

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import uuid4

import pytest

from fatura.domain.calendar import local_date
from fatura.domain.offer import PaymentMethod
from fatura.gateways.port import (
    AuthFailedError,
    ChargeRequest,
    ChargeState,
    Gateway,
    NotFoundError,
    Webhook,
)
from tests.contract.provider import charge_request, charges_listed

DUE_IN = timedelta(days=5)


async def check_charges(gateway: Gateway, method: PaymentMethod, *, now: datetime) -> None:
    """Create a charge, repeat the request if the provider recognizes repeats, find, list and cancel the charge."""
    request = request_at(method, now)
    made = await gateway.create_charge(request)
    assert (made.invoice_id, made.attempt) == (request.invoice_id, request.attempt)
    assert (made.state, made.amount_cents) == (ChargeState.OPEN, request.amount_cents)
    assert made.pay.url or made.pay.pix_code or made.pay.boleto_line
    try:
        if gateway.capabilities().idempotency in {"key", "natural_id"}:
            assert (await gateway.create_charge(request)).charge_id == made.charge_id
        assert (await gateway.get_charge(made.charge_id)).amount_cents == request.amount_cents
        found = await gateway.find_charges(request.invoice_id, request.attempt)
        assert [each.charge_id for each in found] == [made.charge_id]
        assert await gateway.find_charges(uuid4(), 1) == []
        if gateway.capabilities().lists_charges:
            listed = [each.charge_id for each in await charges_listed(gateway, now - timedelta(minutes=10))]
            assert made.charge_id in listed
    finally:
        canceled = await gateway.cancel_charge(made.charge_id)
    assert canceled.state is ChargeState.CANCELED
    assert (await gateway.get_charge(made.charge_id)).state is ChargeState.CANCELED


async def check_refusals(gateway: Gateway, unknown_charge_id: str) -> None:
    """Ask for a charge that does not exist, and send a forged webhook."""
    assert await gateway.check_credentials() != ""
    with pytest.raises(NotFoundError):
        await gateway.get_charge(unknown_charge_id)
    with pytest.raises(AuthFailedError):
        gateway.read_webhook(Webhook({"content-type": "application/json"}, "", b"{}"))


def request_at(method: PaymentMethod, now: datetime) -> ChargeRequest:
    return replace(charge_request(method), due_date=local_date(now) + DUE_IN)
