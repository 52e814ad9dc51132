"""Make the invoice of a charge exactly once: a draft, its lines, and its finalization (D-263, ADR 0022).

A draft cannot be paid. Only the finalization makes the charge, and Stripe finalizes an invoice once. So each call
first looks for the invoice, and finalizes only the oldest draft of its request.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from fatura.gateways import port
from fatura.gateways.adapters.stripe import charges, requests
from fatura.gateways.adapters.stripe.lists import INVOICES_IN_PAGE, page, raw_objects, reading
from fatura.gateways.adapters.stripe.objects import Deleted, Invoice, Named, NamedInvoice, read_as
from fatura.gateways.http import Form, ProviderCalls
from fatura.observability import log

SENT_WITHIN = timedelta(minutes=15)
"""Maximum time from the reservation of a request until Stripe checks its due date."""
_GONE = frozenset({"resource_missing", "idempotency_error"})
"""Codes that say nothing about the data of a charge: another call, or a person, changed something meanwhile."""


async def issue(
    calls: ProviderCalls, request: port.ChargeRequest, *, customer: str, now: datetime
) -> Invoice:
    """Return the finalized invoice of a request, and make it if it does not exist.

    It may have been paid or voided since. Each step can be repeated. If a step before the last one fails, the invoice
    cannot be paid. Raises the errors of `port.Gateway.create_charge`.
    """
    fields = requests.draft_fields(request, customer)
    found = list(await _of_request(calls, request, customer, now=now))
    if all(each.status == charges.DRAFT for each in found):
        found += await _of_other_customers(calls, request, known={each.id for each in found})
    for each in found:
        if each.status != charges.DRAFT:
            return each
    draft = await _draft(calls, request, fields, found, now=now)
    try:
        return await _completed(calls, request, fields, draft, now=now)
    except port.PermanentError as refused:
        return await _after_refusal(calls, draft, refused)


async def _discard(calls: ProviderCalls, invoice_id: str) -> None:
    """Try to delete a draft. If this fails, the draft stays, and it cannot be paid."""
    try:
        await calls.write("DELETE", f"/v1/invoices/{invoice_id}", answer=Deleted, may_be_absent=True)
    except port.GatewayError as error:
        log.warning("gateway.draft_not_deleted", charge_id=invoice_id, error=error)


async def _of_request(
    calls: ProviderCalls, request: port.ChargeRequest, customer: str, *, now: datetime
) -> Sequence[Invoice]:
    """Return the drafts and invoices of a request, oldest first. Stripe's lists show a new invoice at once."""
    since = charges.made_after(request.invoice_id, now=now)
    query = {"customer": customer, "created[gte]": str(int(since.timestamp()))}
    reference = charges.reference(request.invoice_id, request.attempt)
    found = [
        read_as(raw, Invoice)
        async for raw in raw_objects(calls, "/v1/invoices", query=query, size=INVOICES_IN_PAGE)
        if charges.has_reference(read_as(raw, NamedInvoice).metadata, only=reference)
    ]
    return found[::-1]


async def _of_other_customers(
    calls: ProviderCalls, request: port.ChargeRequest, *, known: Collection[str]
) -> Sequence[Invoice]:
    """Return the drafts and invoices of a request that are not `known`.

    If a person has changed or deleted the customer at Stripe, an earlier call used another customer than this call.
    Stripe's search shows invoices about a minute late, and perhaps in an old state, so each one is read again.
    """
    reference = charges.reference(request.invoice_id, request.attempt)
    query = {"query": f"metadata['{charges.REFERENCE}']:'{reference}'"}
    named = [read_as(raw, Named).id for raw in (await page(calls, "/v1/invoices/search", query=query)).data]
    found: list[Invoice] = []
    for invoice_id in named:
        if invoice_id not in known and charges.INVOICE_ID.fullmatch(invoice_id):
            with reading(), suppress(port.NotFoundError):
                found.append(await calls.read(f"/v1/invoices/{invoice_id}", Invoice, may_be_absent=True))
    return [each for each in found if charges.has_reference(each.metadata, only=reference)]


