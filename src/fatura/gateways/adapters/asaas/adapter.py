"""The provider `asaas`: cards on the hosted page of Asaas, Pix and boletos, for live accounts (D-261).

Asaas does not recognize repeated calls. It finds payments by `externalReference`, which holds the invoice and the
attempt, so the engine looks a charge up after a lost answer (D-33).
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar
from uuid import UUID

import msgspec

from fatura.domain.calendar import local_date, start_of_day
from fatura.domain.offer import PaymentMethod
from fatura.gateways import port
from fatura.gateways.adapters.asaas import charges
from fatura.gateways.adapters.asaas.charges import CHARGE_ID, PAYMENT_PREFIX, charge_of, unreadable
from fatura.gateways.adapters.asaas.customers import customer_id
from fatura.gateways.adapters.asaas.objects import (
    Deleted,
    NamedPayment,
    Page,
    Payment,
    Refund,
    Wallet,
    read_as,
    refusal,
)
from fatura.gateways.adapters.asaas.pay_data import pay_data
from fatura.gateways.adapters.asaas.requests import body, crossed_midnight
from fatura.gateways.adapters.asaas.settings import URLS, AsaasSettings, parse
from fatura.gateways.adapters.asaas.webhook import hint
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.http import ProviderCalls, ProviderClient, reading
from fatura.gateways.reais import reais

MIN_CENTS = 500
"""Lowest amount of a charge and of an installment."""
PAGE_SIZE = 100
"""Number of payments in a page, the maximum of Asaas."""
POLLS_PER_MINUTE = 15
"""Asaas allows an account 25,000 calls in 12 hours. A poll is one call, or two for a paid charge: 21,600 at most."""
_SERVER_ERROR = 500
"""The lowest status by which a server says that it failed."""


class AsaasGateway:
    """One connection to an Asaas account; implements `port.Gateway`."""

    provider: ClassVar[str] = "asaas"
    __slots__ = ("_client", "_config", "_urls")

    def __init__(
        self, client: ProviderClient, config: port.ConnectionConfig, *, urls: Mapping[str, str] = URLS
    ) -> None:
        self._client = client
        self._config = config
        self._urls = urls

    def capabilities(self) -> port.Capabilities:
        settings = self._settings()
        return port.Capabilities(
            issues_charges=True,
            methods=settings.methods,
            max_installments=settings.max_installments,
            product_catalog=False,
            idempotency="lookup",
            lists_charges=True,
            refunds="lookup",
            polls_per_minute=POLLS_PER_MINUTE,
            min_amount_cents=MIN_CENTS,
            min_installment_cents=MIN_CENTS,
        )

    async def check_credentials(self) -> str | None:
        """Return the id of the account's wallet, which every Asaas account has. Raises InvalidFieldError."""
        with reading():
            page = await self._calls().read("/wallets/", Page)
        if not page.data:
            raise InvalidFieldError("Asaas lists no wallet of the account")
        return read_as(page.data[0], Wallet).id

    async def create_charge(self, request: port.ChargeRequest) -> port.Charge:
        """Find or create the customer, then create the charge, then read the Pix code or the line of the boleto.

        Raises UnknownOutcomeError if only the last step fails, because the charge exists then.
        """
        self._check(request)
        calls = self._calls()
        try:
            payer = await customer_id(calls, request.payer)
        except port.UnknownOutcomeError as error:
            raise port.TransientError(str(error), http_status=error.http_status) from None
        try:
            payment = await calls.write("POST", "/payments", answer=Payment, body=body(request, payer))
        except port.PermanentError as refused:
            if crossed_midnight(refused, request, reserved_at=self._config.now):
                raise port.TransientError(str(refused), http_status=refused.http_status) from None
            raise
        with _written():
            charge = await self._with_code(calls, await self._parts(calls, payment), is_new=True)
        if charge.amount_cents != request.amount_cents:
            raise port.UnknownOutcomeError("Asaas lists another amount than the requested one")
        return charge

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[port.Charge]:
        """Return the charges with this reference. Asaas leaves deleted charges out of its lists."""
        reference, calls, seen = charges.reference(invoice_id, attempt), self._calls(), set[str]()
        with reading():
            page = await self._page(calls, {"externalReference": reference})
            found = [await self._listed(calls, each, seen, only=reference) for each in reversed(page.data)]
        return [each for each in found if each is not None]

    async def get_charge(self, charge_id: str) -> port.Charge:
        """Return a charge without its Pix code or boleto line, which the engine has already."""
        with reading():
            return charge_of(await self._read(self._calls(), charge_id), now=self._config.now)

    async def charges_since(self, since: datetime) -> AsyncIterator[port.Charge | datetime]:
        """Yield all charges from the day of `since` on, because Asaas has only the date of their creation.

        Asaas lists the newest payment first. So each step asks for a period whose payments fit into one page, or for
        one day. Deleted charges are left out, as in `find_charges`.
        """
        first, last = local_date(since), local_date(self._config.now)
        days = (last - first).days + 1
        while first <= last:
            until = min(first + timedelta(days=days - 1), last)
            days = (until - first).days + 1
            with reading():
                page = await self._page(self._calls(), _created(first, until))
            if page.has_more and days > 1:
                days = max((days - 1) * PAGE_SIZE // max(page.total_count, PAGE_SIZE), 1)
                yield start_of_day(first)
                continue
            async for charge in self._charges_of(_created(first, until), page):
                yield charge or start_of_day(first)
            first, days = until + timedelta(days=1), days * 2

    async def cancel_charge(self, charge_id: str) -> port.Charge:
        calls = self._calls()
        with reading():
            charge = charge_of(await self._read(calls, charge_id), now=self._config.now)
        if not charge.is_payable:
            return charge
        kind = "payments" if charge_id.startswith("pay_") else "installments"
        try:
            deleted = await calls.write("DELETE", f"/{kind}/{charge_id}", answer=Deleted, may_be_absent=True)
        except (port.PermanentError, port.NotFoundError) as refused:
            return await self._after_refusal(calls, charge, refused)
        if not deleted.deleted:
            raise InvalidFieldError("Asaas does not say that it deleted the charge")
        return replace(charge, state=port.ChargeState.CANCELED)

    async def refund_charge(self, request: port.RefundRequest) -> port.Charge:
        """Refund a charge; a repeated request makes another refund. Charges in installments cannot be refunded here."""
        if not CHARGE_ID.fullmatch(request.charge_id):
            raise port.NotFoundError("no id of Asaas")
        calls = self._calls()
        with reading():
            charge = charge_of(await self._read(calls, request.charge_id), now=self._config.now)
        if not request.charge_id.startswith(PAYMENT_PREFIX):
            detail = (
                "Refund a card payment in installments in the Asaas dashboard; Fatura records the refund."
            )
            raise port.PermanentError("installments_not_refundable", detail)
        asked = {"value": reais(request.amount_cents), "description": charges.refund_description(request)}
        path = f"/payments/{charge.charge_id}/refund"
        payment = await calls.write("POST", path, answer=Payment, body=asked, may_be_absent=True)
        with _written():
            return charge_of([await self._with_refund(calls, payment, request)], now=self._config.now)

    def read_webhook(self, webhook: port.Webhook) -> port.WebhookHint:
        """Compare the token of the header with the setting `webhookToken`. Raises AuthFailedError."""
        return hint(webhook, token=self._settings().webhook_token)

    async def mirror_product(self, product: port.ProductMirror) -> str:
        raise port.PermanentError("no_catalog", f"Asaas has no product catalog for {product.product_id}.")

    def _settings(self) -> AsaasSettings:
        return parse(self._config.settings, self._config.credentials)

    def _calls(self) -> ProviderCalls:
        settings = self._settings()
        return self._client.calls(
            self._urls[settings.environment],
            headers={"access_token": settings.access_token},
            connection_id=self._config.connection_id,
            refusal=refusal,
        )

    def _check(self, request: port.ChargeRequest) -> None:
        """Refuse what Asaas would accept in another sense than the engine's. Raises PermanentError."""
        settings, installments = self._settings(), request.installments or 1
        if request.currency != charges.CURRENCY:
            raise port.PermanentError("currency_unsupported", "Asaas charges in BRL only.")
        if request.method not in settings.methods:
            raise port.PermanentError(
                "method_unsupported", f"This connection does not issue {request.method}."
            )
        most = settings.max_installments if request.method is PaymentMethod.CARD else 1
        if not 1 <= installments <= most:
            detail = f"{request.method} takes at most {most} installment(s)."
            raise port.PermanentError("installments_unsupported", detail)
        if request.amount_cents < MIN_CENTS * installments:
            detail = f"A charge and each of its installments must be at least {MIN_CENTS} cents."
            raise port.PermanentError("amount_unsupported", detail)

    async def _read(self, calls: ProviderCalls, charge_id: str) -> Sequence[Payment]:
        """Read the payment or the installments of a charge. Raises NotFoundError."""
        if not CHARGE_ID.fullmatch(charge_id):
            raise port.NotFoundError("no id of Asaas")
        if not charge_id.startswith(PAYMENT_PREFIX):
            return await self._installments(calls, charge_id)
        payment = await calls.read(f"/payments/{charge_id}", Payment, may_be_absent=True)
        if payment.installment is not None:
            raise port.NotFoundError("the payment is a part of another charge")
        return [await self._with_refunds(calls, payment, statuses=charges.PAID_STATUSES)]

    async def _parts(self, calls: ProviderCalls, payment: Payment) -> Sequence[Payment]:
        """Return the payments of the charge to which a payment belongs."""
        if payment.installment is not None:
            return await self._installments(calls, payment.installment)
        return [await self._with_refunds(calls, payment)]

    async def _installments(self, calls: ProviderCalls, installment: str) -> Sequence[Payment]:
        """Return the installments of a charge. If Asaas lists none, they are deleted or unknown: NotFoundError."""
        page = await self._page(calls, {"installment": installment})
        if not page.data:
            raise port.NotFoundError("Asaas lists no such installments")
        parts = [read_as(each, Payment) for each in page.data]
        if any(part.installment != installment for part in parts):
            raise InvalidFieldError("Asaas lists payments of other installments")
        return [await self._with_refunds(calls, part) for part in parts]

    async def _with_refunds(
        self, calls: ProviderCalls, payment: Payment, *, statuses: Collection[str] = charges.REFUND_STATUSES
    ) -> Payment:
        """Return the payment with its refunds.

        If the payment lists no refund, and has one of `statuses`, read the refunds. Callers pass PAID_STATUSES if a
        refund must not be missed, because a partly refunded payment may have the status of a paid one. If the engine
        missed a refund, it would report that the refund failed, and a person would return the money again.
        """
        if payment.refunds or payment.status not in statuses:
            return payment
        page = await calls.read(f"/payments/{payment.id}/refunds", Page)
        return msgspec.structs.replace(payment, refunds=[read_as(each, Refund) for each in page.data])

    async def _with_refund(
        self, calls: ProviderCalls, payment: Payment, request: port.RefundRequest
    ) -> Payment:
        """Return the payment with the refund that Asaas accepted. If Asaas does not list it yet, it is pending."""
        if not charges.shows(payment, request.refund_id):
            unread = msgspec.structs.replace(payment, refunds=None)
            payment = await self._with_refunds(calls, unread, statuses={payment.status})
        if charges.shows(payment, request.refund_id):
            return payment
        return charges.with_pending(payment, request, today=local_date(self._config.now))

    async def _with_code(
        self, calls: ProviderCalls, parts: Sequence[Payment], *, is_new: bool = False
    ) -> port.Charge:
        """Return the charge with the Pix code or boleto line. If Asaas refuses these, the payer uses the link.

        If the code of a new charge cannot be read, the engine looks the charge up. The look-up then returns the charge
        even without its code.
        """
        charge = charge_of(parts, now=self._config.now)
        if charge.state is not port.ChargeState.OPEN:
            return charge
        try:
            return replace(charge, pay=await pay_data(calls, parts[0], known=charge.pay))
        except (port.PermanentError, port.NotFoundError):
            return charge
        except (port.InvalidAnswerError, port.TransientError) as error:
            is_fault = isinstance(error, port.InvalidAnswerError) or (error.http_status or 0) >= _SERVER_ERROR
            if is_fault and not is_new:
                return charge
            raise port.TransientError(str(error), http_status=error.http_status) from None

    async def _after_refusal(
        self, calls: ProviderCalls, before: port.Charge, refused: port.PermanentError | port.NotFoundError
    ) -> port.Charge:
        """Return a charge that Asaas did not delete now, as it is. If it can still be paid, raise PermanentError.

        The charge may have been deleted between the read of `before` and the request. Asaas lists no deleted
        installments.
        """
        with _written():
            try:
                charge = charge_of(await self._read(calls, before.charge_id), now=self._config.now)
            except port.NotFoundError:
                if before.charge_id.startswith("pay_"):
                    raise
                return replace(before, state=port.ChargeState.CANCELED)
        if not charge.is_payable:
            return charge
        if isinstance(refused, port.PermanentError):
            raise refused
        raise port.UnknownOutcomeError("Asaas does not know a charge that it lists")

    async def _page(self, calls: ProviderCalls, query: Mapping[str, str], *, offset: int = 0) -> Page:
        page = {"offset": str(offset), "limit": str(PAGE_SIZE)}
        return await calls.read("/payments", Page, query={**query, **page})

    async def _charges_of(self, query: Mapping[str, str], page: Page) -> AsyncIterator[port.Charge | None]:
        """Yield the charges of a list, each once. `page` is its first page; only the list of one day has more pages.

        For a page without charges, yield None.

        A new payment moves the others to later places, so that some are read twice. A deleted payment moves others to
        earlier places, so the list is then read again from its start.
        """
        seen, offset, total = set[str](), 0, 0
        while True:
            if page.total_count < total:
                offset = 0
            else:
                calls = self._calls()
                with reading():
                    listed = await asyncio.gather(*(self._listed(calls, each, seen) for each in page.data))
                for charge in sorted((each for each in listed if each is not None), key=_creation):
                    yield charge
                if not any(listed):
                    yield None
                offset += len(page.data)
                if not (page.has_more and page.data):
                    return
            total = page.total_count
            with reading():
                page = await self._page(self._calls(), query, offset=offset)

    async def _listed(
        self, calls: ProviderCalls, raw: msgspec.Raw, seen: set[str], *, only: str | None = None
    ) -> port.Charge | None:
        """Return the charge of a listed payment. Return None if it is not the engine's, or was returned before.

        If `only` is given, return only a charge with this reference, and add its Pix code or boleto line.
        """
        try:
            named = read_as(raw, NamedPayment)
        except InvalidFieldError:
            return unreadable(None)
        charge_id = named.installment or named.id
        if charge_id in seen or not charges.has_reference(named, only=only):
            return None
        seen.add(charge_id)
        try:
            parts = await self._parts(calls, read_as(raw, Payment))
            if only is not None:
                return await self._with_code(calls, parts)
            return charge_of(parts, now=self._config.now)
        except InvalidFieldError:
            return unreadable(charge_id)
        except port.NotFoundError:
            return None  # the installments were deleted meanwhile


def _created(first: date, last: date) -> Mapping[str, str]:
    """Return the query for the payments that were created in a period."""
    return {"dateCreated[ge]": first.isoformat(), "dateCreated[le]": last.isoformat()}


def _creation(charge: port.Charge) -> datetime:
    return charge.created_at or datetime.max.replace(tzinfo=UTC)


@contextmanager
def _written() -> Generator[None]:
    """Turn every failure after a successful write into an unknown outcome, because the write had an effect."""
    try:
        yield
    except port.GatewayError as error:
        if isinstance(error, port.UnknownOutcomeError):
            raise
        raise port.UnknownOutcomeError(str(error), http_status=error.http_status) from None
