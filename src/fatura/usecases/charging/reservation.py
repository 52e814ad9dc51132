"""Reserve charges: decide which call each leased invoice needs, and store the charge before the call (D-33)."""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.charge import IN_DOUBT, ChargeStage, InvoiceCharge
from fatura.domain.connection import Connection, check_minimums
from fatura.domain.errors import CUSTOMER_ERASED, EngineError
from fatura.domain.invoice import InvoiceItem
from fatura.domain.payments import open_cents
from fatura.gateways.port import Gateway, Line, TransientError
from fatura.observability import log
from fatura.store.billing import invoices as stored_invoices
from fatura.store.billing import payment_entries
from fatura.store.charging import charges, claims
from fatura.store.charging.claims import ClaimedInvoice
from fatura.store.vault import KeyRingError
from fatura.usecases.charging import gateway_calls, next_charge, retries
from fatura.usecases.charging.gateway_calls import CallKind, GatewayCall
from fatura.usecases.connections import gateway_connections
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.database_clock import MAX_CLOCK_SKEW
from fatura.usecases.payments import gateway_payments
from fatura.usecases.transaction import Work

LONGEST_MEMORY = timedelta(days=3650)
"""A time that is longer than any gateway remembers an idempotency key."""
REMAINDER = "Remaining amount"
"""Description of the single line of a charge for an invoice that is already paid in part (D-67)."""


async def reserve(
    work: Work,
    invoice_ids: Sequence[UUID],
    *,
    lease_until: datetime,
    is_probe: bool = False,
    is_by_hand: bool = False,
) -> Sequence[GatewayCall]:
    """Decide which call each leased invoice needs, and store the charges whose requests will be sent.

    An invoice that is already paid in full, for example by a found charge, becomes `paid` without a call (D-50).
    If the connection's credentials cannot be decrypted, no call is made. A connection that is inactive, or that issues
    no charges (D-264), gets no request for a charge, but the engine still looks up a charge whose outcome is unknown. A
    failing connection gets only the calls of a probe, and calls that a person requests (D-55).
    """
    invoices = await claims.read(work.tx, invoice_ids)
    newest = await charges.newest(work.tx, invoice_ids)
    items = await stored_invoices.items_of(work.tx, invoice_ids)
    ledgers = await payment_entries.of_invoices(work.tx, invoice_ids)
    due_cents = {
        each.invoice_id: open_cents(ledgers.get(each.invoice_id, ()), total_cents=each.total_cents)
        for each in invoices
    }
    opened = await gateway_connections.open_gateways(
        work, {each.connection_id for each in invoices}, is_probe=is_probe
    )
    calls: list[GatewayCall] = []
    paid: list[UUID] = []
    for invoice in invoices:
        stored, gateway = opened[invoice.connection_id].stored, opened[invoice.connection_id].gateway
        connection = stored.connection
        charge = newest.get(invoice.invoice_id)
        if not due_cents[invoice.invoice_id]:
            paid.append(invoice.invoice_id)
        elif charge is not None and charge.stage is ChargeStage.PARKED:
            # a failed attempt scheduled this call, and another transaction parked the charge afterwards
            await claims.stop_parked(work.tx, invoice.invoice_id, now=work.now)
        elif gateway is None:
            detail = "The gateway connection's credentials cannot be decrypted."
            await retries.wait_for_connection(work, invoice, "unreadable", detail=detail)
        elif stored.health.is_failing and not (is_probe or is_by_hand):
            await retries.wait_for_recovery(work, invoice, stored.health)
        elif charge is not None and charge.stage in IN_DOUBT:
            calls.append(_ask_again(work, invoice, charge, gateway=gateway, may_send=connection.may_bill))
        elif not connection.may_bill:
            await _wait_to_send(work, invoice, connection)
        else:
            cents, lines = due_cents[invoice.invoice_id], _lines(items[invoice.invoice_id])
            calls += await _send(
                work, invoice, charge, amount_cents=cents, connection=connection, gateway=gateway, lines=lines
            )
    if paid:
        await gateway_payments.report_new(work, await payment_entries.lock_invoices(work.tx, paid), [])
    sending = [call.charge for call in calls if call.is_sent]
    looked_up = [call.charge for call in calls if not call.is_sent]
    await charges.save_sending(work.tx, sending, call_ends_at=lease_until)
    await charges.mark_unknown(work.tx, [charge.charge_id for charge in looked_up])
    await _forget_keys(work, looked_up)
    return calls


async def _wait_to_send(work: Work, invoice: ClaimedInvoice, connection: Connection) -> None:
    """Put an invoice off until its connection is active and issues charges (D-34, D-264)."""
    code, why = ("not_issuing", "issues no charges") if connection.active else ("inactive", "is inactive")
    await retries.wait_for_connection(work, invoice, code, detail=f"The gateway connection {why}.")


