"""The webhooks of Stripe: signatures, and the charges that events name (D-35, D-263)."""

import json
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import pytest
import stripe

from fatura.gateways.port import AuthFailedError, Webhook
from tests.contract.provider import NOW
from tests.contract.stripe_provider import StripeProvider, event, opened_provider, signature

AT = int(NOW.timestamp())
SECRET, OTHER = "whsec_" + 32 * "a", "whsec_" + 32 * "b"


@pytest.fixture
async def provider() -> AsyncGenerator[StripeProvider]:
    async with opened_provider() as opened:
        yield opened


def test_the_vendors_own_verifier_accepts_what_the_double_signs() -> None:
    """So the tests of webhooks use real signatures. [D-35 webhook, D-263]"""
    body = event({"id": "in_1", "object": "invoice"})
    header = signature(body, OTHER, SECRET, at=AT)
    assert stripe.WebhookSignature.verify_header(body.decode(), header, SECRET)
    with pytest.raises(stripe.SignatureVerificationError):
        stripe.WebhookSignature.verify_header(body.decode() + " ", header, SECRET)


async def test_a_webhook_is_signed_for_five_minutes(provider: StripeProvider) -> None:
    """During a rotation, either secret is enough, on both sides. [D-35 webhook, D-263]"""
    gateway = provider.gateway(provider.double.open_account(), webhookSecret=f"{SECRET}, {OTHER}")
    ours = {
        "id": "in_1",
        "object": "invoice",
        "status": "open",
        "metadata": {"fatura_reference": f"{uuid4()}:1"},
    }
    body = event(ours)
    for header in (
        signature(body, SECRET, at=AT),
        signature(body, OTHER, at=AT),
        signature(body, "whsec_x", OTHER, at=AT),
        signature(body, SECRET, at=AT - 300),
        signature(body, SECRET, at=AT + 300),
    ):
        assert gateway.read_webhook(Webhook({"stripe-signature": header}, "", body)).charge_ids == ("in_1",)
    right = signature(body, SECRET, at=AT)
    digest = right.rpartition("=")[2]
    for header in (
        "",
        "t=,v1=",
        f"v1={digest}",
        f"t={AT}",
        f"t={AT},v0={digest}",
        f"t={AT},t={AT + 1},v1={digest}",
        f"t={AT + 1},v1={digest}",
        f"t={'9' * 5000},v1={digest}",
        f"t=²,v1={digest}",
        f"t={AT},v1={digest[:-1]}",
        f"t={AT},v1=\xe7",
        f"t={AT}," + ",".join(["v1=0"] * 20) + f",v1={digest}",
        signature(body, "whsec_x", at=AT),
        signature(body, SECRET, at=AT - 301),
        signature(body, SECRET, at=AT + 301),
    ):
        with pytest.raises(AuthFailedError):
            gateway.read_webhook(Webhook({"stripe-signature": header}, "", body))
    without = provider.gateway(provider.double.open_account())
    with pytest.raises(AuthFailedError):
        without.read_webhook(Webhook({"stripe-signature": signature(body, "", at=AT)}, "", body))


async def test_a_webhook_names_only_charges(provider: StripeProvider) -> None:
    """Drafts, other objects and invoices of others name no charge. [D-35 webhook, D-263]"""
    gateway = provider.gateway(provider.double.open_account(), webhookSecret=SECRET)
    ours = {"object": "invoice", "status": "open", "metadata": {"fatura_reference": f"{uuid4()}:1"}}

    def read(body: bytes) -> Any:
        return gateway.read_webhook(Webhook({"stripe-signature": signature(body, SECRET, at=AT)}, "", body))

    for of in (
        {**ours, "id": "in_1", "status": "draft"},
        {**ours, "id": "in_1", "metadata": {}},
        {**ours, "id": "in_1", "metadata": None},
        {**ours, "id": "../x"},
        {**ours, "id": None},
        {**ours, "id": "ch_1", "object": "charge"},
        {},
    ):
        assert read(event(of)).charge_ids == ()
    named = read(event({**ours, "id": "in_1"}, "invoice.voided", extra=1, id="evt_7"))
    assert (named.charge_ids, named.event_id) == (("in_1",), "evt_7")
    for body in (
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 60_000,
        event({**ours, "id": "in_1"}, livemode=True),
        event({**ours, "id": "in_1"}, account="acct_1"),
        json.dumps({"id": 1, "type": "x", "livemode": False, "data": {"object": {}}}).encode(),
    ):
        with pytest.raises(AuthFailedError):
            read(body)
