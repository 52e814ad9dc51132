"""The provider `mercado_pago` (beta): cards, Pix and boletos on Mercado Pago's page, for live accounts (D-265).

A charge is a preference: a link to the page on which the payer pays. Mercado Pago does not recognize repeated requests
for preferences. It finds them by `external_reference`, so the engine looks a charge up after a lost answer (D-33).
"""

from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import ClassVar
from uuid import UUID, uuid4, uuid5

import msgspec

from fatura.domain.calendar import local_date
from fatura.gateways import port
from fatura.gateways.adapters.mercado_pago import charges, requests
from fatura.gateways.adapters.mercado_pago.charges import charge_of
from fatura.gateways.adapters.mercado_pago.objects import (
    FoundPayments,
    FoundPreferences,
    Payment,
    Preference,
    Refund,
    User,
    refusal,
)
from fatura.gateways.adapters.mercado_pago.settings import URL, MercadoPagoSettings, parse
from fatura.gateways.adapters.mercado_pago.webhook import hint
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.http import ProviderCalls, ProviderClient, reading
from fatura.gateways.reais import reais

PAGE_SIZE = 50
MAX_PAYMENTS = 500
"""Maximum number of payments of one reference. A payer makes one with each attempt."""
POLLS_PER_MINUTE = 300
"""A poll is two calls. Mercado Pago does not publish its limit."""
SITE = "MLB"
"""Mercado Pago's name of Brazil."""
SHOW_IN_PROCESS: Mapping[str, str] = {"X-Render-In-Process-Refunds": "true"}
"""With this header, Mercado Pago shows refunds that it still works on. Without it, such a refund looks refused."""


