"""The contract suite against a bank with the Pix API, and tests of what only this adapter does (D-262)."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from fatura.domain.payments import EntryKind
from fatura.gateways.adapters.pix.charges import MAX_ATTEMPT, reference_of, txid_of
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.checked import CheckedGateway
from fatura.gateways.http import ProviderClient
from fatura.gateways.port import (
    Charge,
    ChargeState,
    Gateway,
    NotFoundError,
    PermanentError,
    Refund,
    RefundState,
    TransientError,
    UnknownOutcomeError,
)
from tests.contract.gateway_contract import GatewayContract
from tests.contract.pix_provider import CHARGE, PixProvider, config_of
from tests.contract.provider import NOW, charge_request, charges_listed, refund_request
from tests.contract.refund_contract import RefundContract
from tests.doubles.pix.contract import given_contract
from tests.doubles.pix.server import open_double
from tests.doubles.server import Loss


@pytest.fixture
async def provider() -> AsyncGenerator[PixProvider]:
    """Run a double; if the document is given, fail the test when an exchange contradicts it."""
    async with open_double(lambda: NOW, given_contract()) as double:
        client = ProviderClient(is_exempt=True, new_ssl_context=double.client_context)
        yield PixProvider(double, client)
        await client.close()
    assert double.violations == []


@pytest.fixture
async def gateway(provider: PixProvider) -> Gateway:
    return await provider.connect()


class TestPix(GatewayContract):
    """[D-262, D-33]"""


class TestPixRefunds(RefundContract):
    """[D-262, D-53]"""


def test_the_id_of_a_charge_contains_its_reference() -> None:
    """[D-262, D-33]"""
    for number in (0, 1, 2**127, 2**128 - 1, *(uuid4().int for _ in range(200))):
        for attempt in (0, 1, 35, 36, MAX_ATTEMPT):
            txid = txid_of(UUID(int=number), attempt)
            assert (len(txid), txid.isalnum()) == (34, True)
            assert reference_of(txid) == (UUID(int=number), attempt)
    for other in (
        "",
        uuid4().hex,
        "fatura",
        f"fatura{25 * 'z'}001",
        f"FATURA{28 * '0'}",
        f"fatura{28 * '0'}\n",
    ):
        assert reference_of(other) is None
    with pytest.raises(PermanentError):
        txid_of(uuid4(), MAX_ATTEMPT + 1)


async def test_the_payer_gets_a_code(gateway: Gateway, provider: PixProvider) -> None:
    """The code can be paid until the end of the last day in Sao Paulo. [D-262, D-49]"""
    charge = await gateway.create_charge(charge_request())
    stored = provider.account(gateway).charge(charge.charge_id)

    assert charge.pay.pix_code == stored["pixCopiaECola"]
    assert charge.pay.expires_at == datetime(2026, 4, 15, 2, 59, 59, tzinfo=UTC)
    assert stored["devedor"] == {"cpf": "52998224725", "nome": "Ana Souza"}
    assert (stored["valor"], stored["solicitacaoPagador"]) == ({"original": "99.90"}, "Gold")


async def test_a_code_is_made_from_the_location(gateway: Gateway, provider: PixProvider) -> None:
    """The Pix API's document does not require `pixCopiaECola`. [D-262]"""
    provider.double.edit = lambda answer: answer.pop("pixCopiaECola", None)
    charge = await gateway.create_charge(charge_request())

    location = provider.account(gateway).charge(charge.charge_id)["location"]
    code = charge.pay.pix_code or ""
    assert code.startswith("000201")
    assert f"25{len(location)}{location}" in code
    assert "5917Academia Sao Jose" in code
    assert "6009Sao Paulo" in code


async def test_amounts_are_exact(gateway: Gateway, provider: PixProvider) -> None:
    """[D-262, D-8]"""
    for amount_cents in (1, 10, 99, 100, 1001, 123_456_789, 999_999_999_999):
        charge = await gateway.create_charge(replace(charge_request(), amount_cents=amount_cents))
        await provider.pay(gateway, charge)
        paid = await gateway.get_charge(charge.charge_id)
        assert (paid.amount_cents, paid.entries[0].amount_cents) == (amount_cents, amount_cents)
    with pytest.raises(PermanentError):
        await gateway.create_charge(replace(charge_request(), amount_cents=10**12))


