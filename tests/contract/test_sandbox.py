"""The sandbox gateway passes the contract suite. Merchants can list, pay, refuse, cancel and refund its charges."""

import asyncio
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from uuid import uuid4

import pytest

from fatura.domain.offer import PaymentMethod
from fatura.domain.payments import EntryKind
from fatura.domain.sandbox import MoveDetails, SandboxCharge, SandboxMove, SandboxStatus
from fatura.gateways.port import (
    AuthFailedError,
    Charge,
    ChargeState,
    NotFoundError,
    PermanentError,
    Webhook,
)
from fatura.gateways.sandbox_port import WEBHOOK_SIGNATURE
from fatura.signature import sign
from fatura.store.db import Database
from tests.contract.gateway_contract import GatewayContract
from tests.contract.provider import NOW, charge_request
from tests.contract.refund_contract import RefundContract
from tests.contract.sandbox_provider import SandboxProvider

DUE = datetime(2026, 3, 15, 3, tzinfo=UTC)
"""The first instant of the due date in Sao Paulo."""
MILLISECOND = timedelta(milliseconds=1)


def paid_instant(charge: Charge | SandboxCharge) -> datetime | None:
    """Return the instant of the charge's first payment."""
    payments = (entry.occurred_at for entry in charge.entries if entry.kind is EntryKind.PAYMENT)
    return next(payments, None)


@pytest.fixture
def provider(db: Database) -> SandboxProvider:
    return SandboxProvider(db)


class TestSandbox(GatewayContract):
    """The contract suite [D-44, D-46]."""


class TestSandboxRefunds(RefundContract):
    """The contract suite for refunds [D-53]."""


@pytest.mark.parametrize(
    ("behaviour", "at", "state", "paid_at"),
    [
        ("pay_on_due", NOW, ChargeState.OPEN, None),
        ("pay_on_due", DUE - MILLISECOND, ChargeState.OPEN, None),
        ("pay_on_due", DUE, ChargeState.PAID, DUE),
        ("pay_on_due", DUE + timedelta(days=400), ChargeState.PAID, DUE),
        ("pay_at_once", NOW, ChargeState.PAID, NOW),
        ("pay_at_once", DUE, ChargeState.PAID, NOW),
        ("refuse", NOW, ChargeState.REFUSED, None),
        ("refuse", DUE, ChargeState.REFUSED, None),
        ("never_pay", DUE + timedelta(days=400), ChargeState.OPEN, None),
    ],
)
async def test_payers_behave_as_the_settings_say(
    provider: SandboxProvider, behaviour: str, at: datetime, state: ChargeState, paid_at: datetime | None
) -> None:
    """[D-46]"""
    config = await provider.add(behaviour=behaviour)
    created = await provider.gateway(config).create_charge(charge_request())

    charge = await provider.gateway(replace(config, now=at)).get_charge(created.charge_id)

    assert (charge.state, paid_instant(charge)) == (state, paid_at)


async def test_a_charge_due_today_is_paid_when_it_is_created(provider: SandboxProvider) -> None:
    gateway = provider.gateway(await provider.add())

    charge = await gateway.create_charge(replace(charge_request(), due_date=NOW.date()))

    assert (charge.state, paid_instant(charge)) == (ChargeState.PAID, NOW)


async def test_a_change_with_time_is_stored_when_the_charge_is_read(provider: SandboxProvider) -> None:
    """[D-46]"""
    config = await provider.add()
    created = await provider.gateway(config).create_charge(charge_request())
    due = provider.gateway(replace(config, now=DUE))
    assert [charge.status for charge in await due.charges(created.invoice_id)] == [PAID]

    never = provider.gateway(replace(config, now=DUE, settings={"behaviour": "never_pay"}))

    assert paid_instant(await never.get_charge(created.charge_id)) == DUE


