"""The Central Bank's OpenAPI document of the Pix API, which is not part of Fatura.

`make contracts CONTRACTS=<folder>` names the folder with the document.
"""

import json
import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fatura.gateways.adapters.pix.charges import charge_of
from fatura.gateways.adapters.pix.objects import Cobv, refusal
from fatura.gateways.http import ProviderClient
from fatura.gateways.port import NotFoundError, PermanentError
from tests.contract.pix_provider import PixProvider
from tests.contract.provider import NOW, charge_request, charges_listed, refund_request
from tests.doubles.contract import FOLDER, Exchange
from tests.doubles.pix.contract import given_contract
from tests.doubles.pix.server import open_double

pytestmark = pytest.mark.skipif(
    not os.environ.get(FOLDER),
    reason=f"{FOLDER} names no folder with the document of the Pix API; see `make contracts`",
)
USED = {
    ("GET", "/cobv"),
    ("GET", "/cobv/{txid}"),
    ("PATCH", "/cobv/{txid}"),
    ("PUT", "/cobv/{txid}"),
    ("PUT", "/pix/{e2eid}/devolucao/{id}"),
}


async def test_every_operation_matches_the_document() -> None:
    """Each kind of request and answer is checked, also refusals. [D-262]"""
    contract = given_contract()
    assert contract is not None
    async with open_double(lambda: NOW, contract) as double:
        client = ProviderClient(is_exempt=True, new_ssl_context=double.client_context)
        provider = PixProvider(double, client)
        gateway = await provider.connect()
        await gateway.check_credentials()
        paid, canceled = [await gateway.create_charge(charge_request()) for _ in range(2)]
        await provider.pay(gateway, paid)
        await gateway.refund_charge(refund_request(paid, 4000))
        for charge in (canceled, canceled, paid):
            await gateway.cancel_charge(charge.charge_id)
        assert len(await charges_listed(gateway, NOW)) == 2
        with pytest.raises(NotFoundError):
            await gateway.get_charge(f"fatura{28 * '0'}")
        double.accounts[next(iter(double.accounts))].pix_key = "another"
        with pytest.raises(PermanentError):
            await gateway.create_charge(charge_request())
        await client.close()
    assert double.violations == []
    assert contract.used == USED


Change = Callable[[Any], None]


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["valor"].update(original=99.9),
        lambda body: body["valor"].update(original="99.9"),
        lambda body: body["calendario"].update(dataDeVencimento=20260315),
        lambda body: body["calendario"].update(validadeAposVencimento="30"),
        lambda body: body["devedor"].pop("nome"),
        lambda body: body["devedor"].update(cpf="529.982.247-25"),
        lambda body: body.pop("chave"),
        lambda body: body.update(solicitacaoPagador=141 * "x"),
    ],
)
def test_the_document_refuses_wrong_charges(change: Change) -> None:
    """[D-262]"""
    contract = given_contract()
    assert contract is not None
    example = contract.example("cobResponse4")
    body: Any = {
        "calendario": {"dataDeVencimento": "2026-03-15", "validadeAposVencimento": 30},
        "devedor": {"cpf": "52998224725", "nome": "Ana Souza"},
        "valor": {"original": "99.90"},
        "chave": "pix@example.com",
    }
    answer = json.dumps({**example, "location": "pix.example.com/qr/v2/1", "loc": _location()})
    right = Exchange("PUT", f"/cobv/{34 * 'a'}", {}, json.dumps(body).encode(), 201, answer.encode())
    assert contract.violations(right) == []
    change(body)
    wrong = Exchange("PUT", f"/cobv/{34 * 'a'}", {}, json.dumps(body).encode(), 201, answer.encode())
    assert contract.violations(wrong) != []


def _location() -> Any:
    location = {"id": 1, "location": "pix.example.com/qr/v2/1", "tipoCob": "cobv", "txid": 34 * "a"}
    return {**location, "criacao": "2026-03-10T12:00:00Z"}


def test_the_examples_of_the_document_are_read() -> None:
    """[D-262]"""
    contract = given_contract()
    assert contract is not None
    example = {**contract.example("cobResponse4"), "txid": f"fatura{28 * '0'}"}
    charge = charge_of(msgspec.convert(example, type=Cobv))
    assert (charge.amount_cents, str(charge.due_date)) == (12_345, "2020-12-31")
    assert charge.pay.pix_code is not None
    code, text = refusal(json.dumps(contract.example("RequisicaoInvalidaCobVExample1")).encode()) or ("", "")
    assert code == "CobVOperacaoInvalida"
    assert text.endswith("cobv.devedor O objeto cobv.devedor não respeita o _schema_.")