@pytest.mark.parametrize(
    ("document", "code"),
    [(None, "document_required"), ("AR 20-12345678-9", "document_invalid"), ("123", "document_invalid")],
)
async def test_a_document_is_required(
    gateway: Gateway, provider: PixProvider, document: str | None, code: str
) -> None:
    """Without a CPF or CNPJ, no call is made. [D-262]"""
    request = charge_request()
    with pytest.raises(PermanentError) as refusal:
        await gateway.create_charge(replace(request, payer=replace(request.payer, document=document)))
    assert refusal.value.code == code
    assert provider.double.requests == []


async def test_a_company_is_charged_by_its_cnpj(gateway: Gateway, provider: PixProvider) -> None:
    """[D-262]"""
    request = charge_request()
    company = replace(request.payer, document="12.abc.345/01DE-35")
    charge = await gateway.create_charge(replace(request, payer=company))
    debtor = provider.account(gateway).charge(charge.charge_id)["devedor"]
    assert debtor["cnpj"] == "12ABC34501DE35"


async def test_the_reason_of_a_refusal_is_shown(gateway: Gateway, provider: PixProvider) -> None:
    """[D-262, D-34]"""
    provider.account(gateway).pix_key = "another@example.com"
    with pytest.raises(PermanentError) as refusal:
        await gateway.create_charge(charge_request())
    assert refusal.value.code == "CobVOperacaoInvalida"
    assert "cobv.chave" in refusal.value.detail


@pytest.mark.parametrize("loss", [Loss.ERROR_AFTER, Loss.JUNK])
async def test_a_lost_answer_is_repeated(gateway: Gateway, provider: PixProvider, loss: Loss) -> None:
    """The bank refuses the repeat, because the id is used, and the charge is read. [D-33, D-262]"""
    request = charge_request()
    provider.double.fail_next("PUT", CHARGE, loss)
    with pytest.raises(UnknownOutcomeError):
        await gateway.create_charge(request)

    provider.double.fail_next("GET", CHARGE, Loss.ERROR_BEFORE)
    with pytest.raises(UnknownOutcomeError):  # the charge may exist, so this is not a refusal
        await gateway.create_charge(request)
    charge = await gateway.create_charge(request)
    assert await gateway.find_charges(request.invoice_id, 1) == [charge]


async def test_lost_answers_never_make_a_second_charge(gateway: Gateway, provider: PixProvider) -> None:
    """30 % of the answers of 200 charges are lost. Each request is repeated, as the engine does. [D-33, D-262]"""
    chance = random.Random(262)  # noqa: S311 - no secret
    losses = [Loss.REQUEST, Loss.ANSWER, Loss.ERROR_BEFORE, Loss.ERROR_AFTER, Loss.JUNK, Loss.RATE]
    provider.double.fails = lambda _method, _path: chance.choice(losses) if chance.random() < 0.3 else None
    requests = [replace(charge_request(), amount_cents=1000 + number) for number in range(200)]

    async def create(number: int) -> Charge:
        while True:
            try:
                return await gateway.create_charge(requests[number])
            except (UnknownOutcomeError, TransientError):
                await asyncio.sleep(0)

    made = await asyncio.gather(*map(create, range(200)))
    provider.double.fails = lambda _method, _path: None
    stored = provider.account(gateway).charges
    assert len(stored) == 200
    for request, charge in zip(requests, made, strict=True):
        assert await gateway.find_charges(request.invoice_id, 1) == [charge]
        assert (charge.state, charge.amount_cents) == (ChargeState.OPEN, request.amount_cents)
        assert stored[charge.charge_id]["valor"]["original"].replace(".", "") == str(request.amount_cents)