@pytest.mark.parametrize(
    ("behaviour", "state", "paid_at"),
    [
        ("pay_on_due", ChargeState.PAID, DUE),
        ("pay_at_once", ChargeState.PAID, DUE + timedelta(days=5)),
        ("refuse", ChargeState.REFUSED, None),
        ("never_pay", ChargeState.OPEN, None),
    ],
)
async def test_an_open_charge_follows_the_current_settings(
    provider: SandboxProvider, behaviour: str, state: ChargeState, paid_at: datetime | None
) -> None:
    """[D-46]"""
    config = await provider.add(behaviour="never_pay")
    created = await provider.gateway(config).create_charge(charge_request())
    later = replace(config, now=DUE + timedelta(days=5), settings={"behaviour": behaviour})

    (charge,) = await provider.gateway(later).find_charges(created.invoice_id, 1)

    assert (charge.state, paid_instant(charge)) == (state, paid_at)


OPEN, PAID, REFUSED = SandboxStatus.OPEN, SandboxStatus.PAID, SandboxStatus.REFUSED
STATUS_MOVES = (SandboxMove.PAY, SandboxMove.REFUSE, SandboxMove.CANCEL, SandboxMove.REFUND)
CANCELED, REFUNDED = SandboxStatus.CANCELED, SandboxStatus.REFUNDED
WAY_TO = {
    OPEN: [],
    REFUSED: [SandboxMove.REFUSE],
    PAID: [SandboxMove.PAY],
    CANCELED: [SandboxMove.CANCEL],
    REFUNDED: [SandboxMove.PAY, SandboxMove.REFUND],
}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # The state before the move, and the states after pay, refuse, cancel and refund. None: the move is refused.
        (OPEN, (PAID, REFUSED, CANCELED, None)),
        (REFUSED, (PAID, REFUSED, CANCELED, None)),
        (PAID, (PAID, None, None, REFUNDED)),
        (CANCELED, (CANCELED, None, CANCELED, None)),
        (REFUNDED, (None, None, None, REFUNDED)),
    ],
)
async def test_a_merchant_moves_charges(
    provider: SandboxProvider, before: SandboxStatus, after: tuple[SandboxStatus | None, ...]
) -> None:
    """[D-46]"""
    gateway = provider.gateway(await provider.add())
    for move, target in zip(STATUS_MOVES, after, strict=True):
        charge_id = (await gateway.create_charge(charge_request())).charge_id
        for step in WAY_TO[before]:
            await gateway.move_charge(charge_id, step, details=MoveDetails())

        if target is None:
            with pytest.raises(PermanentError) as refusal:
                await gateway.move_charge(charge_id, move, details=MoveDetails())
            assert refusal.value.code == "charge_status"
        else:
            assert (await gateway.move_charge(charge_id, move, details=MoveDetails())).status is target

        (charge,) = [each for each in await gateway.charges(None) if each.charge_id == charge_id]
        assert charge.status is (target or before)
        assert (paid_instant(charge) is not None) is (before in {PAID, REFUNDED} or move is SandboxMove.PAY)


async def test_time_moves_a_charge_before_the_merchant_does(provider: SandboxProvider) -> None:
    config = await provider.add()
    created = await provider.gateway(config).create_charge(charge_request())
    due = provider.gateway(replace(config, now=DUE + timedelta(hours=9)))

    with pytest.raises(PermanentError):
        await due.move_charge(created.charge_id, SandboxMove.REFUSE, details=MoveDetails())

    assert (
        paid_instant(await due.move_charge(created.charge_id, SandboxMove.PAY, details=MoveDetails())) == DUE
    )


async def test_one_of_two_concurrent_refunds_succeeds(provider: SandboxProvider) -> None:
    gateway = provider.gateway(await provider.add())
    for _ in range(8):
        created = await gateway.create_charge(charge_request())
        await gateway.move_charge(created.charge_id, SandboxMove.PAY, details=MoveDetails())

        part = MoveDetails(amount_cents=6000)
        moves = (gateway.move_charge(created.charge_id, SandboxMove.REFUND, details=part) for _ in range(2))
        answers = await asyncio.gather(*moves, return_exceptions=True)

        (made,) = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert [type(answer) for answer in answers if answer is not made] == [PermanentError]
        assert await gateway.charges(created.invoice_id) == [made]