async def _draft(
    calls: ProviderCalls,
    request: port.ChargeRequest,
    fields: Mapping[str, str],
    found: Sequence[Invoice],
    *,
    now: datetime,
) -> Invoice:
    """Return the draft of an earlier call, or a new one. Delete drafts of other requests."""
    usable = [each for each in found if _is_usable(each, fields)]
    for each in found:
        if each not in usable:
            await _discard(calls, each.id)
    if usable:
        return usable[0]
    if requests.due_at(request) <= now:
        raise port.PermanentError("invalid_due_date", "The due date has passed.")
    try:
        body = requests.new_draft(request, fields, now=now)
        return await calls.write("POST", "/v1/invoices", answer=Invoice, body=body)
    except port.PermanentError as refused:
        # the customer was deleted, or midnight may have passed since the engine built the request
        if refused.code in _GONE or requests.due_at(request) < now + SENT_WITHIN:
            raise port.TransientError(str(refused), http_status=refused.http_status) from None
        raise


def _is_usable(draft: Invoice, fields: Mapping[str, str]) -> bool:
    """Return whether a draft was made from the same fields, and for the same lines."""
    return (draft.metadata or {}).get(requests.REQUEST) == fields[f"metadata[{requests.REQUEST}]"]


async def _completed(
    calls: ProviderCalls,
    request: port.ChargeRequest,
    fields: Mapping[str, str],
    draft: Invoice,
    *,
    now: datetime,
) -> Invoice:
    """Add the missing lines to a draft, check its amount, and finalize it. Raises GatewayError."""
    customer = fields["customer"]
    present = {(line.metadata or {}).get(requests.LINE) for line in draft.lines.data}
    for number in range(len(requests.lines_of(request))):
        if str(number) not in present:
            body = requests.line_fields(request, number, customer=customer, invoice_id=draft.id)
            await calls.write("POST", "/v1/invoiceitems", answer=Named, body=body)
    found = await _of_request(calls, request, customer, now=now)
    for each in found:
        if each.status != charges.DRAFT:
            if each.id != draft.id:
                await _discard(calls, draft.id)
            return each
    first = next((each for each in found if _is_usable(each, fields)), None)
    if first is None or first.id != draft.id:
        await _discard(calls, draft.id)
        raise port.UnknownOutcomeError("another call makes the same charge, or somebody deleted its draft")
    await _check(calls, request, first)
    finalize = Form({"auto_advance": "false"})
    return await calls.write("POST", f"/v1/invoices/{draft.id}/finalize", answer=Invoice, body=finalize)


async def _check(calls: ProviderCalls, request: port.ChargeRequest, draft: Invoice) -> None:
    """Refuse a draft with another amount than the request's, before anybody can pay it.

    Raises UnknownOutcomeError if the lines are wrong; a repeat makes a new draft. Raises PermanentError if taxes,
    discounts or a balance of the Stripe account change the amount.
    """
    shown = sorted(line.amount for line in draft.lines.data)
    if draft.lines.has_more or shown != sorted(line.amount_cents for line in requests.lines_of(request)):
        await _discard(calls, draft.id)
        raise port.UnknownOutcomeError("the draft has other lines than the charge")
    amounts = (draft.total, draft.amount_due, draft.starting_balance)
    if draft.currency.upper() != charges.CURRENCY or amounts != (
        request.amount_cents,
        request.amount_cents,
        0,
    ):
        detail = (
            f"Stripe would not charge {request.amount_cents} cents: the total is {draft.total}, the amount due is "
            f"{draft.amount_due}, and the customer's balance at Stripe is {draft.starting_balance}. "
            "Taxes, discounts and this balance must not change the amount."
        )
        raise port.PermanentError("amount_differs", detail)


async def _after_refusal(calls: ProviderCalls, draft: Invoice, refused: port.PermanentError) -> Invoice:
    """Return the invoice if it was finalized meanwhile. Otherwise delete the draft, and raise the refusal."""
    try:
        with reading():
            invoice = await calls.read(f"/v1/invoices/{draft.id}", Invoice, may_be_absent=True)
    except port.NotFoundError:
        raise port.UnknownOutcomeError("somebody deleted the draft of the charge") from None
    if invoice.status != charges.DRAFT:
        return invoice
    if refused.code in _GONE:
        raise port.UnknownOutcomeError(str(refused), http_status=refused.http_status)
    await _discard(calls, draft.id)
    raise refused