async def test_unknown_fields_are_ignored(gateway: Gateway, provider: PixProvider) -> None:
    """[D-262, D-34]"""

    def edit(answer: Any) -> None:
        for each in [answer, *answer.get("cobs", []), *answer.get("pix", [])]:
            each["novidade"] = {"valor": 1.5}

    provider.double.edit = edit
    created = await gateway.create_charge(charge_request())
    await provider.pay(gateway, created)
    assert (await gateway.get_charge(created.charge_id)).state is ChargeState.PAID
    assert len(await charges_listed(gateway, NOW)) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "EM_ANALISE"},
        {"valor": {"original": 99.9}},
        {"valor": {"original": "99.905"}},
        {"valor": {"original": "1e2"}},
        {"calendario": {"criacao": "ontem"}},
        {"calendario": {"criacao": "2026-03-10T12:00:00Z", "dataDeVencimento": 1}},
        {"status": "CONCLUIDA", "pix": []},
    ],
)
async def test_an_unreadable_charge_does_not_hide_the_others(
    gateway: Gateway, provider: PixProvider, wrong: dict[str, object]
) -> None:
    """[D-50, D-262]"""
    checked = CheckedGateway(gateway, currency="BRL", now=NOW)
    made = [await gateway.create_charge(charge_request()) for _ in range(3)]
    provider.double.contract = None
    bad = made[1].charge_id

    def edit(answer: Any) -> None:
        for each in [answer, *answer.get("cobs", [])]:
            if each.get("txid") == bad:
                each.update(wrong)

    provider.double.edit = edit
    with pytest.raises(InvalidFieldError):
        await checked.get_charge(bad)
    listed = [each async for each in checked.listed_since(NOW) if not isinstance(each, datetime)]
    assert {each.charge_id for each in listed if isinstance(each, Charge)} == {
        made[0].charge_id,
        made[2].charge_id,
    }
    assert len(listed) == 3


async def test_a_charge_that_the_bank_removed_is_closed(gateway: Gateway, provider: PixProvider) -> None:
    """The merchant did not cancel it, so the invoice becomes overdue. [D-262, D-26]"""
    created = await gateway.create_charge(charge_request())
    provider.account(gateway).charge(created.charge_id)["status"] = "REMOVIDA_PELO_PSP"
    assert (await gateway.get_charge(created.charge_id)).state is ChargeState.EXPIRED
    assert (await gateway.cancel_charge(created.charge_id)).state is ChargeState.EXPIRED


async def test_all_windows_of_a_list_are_read_in_order(provider: PixProvider) -> None:
    """A window with too many charges is read in halves, and a full second page by page. [D-161, D-262]"""
    account = provider.double.open_account()
    gateway = provider.gateway(account)
    instants = [
        NOW - timedelta(days=9),
        *(NOW - timedelta(hours=5, seconds=each) for each in range(150)),
        NOW,
    ]
    crowded = NOW - timedelta(days=2, microseconds=1000)
    made = list[tuple[datetime, str]]()
    for at in [*instants, *([crowded] * 230)]:
        account.now = lambda at=at: at
        made.append((at, (await gateway.create_charge(charge_request())).charge_id))
    account.create("7978c0c97ea847e78e8849634473c1f1", _body_of(account))
    listed = await charges_listed(gateway, NOW - timedelta(days=10))

    assert sorted(each.charge_id for each in listed) == sorted(txid for _, txid in made)
    assert [each.created_at for each in listed] == sorted(at for at, _ in made)
    since = [
        each
        async for each in gateway.charges_since(NOW - timedelta(hours=5, seconds=10))
        if isinstance(each, Charge)
    ]
    assert len(since) == 12


def _body_of(account: Any) -> Any:
    """Return a charge that another program of the merchant creates."""
    return {
        "calendario": {"dataDeVencimento": "2026-03-20"},
        "devedor": {"cpf": "52998224725", "nome": "Bia"},
        "valor": {"original": "1.00"},
        "chave": account.pix_key,
    }


async def test_a_charge_of_another_program_is_never_touched(gateway: Gateway, provider: PixProvider) -> None:
    """[D-262]"""
    account, txid = provider.account(gateway), "7978c0c97ea847e78e8849634473c1f1"
    account.create(txid, _body_of(account))
    account.pay(txid)
    for call in (gateway.get_charge, gateway.cancel_charge):
        with pytest.raises(NotFoundError):
            await call(txid)
    with pytest.raises(NotFoundError):
        await gateway.refund_charge(replace(refund_request(_some_charge(), 100), charge_id=txid))
    assert await charges_listed(gateway, NOW) == []
    assert provider.double.requests[:-1] == [("POST", "/oauth/token")][: len(provider.double.requests) - 1]


