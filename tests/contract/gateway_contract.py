"""The contract suite for `gateways.port`. Every gateway adapter must pass it against a test double of its provider."""

from dataclasses import replace
from datetime import date, timedelta
from typing import Any
from uuid import uuid4

import pytest

from fatura.domain.charge import NO_PAY_DATA
from fatura.domain.offer import PaymentMethod
from fatura.domain.payments import EntryKind
from fatura.gateways.answers import checked
from fatura.gateways.port import (
    AuthFailedError,
    Charge,
    ChargeState,
    Gateway,
    NotFoundError,
    PermanentError,
    ProductMirror,
    TransientError,
    UnknownOutcomeError,
    Webhook,
)
from tests.contract.provider import NOW, Provider, charge_request, charges_listed


class GatewayContract:
    """The tests of the suite. Each adapter runs them in a subclass `Test...` that defines the fixture `provider`."""

    @pytest.fixture
    async def gateway(self, provider: Provider) -> Gateway:
        return await provider.connect()

    async def test_credentials_that_work_are_accepted(self, gateway: Gateway) -> None:
        await gateway.check_credentials()

    @pytest.mark.parametrize("method", PaymentMethod)
    async def test_a_charge_is_created_and_found_again(self, gateway: Gateway, method: PaymentMethod) -> None:
        request = charge_request(method)
        if method not in gateway.capabilities().methods:
            with pytest.raises(PermanentError):
                await gateway.create_charge(request)
            return

        charge = await gateway.create_charge(request)

        plain = Charge(charge.charge_id, request.invoice_id, 1, ChargeState.OPEN, 9990)
        assert replace(charge, due_date=None, pay=NO_PAY_DATA, created_at=None) == plain
        assert charge.due_date in {None, request.due_date}
        assert _without_pay(await gateway.get_charge(charge.charge_id)) == _without_pay(charge)
        assert await gateway.find_charges(request.invoice_id, 1) == [charge]

    async def test_a_card_is_charged_in_the_maximum_of_installments(self, gateway: Gateway) -> None:
        most = gateway.capabilities().max_installments
        request = replace(charge_request(PaymentMethod.CARD), installments=most if most > 1 else None)
        if PaymentMethod.CARD in gateway.capabilities().methods:
            assert (await gateway.create_charge(request)).amount_cents == request.amount_cents

    async def test_a_charge_below_the_minimum_is_refused(self, gateway: Gateway) -> None:
        """Without a minimum, one cent can be charged. [D-49 minimums]"""
        least = gateway.capabilities().min_amount_cents or 1
        request = replace(charge_request(gateway.capabilities().methods[0]), amount_cents=least)
        below = replace(request, invoice_id=uuid4(), amount_cents=least - 1)

        assert (await gateway.create_charge(request)).amount_cents == least
        with pytest.raises(PermanentError):
            await gateway.create_charge(below)
        assert await gateway.find_charges(below.invoice_id, 1) == []

    async def test_an_installment_below_the_minimum_is_refused(self, gateway: Gateway) -> None:
        """[D-49 minimums]"""
        capabilities = gateway.capabilities()
        least, most = capabilities.min_installment_cents, capabilities.max_installments
        if PaymentMethod.CARD not in capabilities.methods or most == 1 or least is None:
            return
        request = replace(charge_request(PaymentMethod.CARD), installments=most, amount_cents=most * least)
        below = replace(request, invoice_id=uuid4(), amount_cents=most * least - 1)

        assert (await gateway.create_charge(request)).amount_cents == most * least
        with pytest.raises(PermanentError):
            await gateway.create_charge(below)
        assert await gateway.find_charges(below.invoice_id, 1) == []

    async def test_an_unknown_reference_is_absent(self, gateway: Gateway) -> None:
        request = charge_request()
        await gateway.create_charge(request)

        assert await gateway.find_charges(request.invoice_id, 2) == []
        assert await gateway.find_charges(uuid4(), 1) == []

    @pytest.mark.parametrize(
        "charge_id", ["", "no-such-charge", f"sbx_{32 * '0'}", "../?&", "\x00", "\ud800"]
    )
    async def test_an_unknown_charge_is_not_found(self, gateway: Gateway, charge_id: str) -> None:
        with pytest.raises(NotFoundError):
            await gateway.get_charge(charge_id)
        with pytest.raises(NotFoundError):
            await gateway.cancel_charge(charge_id)

    async def test_all_charges_since_an_instant_are_listed(
        self, gateway: Gateway, provider: Provider
    ) -> None:
        """The list also has paid charges, and is sorted by creation, oldest first.

        If the provider lists canceled charges, the list has them too. [D-123]
        """
        if not gateway.capabilities().lists_charges:
            with pytest.raises(PermanentError):
                _ = await charges_listed(gateway, NOW)
            return
        made = [await gateway.create_charge(charge_request()) for _ in range(4)]
        await provider.pay(gateway, made[0])
        await provider.cancel(gateway, made[1])
        await provider.lose_next_answer(gateway)
        lost = charge_request()
        with pytest.raises(UnknownOutcomeError):
            await gateway.create_charge(lost)
        await (await provider.connect()).create_charge(charge_request())

        listed = await charges_listed(gateway, NOW)

        known = {each.charge_id for each in made}
        (found,) = [each for each in listed if each.charge_id not in known]
        assert len(listed) == len(made) + (1 if provider.lists_canceled else 0)
        instants = [each.created_at for each in listed if each.created_at is not None]
        assert (len(instants), instants) == (len(listed), sorted(instants))
        assert (found.invoice_id, found.attempt) == (lost.invoice_id, lost.attempt)
        assert listed == [await gateway.get_charge(each.charge_id) for each in listed]
        assert await charges_listed(gateway, NOW + timedelta(days=1)) == []

    async def test_a_failed_list_may_be_repeated(self, gateway: Gateway, provider: Provider) -> None:
        """[D-123]"""
        if not gateway.capabilities().lists_charges:
            return
        created = await gateway.create_charge(charge_request())
        await provider.fail_next_list(gateway)

        with pytest.raises(TransientError):
            _ = await charges_listed(gateway, NOW)

        listed = await charges_listed(gateway, NOW)
        assert list(map(_without_pay, listed)) == [_without_pay(created)]

    async def test_a_payment_is_shown_with_its_instant(self, gateway: Gateway, provider: Provider) -> None:
        created = await gateway.create_charge(charge_request())
        await provider.pay(gateway, created)

        charge = await gateway.get_charge(created.charge_id)

        assert charge.state is ChargeState.PAID
        assert [(entry.kind, entry.amount_cents) for entry in charge.entries] == [(EntryKind.PAYMENT, 9990)]
        assert checked(charge, currency="BRL", now=NOW) == charge
        assert await gateway.find_charges(created.invoice_id, 1) == [charge]

    async def test_a_refusal_is_shown(self, gateway: Gateway, provider: Provider) -> None:
        if PaymentMethod.CARD not in gateway.capabilities().methods:
            return
        created = await gateway.create_charge(charge_request(PaymentMethod.CARD))
        await provider.refuse(gateway, created)

        state = ChargeState.REFUSED if provider.shows_refusals else ChargeState.OPEN
        found = await gateway.get_charge(created.charge_id)
        assert _without_pay(found) == _without_pay(replace(created, state=state))

    async def test_a_cancellation_is_shown(self, gateway: Gateway, provider: Provider) -> None:
        created = await gateway.create_charge(charge_request())
        await provider.cancel(gateway, created)

        found = await gateway.get_charge(created.charge_id)
        assert _without_pay(found) == _without_pay(replace(created, state=ChargeState.CANCELED))

    async def test_a_refunded_charge_stays_paid(self, gateway: Gateway, provider: Provider) -> None:
        """[D-46, D-50]"""
        created = await gateway.create_charge(charge_request())
        await provider.pay(gateway, created)
        paid = await gateway.get_charge(created.charge_id)
        await provider.refund(gateway, created)

        refunded = await gateway.get_charge(created.charge_id)

        assert refunded == replace(paid, entries=refunded.entries, refunds=refunded.refunds)
        assert refunded.entries[:1] == paid.entries
        assert [(entry.kind, entry.amount_cents) for entry in refunded.entries[1:]] == [
            (EntryKind.REFUND, 9990)
        ]
        assert checked(refunded, currency="BRL", now=NOW) == refunded

    async def test_a_lost_answer_is_found_by_its_reference(
        self, gateway: Gateway, provider: Provider
    ) -> None:
        """[D-33]"""
        request = charge_request()
        await provider.lose_next_answer(gateway)

        with pytest.raises(UnknownOutcomeError):
            await gateway.create_charge(request)

        (found,) = await gateway.find_charges(request.invoice_id, request.attempt)
        assert (found.state, found.amount_cents) == (ChargeState.OPEN, request.amount_cents)

    async def test_a_lost_request_creates_nothing(self, gateway: Gateway, provider: Provider) -> None:
        request = charge_request()
        await provider.lose_next_request(gateway)

        with pytest.raises(UnknownOutcomeError):
            await gateway.create_charge(request)

        assert await gateway.find_charges(request.invoice_id, request.attempt) == []
        assert (await gateway.create_charge(request)).state is ChargeState.OPEN

    async def test_a_repeat_matches_the_idempotency_capability(self, gateway: Gateway) -> None:
        request = charge_request()
        first, second = await gateway.create_charge(request), await gateway.create_charge(request)

        repeat_is_safe = gateway.capabilities().idempotency in {"key", "natural_id"}
        assert (first.charge_id == second.charge_id) is repeat_is_safe
        made = [first] if repeat_is_safe else [first, second]
        assert await gateway.find_charges(request.invoice_id, request.attempt) == made

    @pytest.mark.parametrize(
        "wrong", [{"amount_cents": 0}, {"due_date": date(2026, 3, 9)}, {"installments": 99}]
    )
    async def test_invalid_data_is_a_permanent_error(
        self, gateway: Gateway, wrong: dict[str, object]
    ) -> None:
        right: Any = charge_request(gateway.capabilities().methods[0])
        request = replace(right, **wrong)

        with pytest.raises(PermanentError) as refusal:
            await gateway.create_charge(request)

        assert refusal.value.code
        assert refusal.value.detail
        assert await gateway.find_charges(request.invoice_id, request.attempt) == []

    async def test_a_rate_limit_is_a_transient_error(self, gateway: Gateway, provider: Provider) -> None:
        request = charge_request()
        await provider.limit_next_request(gateway)

        with pytest.raises(TransientError):
            await gateway.create_charge(request)

        assert await gateway.find_charges(request.invoice_id, request.attempt) == []
        assert (await gateway.create_charge(request)).state is ChargeState.OPEN

    async def test_a_failed_read_may_be_repeated(self, gateway: Gateway, provider: Provider) -> None:
        created = await gateway.create_charge(charge_request())
        await provider.fail_next_read(gateway)

        with pytest.raises(TransientError):
            await gateway.get_charge(created.charge_id)

        assert _without_pay(await gateway.get_charge(created.charge_id)) == _without_pay(created)

    async def test_a_canceled_charge_stays_canceled(self, gateway: Gateway) -> None:
        """[D-27 charge]"""
        created = await gateway.create_charge(charge_request())
        canceled = _without_pay(replace(created, state=ChargeState.CANCELED))

        assert _without_pay(await gateway.cancel_charge(created.charge_id)) == canceled
        assert _without_pay(await gateway.cancel_charge(created.charge_id)) == canceled
        assert _without_pay(await gateway.get_charge(created.charge_id)) == canceled

    async def test_a_paid_charge_is_not_canceled(self, gateway: Gateway, provider: Provider) -> None:
        """[D-27 not confirmed]"""
        created = await gateway.create_charge(charge_request())
        await provider.pay(gateway, created)
        paid = await gateway.get_charge(created.charge_id)

        assert await gateway.cancel_charge(created.charge_id) == paid
        assert await gateway.get_charge(created.charge_id) == paid

    async def test_a_lost_cancellation_may_be_repeated(self, gateway: Gateway, provider: Provider) -> None:
        """[D-27 not confirmed]"""
        created = await gateway.create_charge(charge_request())
        await provider.lose_next_cancel(gateway)

        with pytest.raises(UnknownOutcomeError):
            await gateway.cancel_charge(created.charge_id)

        assert (await gateway.get_charge(created.charge_id)).state is ChargeState.CANCELED
        assert (await gateway.cancel_charge(created.charge_id)).state is ChargeState.CANCELED

    async def test_a_webhook_names_its_charge(self, gateway: Gateway, provider: Provider) -> None:
        """The webhook's `charge_ids` contains the charge. If the provider's webhooks name no charge,
        `charge_ids` is None. [D-35 webhook]
        """
        created = await gateway.create_charge(charge_request())

        sent = provider.webhook(gateway, created)
        if sent is None:
            return
        hint = gateway.read_webhook(sent)

        assert hint.charge_ids in {None, (created.charge_id,)}
        assert gateway.read_webhook(sent) == hint, "copies have the same id"

    @pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b"[" * 60_000, b'{"chargeId":"sbx_0"}'])
    async def test_an_unauthentic_webhook_is_refused(
        self, gateway: Gateway, provider: Provider, body: bytes
    ) -> None:
        """If the provider does not sign the body, only a header or the query proves who sent the webhook.

        [D-35 webhook refused]
        """
        genuine = provider.webhook(gateway, await gateway.create_charge(charge_request()))
        if genuine is None:
            with pytest.raises(AuthFailedError):
                gateway.read_webhook(Webhook({}, "", body))
            return
        other = await provider.connect()

        text = body.decode("latin-1")
        altered = replace(genuine, body=genuine.body + body + b" ")
        for forged in (
            replace(genuine, headers={}, query="", body=body),
            Webhook(
                {name: f"{value}0" for name, value in genuine.headers.items()},
                f"{genuine.query}0",
                genuine.body,
            ),
            Webhook(dict.fromkeys(genuine.headers, text), f"token={text}", genuine.body),
            *([altered] if provider.signs_webhook_bodies else []),
        ):
            with pytest.raises(AuthFailedError):
                gateway.read_webhook(forged)
        with pytest.raises(AuthFailedError):
            other.read_webhook(genuine)

    async def test_a_product_is_mirrored_once(self, gateway: Gateway, provider: Provider) -> None:
        """[spec 2.2 mirroring]"""
        product = ProductMirror(uuid4(), "Gold", None)
        if not gateway.capabilities().product_catalog:
            with pytest.raises(PermanentError):
                await gateway.mirror_product(product)
            return

        first = await gateway.mirror_product(product)
        second = await gateway.mirror_product(replace(product, name="Gold 2026", description="All of it"))

        assert first == second
        assert await provider.catalog(gateway) == {first: "Gold 2026"}

    async def test_another_connection_does_not_see_the_charge(
        self, gateway: Gateway, provider: Provider
    ) -> None:
        created = await gateway.create_charge(charge_request())
        other = await provider.connect()

        assert await other.find_charges(created.invoice_id, 1) == []
        with pytest.raises(NotFoundError):
            await other.get_charge(created.charge_id)
        with pytest.raises(NotFoundError):
            await other.cancel_charge(created.charge_id)
        assert _without_pay(await gateway.get_charge(created.charge_id)) == _without_pay(created)


def _without_pay(charge: Charge) -> Charge:
    """Return a charge without its pay data, which only `create_charge` and `find_charges` must return in full."""
    return replace(charge, pay=NO_PAY_DATA)