async def test_the_merchant_lists_charges_newest_first(provider: SandboxProvider) -> None:
    """[D-46]"""
    config = await provider.add()
    gateway = provider.gateway(config)
    request = replace(charge_request(PaymentMethod.CARD), installments=3)
    first, other, second = [await gateway.create_charge(r) for r in (request, charge_request(), request)]

    listed = await gateway.charges(request.invoice_id)

    assert [charge.charge_id for charge in listed] == [second.charge_id, first.charge_id]
    assert (listed[0].connection_id, listed[0].invoice_id) == (config.connection_id, request.invoice_id)
    assert (listed[0].amount_cents, listed[0].method, listed[0].installments) == (9990, "card", 3)
    assert (listed[0].due_date, listed[0].status) == (date(2026, 3, 15), "open")
    everything = [second.charge_id, other.charge_id, first.charge_id]
    assert [charge.charge_id for charge in await gateway.charges(None)] == everything
    assert await gateway.charges(uuid4()) == []


async def test_connections_of_one_account_have_separate_charges(provider: SandboxProvider) -> None:
    config = await provider.add(productCatalog=True)
    created = await provider.gateway(config).create_charge(charge_request())
    neighbour = provider.gateway(await provider.add(account_id=config.account_id, productCatalog=True))

    assert await neighbour.charges(None) == []
    assert await neighbour.products() == []
    with pytest.raises(NotFoundError):
        await neighbour.move_charge(created.charge_id, SandboxMove.PAY, details=MoveDetails())


async def test_a_webhook_of_a_connection_without_a_secret_is_refused(provider: SandboxProvider) -> None:
    """[D-35 webhook refused]"""
    gateway = provider.gateway(await provider.add())
    signed = sign(b"{}", ["None"], timestamp=int(time.time()))

    with pytest.raises(AuthFailedError):
        gateway.read_webhook(Webhook({WEBHOOK_SIGNATURE: signed}, "", b"{}"))


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", None),
        (b"{}", None),
        (b"[]", None),
        (b'{"chargeId": null}', None),
        (b"\xff", None),
        (b"[" * 60_000, None),
        (b'{"chargeId": "sbx_1\\u0000"}', ()),
        (b'{"chargeId": "\\ud800"}', ()),
        (b'{"chargeId": "sbx_00000000000000000000000000000001"}', ("sbx_00000000000000000000000000000001",)),
    ],
)
async def test_the_charges_named_by_an_authentic_webhook(
    provider: SandboxProvider, body: bytes, named: tuple[str, ...] | None
) -> None:
    """If the body has no charge id, `charge_ids` is None. If the id is malformed, `charge_ids` is empty.
    [D-35 webhook]
    """
    gateway = provider.gateway(await provider.add(webhookSecret="s" * 16))
    headers = {WEBHOOK_SIGNATURE: sign(body, ["s" * 16], timestamp=int(time.time()))}

    assert gateway.read_webhook(Webhook(headers, "", body)).charge_ids == named


async def test_an_old_webhook_is_refused(provider: SandboxProvider) -> None:
    """The timestamp of a webhook's signature must be close to real time, not to the account's clock.

    [D-35 webhook refused]
    """
    gateway = provider.gateway(await provider.add(webhookSecret="s" * 16))
    for age_seconds in (-400, 400):
        signed = sign(b"{}", ["s" * 16], timestamp=int(time.time()) - age_seconds)
        with pytest.raises(AuthFailedError):
            gateway.read_webhook(Webhook({WEBHOOK_SIGNATURE: signed}, "", b"{}"))
