"""The provider `stripe`: hosted invoices that are paid by card, Pix or boleto, for live accounts (D-263, ADR 0022).

Stripe deduplicates repeated requests by idempotency keys, for a day. Each charge takes several requests, of which only
the last one makes it payable (see `drafts`).
"""

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import ClassVar
from uuid import UUID

import msgspec

from fatura.gateways import port
from fatura.gateways.adapters.stripe import charges, drafts, requests
from fatura.gateways.adapters.stripe.charges import INVOICE_ID, charge_of, paid_parts, unreadable
from fatura.gateways.adapters.stripe.customers import customer_id
from fatura.gateways.adapters.stripe.lists import INVOICES_IN_PAGE, objects, page, raw_objects, reading
from fatura.gateways.adapters.stripe.objects import (
    Dispute,
    Invoice,
    InvoicePayment,
    Named,
    NamedInvoice,
    Refund,
    read_as,
    refusal,
)
from fatura.gateways.adapters.stripe.settings import URL, StripeSettings, parse
from fatura.gateways.adapters.stripe.webhook import hint
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.http import Form, ProviderCalls, ProviderClient

VERSION = "2026-10-28.endive"
"""The version of Stripe's API, which decides the form of requests and answers."""
KEYS_KEPT = timedelta(hours=24)
"""Time for which Stripe remembers idempotency keys at least."""
POLLS_PER_MINUTE = 600
"""Stripe allows a live account 100 calls a second, and a sandbox 25. A poll is one call, or three for a paid charge."""
FIRST_WINDOW = timedelta(days=1)
SHORTEST_WINDOW = timedelta(seconds=1)
SEARCHES_AT_ONCE = 8
"""Number of intervals of a search that are read at the same time."""
_DUPLICATE = 409
_PAID = {"expand[0]": "data.payments"}
"""The parameter by which a list shows the payments of its invoices."""