class MercadoPagoGateway:
    """One connection to a Mercado Pago account; implements `port.Gateway`."""

    provider: ClassVar[str] = "mercado_pago"
    __slots__ = ("_client", "_config", "_url")

    def __init__(self, client: ProviderClient, config: port.ConnectionConfig, *, url: str = URL) -> None:
        self._client = client
        self._config = config
        self._url = url

    def capabilities(self) -> port.Capabilities:
        settings = self._settings()
        return port.Capabilities(
            issues_charges=True,
            methods=settings.methods,
            max_installments=settings.max_installments,
            product_catalog=False,
            idempotency="lookup",
            refunds="key",
            polls_per_minute=POLLS_PER_MINUTE,
        )

    async def check_credentials(self) -> str:
        """Return the id of the account, which must be Brazilian. Raises InvalidFieldError, AuthFailedError."""
        with reading():
            user = await self._calls().read("/users/me", User)
        if user.site_id not in {None, SITE}:
            field = ("credentials.accessToken", "belongs to an account outside Brazil")
            raise port.AuthFailedError("the account is not Brazilian", field=field)
        return str(user.id)

    async def create_charge(self, request: port.ChargeRequest) -> port.Charge:
        settings = self._settings()
        requests.check(request, settings, today=local_date(self._config.now))
        body = requests.new_preference(request, settings, nonce=uuid4().hex)
        made = await self._calls(settings).write(
            "POST", "/checkout/preferences", answer=Preference, body=body
        )
        return charges.check_new(made, amount_cents=request.amount_cents, now=self._config.now)

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[port.Charge]:
        """Return the charges with this reference, also canceled ones, but none that is older than 90 days.

        Raises TransientError if the payer has paid with the reference, but no charge is listed.
        """
        reference, calls = charges.reference(invoice_id, attempt), self._calls()
        with reading():
            listed = await self._listed(calls, reference)
            payments = await self._payments(calls, reference)
            if payments and not listed:
                raise port.TransientError("Mercado Pago lists payments of the reference, but no preference")
            found = [await self._charge(calls, each, payments) for each in listed]
        return sorted(found, key=_created_at)

    async def get_charge(self, charge_id: str) -> port.Charge:
        """Return a charge. If it is paid, end its link, because a payer could pay the same link again."""
        calls = self._calls()
        with reading():
            preference = await self._read(calls, charge_id)
            payments = await self._payments(calls, str(preference.external_reference))
            charge = await self._charge(calls, preference, payments)
        if charge.state is port.ChargeState.PAID and not self._has_ended(preference):
            with suppress(port.GatewayError):  # the next poll tries again
                body = requests.ended(preference, now=self._config.now)
                charge = await self._charge(calls, await self._change(calls, charge_id, body), payments)
                for each in filter(charges.is_open, charges.of_preference(preference, payments)):
                    await self._canceled(calls, each)
        return charge

    async def charges_since(self, since: datetime) -> AsyncIterator[port.Charge]:  # noqa: ARG002 - part of the interface
        """Raises PermanentError: Mercado Pago lists only preferences of 90 days, in no order and not by date."""
        raise port.PermanentError("no_list", "Mercado Pago has no list of charges by date.")
        yield

    async def cancel_charge(self, charge_id: str) -> port.Charge:
        """End the preference, then cancel the payments that are pending. A payment that is approved meanwhile wins."""
        calls = self._calls()
        with reading():
            preference = await self._read(calls, charge_id)
            charge = await self._charge(calls, preference)
        if not charge.is_payable:
            return charge
        if not self._has_ended(preference):
            body = requests.ended(preference, now=self._config.now)
            preference = await self._change(calls, charge_id, body)
        with _written():
            found = await self._payments(calls, str(preference.external_reference))
            payments = [
                await self._canceled(calls, each) if charges.is_open(each) else each
                for each in charges.of_preference(preference, found)
            ]
            charge = await self._charge(calls, preference, payments)
        if charge.is_payable:
            detail = "Mercado Pago did not end the link, or did not cancel a pending payment."
            raise port.PermanentError("charge_status", detail)
        return charge

    async def refund_charge(self, request: port.RefundRequest) -> port.Charge:
        """Refund a payment of the charge; a repeated request makes no second refund.

        If the payer paid twice, the first payment of which Mercado Pago refunds so much is refunded. But a payment is
        tried before others if an earlier request, whose answer was lost, may have refunded it. Each payment has an
        idempotency key of its own.
        Raises NotFoundError, UnknownOutcomeError, and PermanentError if Mercado Pago refuses the refund.
        """
        calls = self._calls()
        with reading():
            preference = await self._read(calls, request.charge_id)
            payments = await self._payments(calls, str(preference.external_reference))
            charge = await self._charge(calls, preference, payments)
            paid = [each for each in charges.of_preference(preference, payments) if charges.is_paid(each)]
            if len(paid) > 1:
                paid = [await self._with_refunds(calls, each) for each in paid]
        if any(each.refund_id == request.refund_id for each in charge.refunds):
            return charge
        cents = request.amount_cents
        tried = {str(each.id): charges.may_be_refunded(preference, each, amount_cents=cents) for each in paid}
        refused = port.PermanentError("charge_status", "The charge has no payment to refund.")
        for payment in sorted(paid, key=lambda each: not tried[str(each.id)]):
            try:
                refund = await self._refund(calls, payment, request)
            except port.PermanentError as error:
                if tried[str(payment.id)]:
                    raise _unclear(error) from None
                refused = error
                continue
            return await self._with_refund(calls, request, str(refund.id))
        raise refused

    def read_webhook(self, webhook: port.Webhook) -> port.WebhookHint:
        """Verify the signature with the setting `webhookSecret`. Raises AuthFailedError."""
        return hint(webhook, secret=self._config.settings.get("webhookSecret"), now=self._config.now)

    async def mirror_product(self, product: port.ProductMirror) -> str:  # noqa: ARG002 - part of the interface
        """Raises PermanentError `no_catalog`."""
        raise port.PermanentError("no_catalog", "Mercado Pago has no product catalog.")

    def _settings(self) -> MercadoPagoSettings:
        return parse(self._config.settings, self._config.credentials)

    def _calls(self, settings: MercadoPagoSettings | None = None) -> ProviderCalls:
        settings = settings or self._settings()
        return self._client.calls(
            self._url,
            headers={"Authorization": f"Bearer {settings.access_token}"},
            connection_id=self._config.connection_id,
            refusal=refusal,
        )

    def _has_ended(self, preference: Preference) -> bool:
        until = charges.expires_at(preference)
        return until is not None and until <= self._config.now

    async def _read(self, calls: ProviderCalls, charge_id: str) -> Preference:
        """Read a preference of the engine. Raises NotFoundError, also for a text that cannot be a part of a URL."""
        if not charges.is_id(charge_id):
            raise port.NotFoundError("no id of Mercado Pago")
        found = await calls.read(f"/checkout/preferences/{charge_id}", Preference, may_be_absent=True)
        if found.id != charge_id:
            raise InvalidFieldError("Mercado Pago shows another preference")
        if not charges.is_ours(found):
            raise port.NotFoundError("the preference has no reference of Fatura")
        return found

    async def _listed(self, calls: ProviderCalls, reference: str) -> Sequence[Preference]:
        """Return the preferences with this reference. Raises InvalidFieldError if the list is longer than a page.

        A list may leave the reference out, or contain similar references.
        """
        query = {"external_reference": reference, "limit": str(PAGE_SIZE)}
        page = await calls.read("/checkout/preferences/search", FoundPreferences, query=query)
        if page.total > len(page.elements):
            raise InvalidFieldError("Mercado Pago lists too many preferences of one reference")
        listed = [each.id for each in page.elements if each.external_reference in {None, reference}]
        found = list[Preference]()
        for each in reversed(listed):
            with suppress(port.NotFoundError):
                found.append(await self._read(calls, each))
        return [each for each in found if each.external_reference == reference]

    async def _payments(self, calls: ProviderCalls, reference: str) -> Sequence[Payment]:
        """Return the payments with this reference. Raises InvalidFieldError if one of them cannot be read."""
        found: dict[str, Payment] = {}
        offset = 0
        while offset < MAX_PAYMENTS:
            query = {"external_reference": reference, "limit": str(PAGE_SIZE), "offset": str(offset)}
            page = await calls.read("/v1/payments/search", FoundPayments, query=query)
            found |= {str(each.id): each for each in page.results if each.external_reference == reference}
            offset += len(page.results)
            if not page.results or offset >= page.paging.total:
                return list(found.values())
        raise InvalidFieldError("Mercado Pago lists too many payments of one reference")

    async def _charge(
        self, calls: ProviderCalls, preference: Preference, payments: Sequence[Payment] | None = None
    ) -> port.Charge:
        """Return the charge of a preference. If `payments` is None, read them. Read refunds that they do not show."""
        if payments is None:
            payments = await self._payments(calls, str(preference.external_reference))
        has_refunds = bool(charges.own_refund_ids(preference))
        own = [
            await self._with_refunds(calls, each)
            if charges.is_paid(each) and (has_refunds or charges.misses_refund(each))
            else each
            for each in charges.of_preference(preference, payments)
        ]
        if any(charges.misses_refund(each) for each in own if charges.is_paid(each)):
            raise InvalidFieldError("Mercado Pago does not list the refunds of a refunded payment")
        return charge_of(preference, own, now=self._config.now)

    async def _with_refunds(self, calls: ProviderCalls, payment: Payment) -> Payment:
        """Return a payment with all its refunds. A search leaves those out on which Mercado Pago still works."""
        path = f"/v1/payments/{_path_id(payment.id)}/refunds"
        refunds = await calls.read(path, list[Refund], headers=SHOW_IN_PROCESS)
        return msgspec.structs.replace(payment, refunds=refunds)

    async def _canceled(self, calls: ProviderCalls, payment: Payment) -> Payment:
        """Cancel a pending payment, and return it. If Mercado Pago refuses, return the payment as it is now."""
        path = f"/v1/payments/{_path_id(payment.id)}"
        try:
            return await calls.write("PUT", path, answer=Payment, body={"status": "cancelled"})
        except port.PermanentError:
            return await calls.read(path, Payment)

    async def _change(self, calls: ProviderCalls, charge_id: str, body: Mapping[str, object]) -> Preference:
        """Change a preference, and return it. Raises InvalidFieldError if the answer is about another one."""
        path = f"/checkout/preferences/{charge_id}"
        changed = await calls.write("PUT", path, answer=Preference, body=body, may_be_absent=True)
        if changed.id != charge_id or changed.external_reference != body.get("external_reference"):
            raise InvalidFieldError("Mercado Pago answers with another preference")
        return changed

    async def _refund(self, calls: ProviderCalls, payment: Payment, request: port.RefundRequest) -> Refund:
        """Ask for a refund of a payment. The key is made from the engine's id and the payment's id."""
        key = str(uuid5(request.refund_id, str(payment.id)))
        path = f"/v1/payments/{_path_id(payment.id)}/refunds"
        return await calls.write(
            "POST",
            path,
            answer=Refund,
            body={"amount": reais(request.amount_cents)},
            headers={"X-Idempotency-Key": key, **SHOW_IN_PROCESS},
        )

    async def _with_refund(
        self, calls: ProviderCalls, request: port.RefundRequest, refund_id: str
    ) -> port.Charge:
        """Note a refund at the preference, because Mercado Pago does not return the engine's id. Return the charge.

        A refund that is done needs no note. If it is not done and the note fails, or another step fails, raises
        UnknownOutcomeError. The engine then repeats the request, which makes no second refund.
        """
        with _written():
            preference = await self._read(calls, request.charge_id)
            noted = requests.with_refund(preference, request, refund_id=refund_id)
            with suppress(port.GatewayError):  # Mercado Pago may refuse to change a link that has ended
                preference = await self._change(calls, request.charge_id, noted)
            is_noted = request.refund_id in charges.own_refund_ids(preference)
            charge = await self._charge(
                calls, msgspec.structs.replace(preference, metadata=noted["metadata"])
            )
        [refund] = [each for each in charge.refunds if each.refund_id == request.refund_id] or [None]
        if refund is None or not (is_noted or refund.state is port.RefundState.DONE):
            raise port.UnknownOutcomeError(
                "Mercado Pago does not list the refund yet, or did not keep its note"
            )
        return charge


def _unclear(error: port.PermanentError) -> port.PermanentError:
    """Return the refusal of a refund that an earlier request may have made. Another payment must not be refunded."""
    detail = "The payment has a refund of this amount, perhaps this one. If it is another one, refund at Mercado Pago."
    return port.PermanentError("refund_unclear", detail, http_status=error.http_status)


def _path_id(payment_id: int | str) -> str:
    """Return the id of a payment as a part of a URL. Raises InvalidFieldError for one that is no number."""
    text = str(payment_id)
    if not (text.isascii() and text.isdigit()):
        raise InvalidFieldError("the id of a payment is invalid")
    return text


def _created_at(charge: port.Charge) -> tuple[bool, str]:
    return charge.created_at is None, "" if charge.created_at is None else charge.created_at.isoformat()


@contextmanager
def _written() -> Generator[None]:
    """Turn every failure after a successful write into an unknown outcome, because the write had an effect."""
    try:
        yield
    except port.GatewayError as error:
        if isinstance(error, port.UnknownOutcomeError):
            raise
        raise port.UnknownOutcomeError(str(error), http_status=error.http_status) from None