async def _forget_keys(work: Work, looked_up: Sequence[InvoiceCharge]) -> None:
    """If a host with a wrong clock dated a charge's first request, treat its idempotency key as forgotten (D-5)."""
    real_now = work.deps.clock()
    dated = [each.charge_id for each in looked_up if each.first_sent_at > real_now + MAX_CLOCK_SKEW]
    if dated:
        await charges.save_first_sent(work.tx, dated, first_sent_at=real_now - LONGEST_MEMORY)


def _ask_again(
    work: Work, invoice: ClaimedInvoice, charge: InvoiceCharge, *, gateway: ObservedGateway, may_send: bool
) -> GatewayCall:
    """Return the call that finds out whether an earlier request created the charge (D-33).

    Return a REPEAT if `may_send` is true, the gateway still deduplicates the request, no charge was found for the
    request, and the stored request can be decrypted. Otherwise, return a LOOK_UP.
    """
    real_now = work.deps.clock()
    request = None
    misses_charges = charge.looked_up_at is not None and not charge.empty_lookups
    is_found = bool(charge.known_charge_ids) or misses_charges
    if may_send and not is_found and _may_repeat(gateway, charge, real_now=real_now):
        request = next_charge.unseal_request(work, charge)
    if request is None:
        return _call(work, invoice, charge, kind=CallKind.LOOK_UP, gateway=gateway)
    repeated = replace(charge, stage=ChargeStage.UNKNOWN, sent_at=work.now)
    call = _call(work, invoice, repeated, kind=CallKind.REPEAT, gateway=gateway)
    return replace(call, request=request, earlier_sent_at=charge.sent_at)


async def _send(
    work: Work,
    invoice: ClaimedInvoice,
    newest: InvoiceCharge | None,
    *,
    amount_cents: int,
    connection: Connection,
    gateway: ObservedGateway,
    lines: tuple[Line, ...],
) -> Sequence[GatewayCall]:
    """Return the call that sends the request of the invoice's next charge. `newest` is the invoice's newest charge.

    Return no call if the request cannot be built, if the charge is below the provider's minimum (D-49), if the invoice
    has too many charges (D-176), or if its customer is erased (D-227). In the last three cases, a person must act.
    """
    charge = await next_charge.to_send(work, invoice, newest, amount_cents=amount_cents)
    try:
        _check_not_erased(invoice)
        check_minimums(connection, charge.amount_cents, installments=charge.installments)
        await next_charge.check_count(work, charge.invoice_id, charge.number)
    except EngineError as refusal:
        await retries.refuse_unsent(work, invoice, charge, refusal=refusal)
        return []
    if charge.amount_cents != invoice.total_cents:
        lines = (Line(REMAINDER, charge.amount_cents),)
    try:
        request = next_charge.build_request(work, invoice, charge, lines=lines)
    except KeyRingError as error:
        log.error("charge.document_unreadable", invoice_id=str(invoice.invoice_id), error=error)
        message = (
            "the customer's document cannot be decrypted; send it again by PATCH /v1/customers/{customerId}"
        )
        await retries.retry_later(work, invoice, error=TransientError(message))
        return []
    charge = replace(charge, request_sealed=next_charge.seal_request(work, charge, request))
    call = _call(work, invoice, charge, kind=CallKind.SEND, gateway=gateway)
    sent_at = newest.sent_at if newest is not None and newest.stage is ChargeStage.ABSENT else None
    return [replace(call, request=request, earlier_sent_at=sent_at)]


def _lines(items: Sequence[InvoiceItem]) -> tuple[Line, ...]:
    return tuple(
        Line(item.description or item.product_name, item.amount_cents)
        for item in items
        if item.amount_cents is not None
    )


def _check_not_erased(invoice: ClaimedInvoice) -> None:
    """Raises EngineError: `engine.customer_erased`. An erased customer has open invoices only after a restore."""
    if invoice.customer_email is None:
        detail = "The customer is erased, so the invoice is not charged; cancel it, or record its payment."
        raise EngineError(CUSTOMER_ERASED, detail)


def _call(
    work: Work, invoice: ClaimedInvoice, charge: InvoiceCharge, *, kind: CallKind, gateway: ObservedGateway
) -> GatewayCall:
    return GatewayCall(
        kind=kind,
        invoice=invoice,
        charge=charge,
        gateway=gateway,
        reserved_at=work.now,
        reserved_at_real=work.deps.clock(),
        send_before=time.monotonic() + gateway_calls.SEND_WITHIN_SECONDS,
    )


def _may_repeat(gateway: Gateway, charge: InvoiceCharge, *, real_now: datetime) -> bool:
    """Return whether the gateway still deduplicates the charge's request, by idempotency key or natural id (D-33).

    A key counts as forgotten if a host with a wrong clock dated the first request; see `_forget_keys`.
    """
    capabilities = gateway.capabilities()
    if capabilities.idempotency == "natural_id":
        return True
    if capabilities.idempotency != "key" or capabilities.idempotency_ttl is None:
        return False
    age = real_now - charge.first_sent_at
    return -MAX_CLOCK_SKEW <= age < capabilities.idempotency_ttl - timedelta(hours=1)