class StripeGateway:
    """One connection to a Stripe account; implements `port.Gateway`."""

    provider: ClassVar[str] = "stripe"
    __slots__ = ("_client", "_config", "_url")

    def __init__(self, client: ProviderClient, config: port.ConnectionConfig, *, url: str = URL) -> None:
        self._client = client
        self._config = config
        self._url = url

    def capabilities(self) -> port.Capabilities:
        return port.Capabilities(
            issues_charges=True,
            methods=self._settings().methods,
            max_installments=1,
            product_catalog=True,
            idempotency="key",
            idempotency_ttl=KEYS_KEPT,
            lists_charges=True,
            refunds="key",
            polls_per_minute=POLLS_PER_MINUTE,
            min_amount_cents=requests.MIN_CENTS,
        )

    async def check_credentials(self) -> str:
        """Return the id of the Stripe account. Test mode and live mode have the same id, but not the same charges."""
        with reading():
            account = await self._calls().read("/v1/account", Named)
        return account.id if self._settings().is_live else f"{account.id} (sandbox)"

    async def create_charge(self, request: port.ChargeRequest) -> port.Charge:
        """Find or create the customer, then make the invoice. A repeated call returns the invoice of the first one."""
        requests.check(request, self._settings().methods)
        calls = self._calls()
        customer = await customer_id(calls, request.payer)
        invoice = await drafts.issue(calls, request, customer=customer, now=self._config.now)
        with _made():
            if charges.STATES.get(invoice.status) is port.ChargeState.OPEN and not invoice.amount_paid:
                return charge_of(invoice, now=self._config.now)
            return await self.get_charge(invoice.id)

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[port.Charge]:
        """Search all invoices of the account that were created since the engine's invoice was generated.

        The caller does not know the customer at Stripe. Stripe's search by metadata would show new invoices late.
        """
        calls, reference = self._calls(), charges.reference(invoice_id, attempt)
        since = charges.made_after(invoice_id, now=self._config.now)
        step = (self._config.now - since) / SEARCHES_AT_ONCE
        starts = [int((since + number * step).timestamp()) for number in range(SEARCHES_AT_ONCE)]
        queries = [
            {"created[gte]": str(start), "created[lt]": str(end)}
            for start, end in pairwise(sorted({*starts}))
        ]
        queries.append({"created[gte]": str(starts[-1])})
        found = await asyncio.gather(*(_with_reference(calls, query, reference) for query in queries))
        ids = [charge_id for part in found for charge_id in reversed(part)]
        charges_found = [await self._shown(calls, each) for each in dict.fromkeys(ids)]
        return [each for each in charges_found if each is not None]

    async def get_charge(self, charge_id: str) -> port.Charge:
        calls = self._calls()
        return await self._charge(calls, await self._read(calls, charge_id))

    async def charges_since(self, since: datetime) -> AsyncIterator[port.Charge | datetime]:
        """Yield the charges page by page. Stripe lists the newest invoice first, so each page is read backwards.

        The first page is the oldest interval with invoices. The charges lack refunds and disputes, which would cost two
        calls for each paid charge; polls read these.
        """
        begin, last, window = since.replace(microsecond=0), self._config.now + SHORTEST_WINDOW, FIRST_WINDOW
        found: Sequence[msgspec.Raw] | None = ()
        while begin < last and not found:
            end = min(begin + window, last)
            found = await self._interval(begin, end)
            if found is None:
                window = max(SHORTEST_WINDOW, timedelta(seconds=(end - begin) // timedelta(seconds=8)))
            elif not found:
                begin, window = end, window * 2
            if not found:
                yield begin
        while found:
            for raw in reversed(found):
                yield self._listed(raw)
            newer = {"ending_before": read_as(found[0], Named).id, **_PAID}
            found = (await page(self._calls(), "/v1/invoices", query=newer, size=INVOICES_IN_PAGE)).data

    async def cancel_charge(self, charge_id: str) -> port.Charge:
        """Void the invoice. Raises PermanentError if Stripe refuses, for example while a payment is processed."""
        calls = self._calls()
        invoice = await self._read(calls, charge_id)
        before = await self._charge(calls, invoice)
        if not (before.is_payable or before.state is port.ChargeState.EXPIRED):
            return before
        try:
            path = f"/v1/invoices/{charge_id}/void"
            voided = await calls.write("POST", path, answer=Invoice, body=Form({}), may_be_absent=True)
        except (port.PermanentError, port.NotFoundError) as refused:
            with _made():
                after = await self._charge(calls, await self._read(calls, charge_id))
            if after.is_payable or after.state is port.ChargeState.EXPIRED:
                raise refused from None
            return after
        if charges.STATES.get(voided.status) is not port.ChargeState.CANCELED:
            raise InvalidFieldError("Stripe does not say that it voided the invoice")
        return replace(before, state=port.ChargeState.CANCELED)

    async def refund_charge(self, request: port.RefundRequest) -> port.Charge:
        """Refund a payment of the charge. Stripe makes one refund for each `refund_id`.

        Raises NotFoundError, UnknownOutcomeError, and PermanentError, also if no payment has enough left.
        """
        calls, now = self._calls(), self._config.now
        invoice = await self._read(calls, request.charge_id)
        charge_of(invoice, now=now)  # refuse a draft, and an answer that cannot be read, before money moves
        parts = paid_parts(invoice)
        refunds, disputes = await _returned(calls, parts)
        if not charges.has_own_refund(refunds, request.refund_id):
            part = charges.refundable(parts, refunds, cents=request.amount_cents)
            if part is None:
                detail = "No payment of the charge at Stripe has so much left to refund."
                raise port.PermanentError("not_refundable", detail)
            body = requests.refund_form(request, _source(part))
            try:
                refunds = [*refunds, await calls.write("POST", "/v1/refunds", answer=Refund, body=body)]
            except port.PermanentError as refused:
                if refused.code == "idempotency_error":  # an earlier request chose another payment
                    raise port.UnknownOutcomeError(str(refused), http_status=refused.http_status) from None
                raise
        return charge_of(invoice, refunds=refunds, disputes=disputes, now=now)

    def read_webhook(self, webhook: port.Webhook) -> port.WebhookHint:
        """Verify the signature with the secrets of the setting `webhookSecret`. Raises AuthFailedError."""
        settings = self._settings()
        secrets, is_live = settings.webhook_secrets, settings.is_live
        return hint(webhook, secrets=secrets, now=self._config.now, is_live=is_live)

    async def mirror_product(self, product: port.ProductMirror) -> str:
        """Create the product with the engine's id, or change the product that has this id."""
        calls, own_id = self._calls(), str(product.product_id)
        fields = {"name": product.name, "metadata[fatura_product]": own_id}
        if product.description:
            fields["description"] = product.description
        try:
            return (
                await calls.write("POST", "/v1/products", answer=Named, body=Form({"id": own_id, **fields}))
            ).id
        except (port.PermanentError, port.UnknownOutcomeError) as refused:
            is_known = isinstance(refused, port.PermanentError) and refused.code == "resource_already_exists"
            if not is_known and refused.http_status != _DUPLICATE:
                raise
        body = Form({"description": "", **fields})
        return (await calls.write("POST", f"/v1/products/{own_id}", answer=Named, body=body)).id

    def _settings(self) -> StripeSettings:
        return parse(self._config.settings, self._config.credentials)

    def _calls(self) -> ProviderCalls:
        headers = {"Authorization": f"Bearer {self._settings().api_key}", "Stripe-Version": VERSION}
        connection_id = self._config.connection_id
        return self._client.calls(self._url, headers=headers, connection_id=connection_id, refusal=refusal)

    async def _read(self, calls: ProviderCalls, charge_id: str) -> Invoice:
        """Read an invoice with its payments. Raises NotFoundError, also for an invoice that is not the engine's."""
        if not INVOICE_ID.fullmatch(charge_id):
            raise port.NotFoundError("no id of an invoice of Stripe")
        with reading():
            path, query = f"/v1/invoices/{charge_id}", {"expand[0]": "payments"}
            invoice = await calls.read(path, Invoice, query=query, may_be_absent=True)
        if not charges.has_reference(invoice.metadata):
            raise port.NotFoundError("the invoice is no charge of Fatura")
        if invoice.id != charge_id:
            raise InvalidFieldError("Stripe answers with another invoice")
        return invoice

    async def _charge(self, calls: ProviderCalls, invoice: Invoice) -> port.Charge:
        """Return a charge with its refunds and disputes."""
        charge = charge_of(invoice, now=self._config.now)
        refunds, disputes = await _returned(calls, paid_parts(invoice))
        if not refunds and not disputes:
            return charge
        return charge_of(invoice, refunds=refunds, disputes=disputes, now=self._config.now)

    async def _shown(self, calls: ProviderCalls, charge_id: str) -> port.Charge | None:
        """Return a charge that a search found. If it cannot be read, the engine's checks refuse it."""
        try:
            return await self._charge(calls, await self._read(calls, charge_id))
        except InvalidFieldError:
            return unreadable(charge_id)
        except port.NotFoundError:
            return None

    async def _interval(self, begin: datetime, end: datetime) -> Sequence[msgspec.Raw] | None:
        """Return the invoices of an interval, newest first, or None if they do not fit into one page.

        All pages of the shortest interval are read.
        """
        until = int(end.timestamp()) + (end.microsecond > 0)
        query = {"created[gte]": str(int(begin.timestamp())), "created[lt]": str(until), **_PAID}
        found = await page(self._calls(), "/v1/invoices", query=query, size=INVOICES_IN_PAGE)
        if not found.has_more:
            return found.data
        if end - begin > SHORTEST_WINDOW:
            return None
        calls = self._calls()
        return [raw async for raw in raw_objects(calls, "/v1/invoices", query=query, size=INVOICES_IN_PAGE)]

    def _listed(self, raw: msgspec.Raw) -> port.Charge | datetime:
        """Return a charge of a list. If the invoice is a draft or not the engine's, return when it was created."""
        try:
            named = read_as(raw, NamedInvoice)
            created_at = charges.instant(named.created)
        except InvalidFieldError:
            return unreadable(None)
        if named.status == charges.DRAFT or not charges.has_reference(named.metadata):
            return created_at
        try:
            return charge_of(read_as(raw, Invoice), now=self._config.now)
        except InvalidFieldError:
            return unreadable(named.id)


async def _with_reference(calls: ProviderCalls, query: dict[str, str], reference: str) -> Sequence[str]:
    """Return the ids of the finalized invoices with this reference, newest first."""
    invoices = raw_objects(calls, "/v1/invoices", query=query, size=INVOICES_IN_PAGE)
    named = [read_as(raw, NamedInvoice) async for raw in invoices]
    return [
        each.id
        for each in named
        if each.status != charges.DRAFT and charges.has_reference(each.metadata, only=reference)
    ]


async def _returned(
    calls: ProviderCalls, parts: Sequence[InvoicePayment]
) -> tuple[Sequence[Refund], Sequence[Dispute]]:
    """Return the refunds and the disputes of payments, oldest first. A payment outside Stripe has none."""
    refunds, disputes = list[Refund](), list[Dispute]()
    for source in [_source(part) for part in parts if _source(part)]:
        refunds += [each async for each in objects(calls, "/v1/refunds", kind=Refund, query=source)][::-1]
        disputes += [each async for each in objects(calls, "/v1/disputes", kind=Dispute, query=source)][::-1]
    return refunds, disputes


def _source(part: InvoicePayment) -> dict[str, str]:
    """Return the payment intent or the charge of a payment, by which Stripe finds its refunds and disputes."""
    if part.payment.payment_intent is not None:
        return {"payment_intent": part.payment.payment_intent}
    return {} if part.payment.charge is None else {"charge": part.payment.charge}


@contextmanager
def _made() -> Generator[None]:
    """Turn every failure after a successful write into an unknown outcome, because the charge exists."""
    try:
        yield
    except port.GatewayError as error:
        if isinstance(error, port.UnknownOutcomeError):
            raise
        raise port.UnknownOutcomeError(str(error), http_status=error.http_status) from None
