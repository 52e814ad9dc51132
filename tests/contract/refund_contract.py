"""The contract suite's tests of refunds. Every gateway adapter must pass them, even one without refunds (D-53)."""

from dataclasses import replace

import pytest

from fatura.domain.payments import EntryKind
from fatura.gateways.answers import checked
from fatura.gateways.port import (
    Gateway,
    NotFoundError,
    PermanentError,
    Refund,
    RefundState,
    UnknownOutcomeError,
)
from tests.contract.provider import NOW, Provider, charge_request, refund_request


class RefundContract:
    """The tests of refunds. Each adapter runs them in a subclass `Test...` that defines the fixture `provider`."""

    @pytest.fixture
    async def gateway(self, provider: Provider) -> Gateway:
        return await provider.connect()

    async def test_a_refund_is_shown_with_its_entry(self, gateway: Gateway, provider: Provider) -> None:
        """[D-53]"""
        created = await gateway.create_charge(charge_request())
        await provider.pay(gateway, created)
        paid = await gateway.get_charge(created.charge_id)
        request = refund_request(created, 4000)
        if gateway.capabilities().refunds == "none":
            with pytest.raises(PermanentError):
                await gateway.refund_charge(request)
            return

        refunded = await gateway.refund_charge(request)

        (entry,) = refunded.entries[1:]
        assert refunded.refunds == (Refund(request.refund_id, RefundState.DONE, entry.reference),)
        assert replace(refunded, entries=paid.entries, refunds=()) == paid
        assert (entry.kind, entry.amount_cents) == (EntryKind.REFUND, 4000)
        assert checked(refunded, currency="BRL", now=NOW) == refunded
        assert await gateway.get_charge(created.charge_id) == refunded

    async def test_a_lost_refund_is_shown_and_may_be_repeated(
        self, gateway: Gateway, provider: Provider
    ) -> None:
        """The suite repeats the request only if the provider deduplicates refunds. [D-53 lost answer]"""
        refunds = gateway.capabilities().refunds
        if refunds == "none":
            return
        created = await gateway.create_charge(charge_request())
        await provider.pay(gateway, created)
        request = refund_request(created, 4000)
        await provider.lose_next_refund(gateway)

        with pytest.raises(UnknownOutcomeError):
            await gateway.refund_charge(request)

        charge = await gateway.get_charge(created.charge_id)
        assert [each.amount_cents for each in charge.entries if each.kind is EntryKind.REFUND] == [4000]
        shown = [refund.refund_id for refund in charge.refunds]
        assert shown == ([request.refund_id] if provider.shows_lost_refunds else [])
        if refunds == "key":
            repeated = await gateway.refund_charge(request)
            assert replace(repeated, refunds=charge.refunds) == charge
            assert [refund.refund_id for refund in repeated.refunds] == [request.refund_id]

    async def test_two_refunds_of_one_charge_have_their_own_entries(
        self, gateway: Gateway, provider: Provider
    ) -> None:
        """[D-53]"""
        if gateway.capabilities().refunds == "none":
            return
        created = await gateway.create_charge(charge_request())
        await provider.pay(gateway, created)

        requests = [refund_request(created, 4000), refund_request(created, 4000)]
        for request in requests:
            await gateway.refund_charge(request)

        charge = await gateway.get_charge(created.charge_id)
        assert [refund.refund_id for refund in charge.refunds] == [each.refund_id for each in requests]
        assert len({refund.reference for refund in charge.refunds}) == 2

    async def test_more_than_what_is_left_is_not_refunded(self, gateway: Gateway, provider: Provider) -> None:
        """[D-53]"""
        if gateway.capabilities().refunds == "none":
            return
        created = await gateway.create_charge(charge_request())
        with pytest.raises(PermanentError):
            await gateway.refund_charge(refund_request(created, 1))
        await provider.pay(gateway, created)
        await gateway.refund_charge(refund_request(created, 9000))
        before = await gateway.get_charge(created.charge_id)

        with pytest.raises(PermanentError) as refusal:
            await gateway.refund_charge(refund_request(created, 991))

        assert refusal.value.code
        assert await gateway.get_charge(created.charge_id) == before

    async def test_another_connection_does_not_refund_the_charge(
        self, gateway: Gateway, provider: Provider
    ) -> None:
        created = await gateway.create_charge(charge_request())
        await provider.pay(gateway, created)
        other = await provider.connect()

        if other.capabilities().refunds != "none":
            with pytest.raises(NotFoundError):
                await other.refund_charge(refund_request(created, 1))
