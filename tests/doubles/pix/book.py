"""The accounts of the simulated bank: charges with a due date, payments, and what the Pix API's document refuses."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any
from uuid import uuid4

Json = dict[str, Any]

TXID = re.compile("[a-zA-Z0-9]{26,35}")
REFUND_ID = re.compile("[a-zA-Z0-9]{1,35}")
AMOUNT = re.compile(r"\d{1,10}\.\d{2}")
MAX_PAGE = 1000
DEFAULT_PAGE = 100
MAX_DAYS = timedelta(days=5)
"""Longest interval of a list. The document names no limit, but banks have one."""
REMOVED = "REMOVIDA_PELO_USUARIO_RECEBEDOR"
_ERRORS = "https://pix.bcb.gov.br/api/v2/error"


class RefusedError(Exception):
    """A request that the bank answers with a problem (RFC 7807)."""

    def __init__(self, kind: str, detail: str, *, status: int = 400, field: str | None = None) -> None:
        super().__init__(kind)
        self.status = status
        self.body: Json = {"type": f"{_ERRORS}/{kind}", "title": kind, "status": status, "detail": detail}
        if field is not None:
            self.body["violacoes"] = [{"propriedade": field, "razao": "O campo não respeita o schema."}]


@dataclass(slots=True)
class Account:
    """An account at the simulated bank. `now` returns the bank's time."""

    now: Callable[[], datetime]
    pix_key: str
    client_id: str = field(default_factory=lambda: f"Client_Id_{uuid4().hex}")
    client_secret: str = field(default_factory=lambda: f"Client_Secret_{uuid4().hex}")
    refunds_done: bool = True
    """Whether refunds are settled at once."""
    charges: dict[str, Json] = field(default_factory=dict[str, Json])

    def create(self, txid: str, body: Json) -> tuple[int, Json]:
        if not TXID.fullmatch(txid):
            raise _invalid("cobv.txid")
        self._check(body)
        if txid in self.charges:
            raise RefusedError("CobVOperacaoInvalida", "O txid já foi utilizado.")
        location = f"pix.bank.example/qr/v2/cobv/{uuid4().hex}"
        calendar = {"validadeAposVencimento": 30, **body["calendario"], "criacao": _text(self.now())}
        self.charges[txid] = {
            **body,
            "calendario": calendar,
            "txid": txid,
            "revisao": 0,
            "loc": {"id": len(self.charges) + 1, "location": location, "tipoCob": "cobv", "txid": txid},
            "location": location,
            "status": "ATIVA",
            "recebedor": {
                "cnpj": "11222333000181",
                "nome": "Academia São José",
                "logradouro": "Rua 1",
                "cidade": "São Paulo",
                "uf": "SP",
                "cep": "01001000",
            },
            "pixCopiaECola": f"00020126BR.GOV.BCB.PIX25{location}",
        }
        self.charges[txid]["loc"]["criacao"] = calendar["criacao"]
        return 201, self.charges[txid]

    def charge(self, txid: str) -> Json:
        if txid not in self.charges:
            raise RefusedError("NaoEncontrado", "Entidade não encontrada.", status=404)
        return self.charges[txid]

    def revise(self, txid: str, body: Json) -> tuple[int, Json]:
        charge = self.charge(txid)
        if charge["status"] != "ATIVA":
            raise RefusedError("CobVOperacaoInvalida", "Cobrança não encontra-se mais com o status ATIVA.")
        if body != {"status": REMOVED}:
            raise _invalid("cobv.status")
        charge.update(status=REMOVED, revisao=charge["revisao"] + 1)
        return 200, charge

    def listed(self, query: Json) -> tuple[int, Json]:
        """Return a page of the charges, in no useful order. Both ends of the interval belong to it."""
        try:
            begin, end = (datetime.fromisoformat(query[name]) for name in ("inicio", "fim"))
        except (KeyError, ValueError):
            raise _invalid("cobv.inicio") from None
        page, size = (
            int(query.get("paginacao.paginaAtual", 0)),
            int(query.get("paginacao.itensPorPagina", 100)),
        )
        if not (page >= 0 and 1 <= size <= MAX_PAGE and begin <= end and end - begin <= MAX_DAYS):
            raise _invalid("cobv.paginacao")
        found = [
            each
            for each in sorted(self.charges.values(), key=lambda each: each["txid"])
            if begin <= datetime.fromisoformat(each["calendario"]["criacao"]) <= end
        ]
        pagination = {
            "paginaAtual": page,
            "itensPorPagina": size,
            "quantidadeDePaginas": max(1, -(-len(found) // size)),
            "quantidadeTotalDeItens": len(found),
        }
        cobs = [{"idCob": each["txid"], **each} for each in found[page * size : (page + 1) * size]]
        parameters = {"inicio": query["inicio"], "fim": query["fim"], "paginacao": pagination}
        return 200, {"parametros": parameters, "cobs": cobs}

    def pay(self, txid: str) -> None:
        charge = self.charges[txid]
        assert charge["status"] == "ATIVA", "only an active charge is paid"
        payment = {
            "endToEndId": f"E12345678{uuid4().hex[:23]}",
            "txid": txid,
            "valor": charge["valor"]["original"],
            "componentesValor": {"original": {"valor": charge["valor"]["original"]}},
            "chave": self.pix_key,
            "horario": _text(self.now()),
        }
        charge.update(status="CONCLUIDA", pix=[payment])

    def refund(self, end_to_end_id: str, refund_id: str, body: Json) -> tuple[int, Json]:
        payment = next(
            (
                pix
                for each in self.charges.values()
                for pix in each.get("pix", ())
                if pix["endToEndId"] == end_to_end_id
            ),
            None,
        )
        if payment is None:
            raise RefusedError("NaoEncontrado", "Entidade não encontrada.", status=404)
        done: list[Json] = payment.setdefault("devolucoes", [])
        known = [each for each in done if each["id"] == refund_id]
        if known:
            return 201, known[0]
        amount = body.get("valor", "")
        if not (REFUND_ID.fullmatch(refund_id) and AMOUNT.fullmatch(amount)):
            raise RefusedError("PixDevolucaoInvalida", "A devolução não respeita o schema.")
        left = _cents(payment["valor"]) - sum(
            _cents(each["valor"]) for each in done if each["status"] != "NAO_REALIZADO"
        )
        if not 0 < _cents(amount) <= left:
            raise RefusedError("PixDevolucaoInvalida", "O valor excede o saldo do Pix.")
        requested = {"solicitacao": _text(self.now())}
        settled = {"liquidacao": _text(self.now())} if self.refunds_done else {}
        done.append(
            {
                **body,
                "id": refund_id,
                "rtrId": f"D12345678{uuid4().hex[:23]}",
                "horario": {**requested, **settled},
                "status": "DEVOLVIDO" if self.refunds_done else "EM_PROCESSAMENTO",
            }
        )
        return 201, done[-1]

    def _check(self, body: Json) -> None:
        if body.keys() - {"calendario", "devedor", "valor", "chave", "solicitacaoPagador"}:
            raise _invalid("cobv")
        calendar, debtor = body.get("calendario", {}), body.get("devedor", {})
        if date.fromisoformat(calendar.get("dataDeVencimento", "1900-01-01")) < self.now().date():
            raise _invalid("cobv.calendario.dataDeVencimento")
        documents = [debtor.get("cpf", ""), debtor.get("cnpj", "")]
        patterns = (r"\d{11}", r"[0-9A-Z]{14}")
        is_person = [re.fullmatch(*pair) is not None for pair in zip(patterns, documents, strict=True)]
        if sum(is_person) != 1 or not 1 <= len(debtor.get("nome", "")) <= 200:
            raise _invalid("cobv.devedor")
        amount = body.get("valor", {}).get("original")
        if not isinstance(amount, str) or not AMOUNT.fullmatch(amount) or _cents(amount) == 0:
            raise _invalid("cobv.valor.original")
        if body.get("chave") != self.pix_key:
            raise _invalid("cobv.chave")
        if len(body.get("solicitacaoPagador", "")) > 140:
            raise _invalid("cobv.solicitacaoPagador")


def _invalid(name: str) -> RefusedError:
    return RefusedError("CobVOperacaoInvalida", "A requisição não respeita o schema.", field=name)


def _cents(amount: str) -> int:
    return int(amount.replace(".", ""))


def _text(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