def _some_charge() -> Charge:
    return Charge("x", uuid4(), 1, ChargeState.OPEN, 1000)


async def test_a_refund_is_pending_until_the_bank_settles_it(gateway: Gateway, provider: PixProvider) -> None:
    """[D-53, D-262]"""
    account = provider.account(gateway)
    account.refunds_done = False
    created = await gateway.create_charge(charge_request())
    await provider.pay(gateway, created)
    request = refund_request(created, 4000)
    pending = await gateway.refund_charge(request)

    assert pending.refunds == (Refund(request.refund_id, RefundState.PENDING),)
    assert [each.kind for each in pending.entries] == [EntryKind.PAYMENT]
    (refund,) = account.charge(created.charge_id)["pix"][0]["devolucoes"]
    refund.update(status="NAO_REALIZADO", motivo="Negado por timeout")
    failed = await gateway.get_charge(created.charge_id)
    assert failed.refunds == (Refund(request.refund_id, RefundState.FAILED, detail="Negado por timeout"),)
    assert await gateway.refund_charge(request) == failed
    provider.double.contract = None
    refund.update(status="AGUARDANDO")
    assert (await gateway.get_charge(created.charge_id)).refunds == pending.refunds


async def test_a_refused_repeat_of_a_refund_is_looked_up(gateway: Gateway, provider: PixProvider) -> None:
    """Some banks refuse a repeated refund. [D-53, D-262]"""
    created = await gateway.create_charge(charge_request())
    await provider.pay(gateway, created)
    request = refund_request(created, 9990)
    refunded = await gateway.refund_charge(request)
    shown = refunded
    hidden = [True]

    def edit(answer: Any) -> None:
        if hidden and "pix" in answer:  # the bank does not show the refund at once
            hidden.clear()
            answer["pix"][0].pop("devolucoes")

    provider.double.edit = edit
    assert await gateway.refund_charge(request) == shown
    assert len(provider.account(gateway).charge(created.charge_id)["pix"][0]["devolucoes"]) == 1


async def test_a_webhook_names_the_engines_charges(gateway: Gateway, provider: PixProvider) -> None:
    """A test of the bank and a payment to the Pix key itself name no charge. [D-35 webhook, D-262]"""
    created = await gateway.create_charge(charge_request())
    genuine = provider.webhook(gateway, created)
    token = config_of(gateway).settings["webhookToken"]
    both = {
        "pix": [
            {"txid": created.charge_id},
            {"txid": created.charge_id},
            {"endToEndId": "E1"},
            {"txid": "../x"},
        ]
    }
    for query in (f"token={token}", f"token={token}&ignorar=/pix", f"a=1&token={token}/pix"):
        for body, named in ((both, (created.charge_id,)), ({"evento": "teste_webhook"}, ()), ({}, ())):
            webhook = replace(genuine, query=query, body=json.dumps(body).encode())
            assert gateway.read_webhook(webhook).charge_ids == named


async def test_a_notice_about_a_refund_is_another_event(gateway: Gateway, provider: PixProvider) -> None:
    """[D-266 copies]"""
    genuine = provider.webhook(gateway, await gateway.create_charge(charge_request()))
    [pix] = json.loads(genuine.body)["pix"]
    refunds = [
        [{"id": "d1", "valor": "1.00", "status": status}] for status in ("EM_PROCESSAMENTO", "DEVOLVIDO")
    ]
    notices = [{"pix": [pix]}, *[{"pix": [pix | {"devolucoes": each}]} for each in refunds]]
    hints = [
        gateway.read_webhook(replace(genuine, body=json.dumps(each).encode()))
        for each in [*notices, notices[0]]
    ]
    assert len({each.event_id for each in hints}) == 3
    assert hints[0] == hints[3]
