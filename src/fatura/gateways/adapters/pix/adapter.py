"""The provider `pix`: charges with a due date at a bank with the Central Bank's Pix API, for live accounts (D-262).

The engine's reference is the charge's id at the bank. A repeated request finds the existing charge (D-33).
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import ClassVar
from uuid import UUID

import msgspec

from fatura.domain.offer import PaymentMethod
from fatura.gateways import port
from fatura.gateways.adapters.pix import charges
from fatura.gateways.adapters.pix.banks import BANKS, Bank
from fatura.gateways.adapters.pix.charges import charge_of, reference_of, txid_of
from fatura.gateways.adapters.pix.objects import (
    MAX_CENTS,
    Cobv,
    Devolucao,
    Page,
    Pix,
    reais,
    refusal,
    timestamp,
)
from fatura.gateways.adapters.pix.settings import PixSettings, parse
from fatura.gateways.adapters.pix.webhook import hint
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.http import Access, ProviderCalls, ProviderClient, reading

PAGE_SIZE = 100
"""Number of charges in a page. All banks allow it."""
FIRST_WINDOW = timedelta(days=1)
LONGEST_WINDOW = timedelta(days=4)
"""Longest interval of one list. Banco do Brasil refuses intervals of more than five days."""
SHORTEST_WINDOW = timedelta(seconds=1)
POLLS_PER_MINUTE = 300
_MAX_NAME = 200
_MAX_TEXT = 140
_SEPARATORS = re.compile(r"[.\-/ ]")
_CPF = re.compile("[0-9]{11}")
_CNPJ = re.compile("[0-9A-Z]{14}")
_DUPLICATE = 409


class PixGateway:
    """One connection to an account at a bank; implements `port.Gateway`."""

    provider: ClassVar[str] = "pix"
    __slots__ = ("_banks", "_client", "_config")

    def __init__(
        self, client: ProviderClient, config: port.ConnectionConfig, *, banks: Mapping[str, Bank] = BANKS
    ) -> None:
        self._client = client
        self._config = config
        self._banks = banks

    def capabilities(self) -> port.Capabilities:
        settings = self._settings()
        return port.Capabilities(
            issues_charges=True,
            methods=(PaymentMethod.PIX,),
            max_installments=1,
            product_catalog=False,
            idempotency="natural_id",
            lists_charges=True,
            refunds="key",
            polls_per_minute=POLLS_PER_MINUTE,
            credentials_expire_at=settings.certificate.expires_at,
        )

    async def check_credentials(self) -> str:
        """Return the bank and the Pix key, because a Pix key belongs to one account. The Pix API has no account id."""
        with reading():
            await self._page(self._config.now - timedelta(minutes=1), self._config.now, size=1)
        return self._settings().account

    async def create_charge(self, request: port.ChargeRequest) -> port.Charge:
        """Create a charge. If the bank refuses a repeated request, return the existing charge.

        Raises PermanentError `document_required` or `document_invalid` without a call.
        """
        txid, settings = txid_of(request.invoice_id, request.attempt), self._settings()
        body = _body(request, settings)
        calls = self._calls(settings)
        try:
            return charge_of(await calls.write("PUT", f"/cobv/{txid}", answer=Cobv, body=body))
        except (port.PermanentError, port.UnknownOutcomeError) as error:
            if isinstance(error, port.UnknownOutcomeError) and error.http_status != _DUPLICATE:
                raise
            return await self._existing(calls, txid, error)

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[port.Charge]:
        try:
            return [await self.get_charge(txid_of(invoice_id, attempt))]
        except port.NotFoundError:
            return []

    async def get_charge(self, charge_id: str) -> port.Charge:
        with reading():
            return charge_of(await self._read(self._calls(), charge_id))

    async def charges_since(self, since: datetime) -> AsyncIterator[port.Charge | datetime]:
        """Yield the charges window by window, because banks limit the interval of a list and do not sort it.

        A window with more charges than a page has is read again in halves.
        """
        begin, last = since.replace(microsecond=0), self._config.now + SHORTEST_WINDOW
        window, seen = FIRST_WINDOW, set[str]()
        while begin < last:
            end = min(begin + window, last)
            with reading():
                cobs = await self._window(begin, end)
            if cobs is None:
                window = max(SHORTEST_WINDOW, timedelta(seconds=(end - begin) // timedelta(seconds=2)))
                yield begin
                continue
            listed = [found for each in cobs if (found := await self._listed(each)) is not None]
            for charge in sorted(listed, key=_created_at):
                if charge.charge_id not in seen and (charge.created_at is None or charge.created_at >= since):
                    yield charge
            if not listed:
                yield end
            # the next window begins with the last instant of this one
            seen = {each.charge_id for each in listed}
            begin, window = end, min(window * 2, LONGEST_WINDOW)

    async def cancel_charge(self, charge_id: str) -> port.Charge:
        _check_id(charge_id)
        calls = self._calls()
        body = {"status": "REMOVIDA_PELO_USUARIO_RECEBEDOR"}
        try:
            removed = await calls.write(
                "PATCH", f"/cobv/{charge_id}", answer=Cobv, body=body, may_be_absent=True
            )
        except port.PermanentError as refused:
            charge = await self._existing(calls, charge_id, refused)
            if charge.is_payable:
                raise refused from None
            return charge
        return charge_of(removed)

    async def refund_charge(self, request: port.RefundRequest) -> port.Charge:
        """Refund a payment of the charge. The bank makes one refund for each `refund_id`.

        Raises NotFoundError, UnknownOutcomeError, and PermanentError, also if no payment has enough left.
        """
        calls = self._calls()
        with reading():
            cobv = await self._read(calls, request.charge_id)
        if charges.own_refund(cobv, request.refund_id) is not None:
            return charge_of(cobv)
        payment = charges.refundable(cobv, request.amount_cents)
        if payment is None:
            raise port.PermanentError("charge_status", "No payment of the charge has so much left to refund.")
        try:
            refund = await self._refund(calls, payment, request)
        except port.PermanentError as refused:
            with reading():
                cobv = await self._read(calls, request.charge_id)
            if charges.own_refund(cobv, request.refund_id) is None:
                raise refused from None
            return charge_of(cobv)
        return charge_of(charges.with_refund(cobv, payment, refund=refund))

    def read_webhook(self, webhook: port.Webhook) -> port.WebhookHint:
        """Compare the token in the URL with the setting `webhookToken`. Raises AuthFailedError."""
        return hint(webhook, token=self._config.settings.get("webhookToken"))

    async def mirror_product(self, product: port.ProductMirror) -> str:  # noqa: ARG002 - part of the interface
        """Raises PermanentError `no_catalog`."""
        raise port.PermanentError("no_catalog", "The Pix API has no product catalog.")

    def _settings(self) -> PixSettings:
        return parse(self._config.settings, self._config.credentials, banks=self._banks)

    def _calls(self, settings: PixSettings | None = None) -> ProviderCalls:
        """Return the calls of the connection. Raises AuthFailedError if the certificate has expired."""
        settings = settings or self._settings()
        expires_at = settings.certificate.expires_at
        if expires_at <= self._config.now:
            message = f"expired on {expires_at.date()}; get a new one from the bank"
            raise port.AuthFailedError("the certificate expired", field=("credentials.certificate", message))
        bank = settings.bank
        app_key = (
            {bank.app_key_parameter: settings.app_key} if bank.app_key_parameter and settings.app_key else {}
        )
        return self._client.calls(
            settings.urls.api,
            headers=bank.headers(settings.client_id),
            connection_id=self._config.connection_id,
            refusal=refusal,
            access=Access(
                query=app_key,
                certificate=settings.certificate,
                tokens=bank.token_request(
                    settings.urls.token, client_id=settings.client_id, client_secret=settings.client_secret
                ),
            ),
        )

    async def _read(self, calls: ProviderCalls, charge_id: str) -> Cobv:
        """Read a charge. Raises NotFoundError."""
        _check_id(charge_id)
        return await calls.read(f"/cobv/{charge_id}", Cobv, may_be_absent=True)

    async def _existing(
        self, calls: ProviderCalls, charge_id: str, refused: port.GatewayError
    ) -> port.Charge:
        """Return the charge about which the bank refused a request. Raises `refused` if there is no such charge.

        Raises UnknownOutcomeError if the charge cannot be read, because it may exist.
        """
        try:
            return charge_of(await self._read(calls, charge_id))
        except port.NotFoundError:
            raise refused from None
        except (port.TransientError, port.PermanentError) as error:
            raise port.UnknownOutcomeError(str(error), http_status=error.http_status) from None

    async def _refund(self, calls: ProviderCalls, payment: Pix, request: port.RefundRequest) -> Devolucao:
        if not charges.END_TO_END_ID.fullmatch(payment.end_to_end_id):
            raise InvalidFieldError("the id of a payment is invalid")
        body = {"valor": reais(request.amount_cents)}
        if request.reason:
            body["descricao"] = request.reason[:_MAX_TEXT]
        refund_id = charges.refund_id_of(request.refund_id)
        path = f"/pix/{payment.end_to_end_id}/devolucao/{refund_id}"
        refund = await calls.write("PUT", path, answer=Devolucao, body=body)
        if refund.id != refund_id:
            raise InvalidFieldError("the bank's answer is about another refund")
        return refund

    async def _page(self, begin: datetime, end: datetime, *, number: int = 0, size: int = PAGE_SIZE) -> Page:
        query = {
            "inicio": timestamp(begin),
            "fim": timestamp(end),
            "paginacao.paginaAtual": str(number),
            "paginacao.itensPorPagina": str(size),
        }
        return await self._calls().read("/cobv", Page, query=query)

    async def _window(self, begin: datetime, end: datetime) -> Sequence[msgspec.Raw] | None:
        """Return the charges that were created from `begin` to `end`, or None if they do not fit into one page.

        All pages of the shortest window are read.
        """
        page = await self._page(begin, end)
        pages, cobs = page.parametros.paginacao.quantidade_de_paginas, page.cobs
        if pages > 1 and end - begin > SHORTEST_WINDOW:
            return None
        for number in range(1, pages):
            cobs += (await self._page(begin, end, number=number)).cobs
        return cobs

    async def _listed(self, raw: msgspec.Raw) -> port.Charge | None:
        """Return a charge of a list, or None if the engine did not create it.

        A paid charge is read on its own if the list does not show its payments.
        """
        cobv = charges.cobv_of(raw)
        if not isinstance(cobv, Cobv):
            return cobv
        try:
            if cobv.pix is None and charges.STATES.get(cobv.status) is port.ChargeState.PAID:
                cobv = await self._read(self._calls(), cobv.txid)
            return charge_of(cobv)
        except InvalidFieldError:
            return charges.unreadable(cobv.txid)


def _body(request: port.ChargeRequest, settings: PixSettings) -> Mapping[str, object]:
    """Return the body of the request that creates a charge. Raises PermanentError."""
    if request.method is not PaymentMethod.PIX:
        raise port.PermanentError("method_unsupported", "The Pix API issues only pix.")
    if request.installments is not None:
        raise port.PermanentError("installments_unsupported", "Pix takes no installments.")
    if request.currency != charges.CURRENCY:
        raise port.PermanentError("currency_unsupported", "Pix is paid in BRL.")
    if not 1 <= request.amount_cents <= MAX_CENTS:
        raise port.PermanentError("amount_unsupported", f"A Pix charge is for 1 to {MAX_CENTS} cents.")
    calendar = {
        "dataDeVencimento": request.due_date.isoformat(),
        "validadeAposVencimento": settings.days_after_due_date,
    }
    text = "; ".join(line.description for line in request.lines)[:_MAX_TEXT]
    return {
        "calendario": calendar,
        "devedor": _debtor(request.payer),
        "valor": {"original": reais(request.amount_cents)},
        "chave": settings.pix_key,
        **({"solicitacaoPagador": text} if text else {}),
    }


def _debtor(payer: port.Payer) -> Mapping[str, str]:
    """Return the payer, whose CPF or CNPJ the Pix API requires. Raises PermanentError."""
    if payer.document is None:
        raise port.PermanentError("document_required", "A Pix charge needs the CPF or CNPJ of the customer.")
    document = _SEPARATORS.sub("", payer.document).upper()
    for kind, pattern in (("cpf", _CPF), ("cnpj", _CNPJ)):
        if pattern.fullmatch(document):
            return {kind: document, "nome": payer.name[:_MAX_NAME]}
    raise port.PermanentError("document_invalid", "The document of the customer is neither a CPF nor a CNPJ.")


def _check_id(charge_id: str) -> None:
    """Raises NotFoundError for an id that the engine has not made, which must not become a part of a URL."""
    if reference_of(charge_id) is None:
        raise port.NotFoundError("no id of a charge of Fatura")


def _created_at(charge: port.Charge) -> tuple[bool, str]:
    """Sort charges by their creation; charges that cannot be read come last."""
    return charge.created_at is None, "" if charge.created_at is None else charge.created_at.isoformat()
