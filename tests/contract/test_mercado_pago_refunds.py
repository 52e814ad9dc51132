"""Refunds at Mercado Pago whose note or answer is lost (D-53, D-265)."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from fatura.domain.payments import EntryKind
from fatura.gateways.port import PermanentError, RefundState, UnknownOutcomeError
from tests.contract.mercado_pago_provider import MercadoPagoProvider, opened_provider
from tests.contract.provider import NOW, charge_request, refund_request
from tests.doubles.mercado_pago.book import Account, Json, RefusedError
from tests.doubles.server import Loss

LATER = NOW + timedelta(days=45)


@pytest.fixture
async def provider() -> AsyncGenerator[MercadoPagoProvider]:
    async with opened_provider() as opened:
        yield opened


@pytest.fixture
async def gateway(provider: MercadoPagoProvider) -> Any:
    return await provider.connect()


@pytest.fixture
async def account(gateway: Any, provider: MercadoPagoProvider) -> Account:
    return provider.account(gateway)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to change a preference that has ended. The real Mercado Pago may do so."""
    change = Account.change

    def refuse(account: Account, preference_id: str, body: Json) -> Json:
        if datetime.fromisoformat(body["expiration_date_to"]) < LATER - timedelta(minutes=5):
            raise RefusedError(2100, "expiration_date_to must be a future date")
        return change(account, preference_id, body)

    monkeypatch.setattr(Account, "change", refuse)


@pytest.mark.usefixtures("ended")
async def test_a_refund_that_is_done_needs_no_note(gateway: Any, account: Account) -> None:
    """The link ended weeks ago. If each repeat failed, Mercado Pago would forget the key. [D-265, D-53]"""
    charge = await gateway.create_charge(charge_request())
    payment = account.attempt(charge.charge_id)
    gateway._config = replace(gateway._config, now=LATER)
    account.now = lambda: LATER

    request = refund_request(charge, 4000)
    refunded = await gateway.refund_charge(request)
    [refund] = refunded.refunds
    assert (refund.refund_id, refund.state) == (request.refund_id, RefundState.DONE)
    assert refund.reference == str(payment["refunds"][0]["id"])
    assert [each.amount_cents for each in refunded.entries if each.kind is EntryKind.REFUND] == [4000]

    account.new_refunds = "in_process"
    request = refund_request(charge, 1000)
    with pytest.raises(UnknownOutcomeError):
        await gateway.refund_charge(request)
    account.settle_refund(payment, payment["refunds"][1], "approved")
    done = await gateway.refund_charge(request)
    assert [(each.refund_id, each.state) for each in done.refunds] == [(request.refund_id, RefundState.DONE)]
    assert len(payment["refunds"]) == 2


async def test_no_other_payment_is_refunded_if_the_first_may_be(
    gateway: Any, account: Account, provider: MercadoPagoProvider
) -> None:
    """Mercado Pago has forgotten the key, and refuses the repeat because the money is returned. [D-265, D-53]"""
    charge = await gateway.create_charge(charge_request())
    first, second = account.attempt(charge.charge_id), account.attempt(charge.charge_id)
    request = refund_request(charge, 9990)
    provider.double.fail_next("POST", f"/v1/payments/{first['id']}/refunds", Loss.ANSWER)
    with pytest.raises(UnknownOutcomeError):
        await gateway.refund_charge(request)
    account.keys.clear()

    with pytest.raises(PermanentError) as refused:
        await gateway.refund_charge(request)
    assert refused.value.code == "refund_unclear"
    assert [len(each["refunds"]) for each in (first, second)] == [1, 0]


async def test_a_repeat_asks_for_the_payment_that_was_refunded(
    gateway: Any, account: Account, provider: MercadoPagoProvider
) -> None:
    """The first payment could be refunded again, because an earlier refund has failed. [D-265, D-53 lost answer]"""
    charge = await gateway.create_charge(charge_request())
    first, second = account.attempt(charge.charge_id), account.attempt(charge.charge_id)
    account.new_refunds = "in_process"
    await gateway.refund_charge(refund_request(charge, 9990))
    request = refund_request(charge, 9990)
    provider.double.fail_next("POST", f"/v1/payments/{second['id']}/refunds", Loss.ANSWER)
    with pytest.raises(UnknownOutcomeError):
        await gateway.refund_charge(request)
    account.settle_refund(first, first["refunds"][0], "rejected")

    repeated = await gateway.refund_charge(request)
    assert [each.state for each in repeated.refunds] == [RefundState.FAILED, RefundState.PENDING]
    assert [len(each["refunds"]) for each in (first, second)] == [1, 1]
