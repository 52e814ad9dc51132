"""Choose which of the found charges an invoice adopts (D-181).

A found charge is a charge at the gateway that the invoice's newest request may have created. `fatura restored` finds
such charges (D-123). The engine also finds them if a webhook or the provider's list names them (D-162).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fatura.domain import unread_charges
from fatura.domain.charge import IN_DOUBT, MAY_APPEAR, ChargeStage, InvoiceCharge
from fatura.domain.charging import MISSING_AFTER, retry_delay
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.payments import PaymentEntry, covering_entry, open_cents
from fatura.gateways.port import (
    Charge,
    ChargeRequest,
    ChargeState,
    NotFoundError,
    PermanentError,
    TransientError,
)
from fatura.store.billing import payment_entries
from fatura.store.charging import charges, late_charge_checks, unmatched_charges
from fatura.store.charging.claims import ClaimedInvoice
from fatura.store.restore import charge_matching
from fatura.usecases.charging import next_charge, retries
from fatura.usecases.charging.gateway_calls import CLOSED, FoundCharges, GatewayAnswer, GatewayCall
from fatura.usecases.payments import gateway_payments, second_charges
from fatura.usecases.payments.gateway_payments import ChargeAnswer
from fatura.usecases.transaction import Work

NAMED = 5
"""Maximum number of found charges that an error's detail names besides the first one."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """The data from which the expected amount of a found charge is computed.

    `entries` are the recorded entries of the invoice and the new entries of the found charges. `request` is the request
    that the engine sent, or None if the request is not stored or cannot be decrypted.
    """

    total_cents: int
    entries: Sequence[PaymentEntry]
    request: ChargeRequest | None

    @property
    def is_covered(self) -> bool:
        """Return whether the payments have covered the total, even if money was returned later (D-150)."""
        return covering_entry(self.entries, total_cents=self.total_cents) is not None

    def is_met(self, charge: Charge) -> bool:
        """Return whether the charge's amount equals the part of the total that payments of other charges leave open.

        A lower amount is accepted too if the engine requested it.
        """
        left = self._left_cents(charge)
        return charge.amount_cents == left or (charge.amount_cents < left and self._is_requested(charge))

    def allows(self, charge: Charge) -> bool:
        """Return whether the invoice can be issued with the charge.

        The requested amount is allowed even if the open amount has decreased since the request. If payments of other
        charges cover the total, every amount is allowed, because a poll will cancel the charge.
        """
        return self.is_met(charge) or self._is_requested(charge) or self._left_cents(charge) == 0

    def _left_cents(self, charge: Charge) -> int:
        others = [entry for entry in self.entries if entry.gateway_charge_id != charge.charge_id]
        return open_cents(others, total_cents=self.total_cents)

    def _is_requested(self, charge: Charge) -> bool:
        requested = self.request and (self.request.attempt, self.request.amount_cents)
        return requested == (charge.attempt, charge.amount_cents)


async def expectation(
    work: Work, invoice: ClaimedInvoice, stored: InvoiceCharge, *, found: Sequence[Charge]
) -> Expectation:
    answers = [ChargeAnswer(stored.invoice_id, stored.connection_id, charge) for charge in found]
    ledgers = await payment_entries.of_invoices(work.tx, [stored.invoice_id])
    new = await gateway_payments.new_entries(work, answers)
    return Expectation(
        total_cents=invoice.total_cents,
        entries=[*ledgers.get(stored.invoice_id, ()), *new],
        request=next_charge.unseal_request(work, stored),
    )


async def is_paid(
    work: Work,
    invoice: ClaimedInvoice,
    stored: InvoiceCharge,
    *,
    charge: Charge,
    others: Sequence[Charge],
) -> bool:
    """Return whether payments allow issuing the invoice with `charge`, although its amount is wrong (D-170).

    Return True only if `charge` has a payment. If `charge` is canceled, the invoice's payments must also cover the
    total, because nobody can pay the rest of `charge`.
    """
    if charge.state is not ChargeState.CANCELED or not charge.entries:
        return bool(charge.entries)
    return (await expectation(work, invoice, stored, found=[charge, *others])).is_covered


async def is_ready(work: Work, stored: InvoiceCharge) -> bool:
    locked = await payment_entries.lock_invoices(work.tx, [stored.invoice_id])
    return locked[stored.invoice_id].status is InvoiceStatus.READY


async def without_stored(work: Work, stored: InvoiceCharge, found: FoundCharges) -> FoundCharges:
    """Return `found` without the charges that are stored for other attempts.

    A provider's search can show these charges too, and the invoice must not adopt one of them again.
    """
    ids = [*(each.charge_id for each in found.charges), *found.missing]
    own = set(await unmatched_charges.without_charge(work.tx, stored.connection_id, ids))
    if stored.gateway_invoice_id is not None:
        own.add(stored.gateway_invoice_id)
    shown = [each for each in found.charges if each.charge_id in own]
    return replace(found, charges=shown, missing=[each for each in found.missing if each in own])


async def to_adopt(
    work: Work, stored: InvoiceCharge, found: FoundCharges, *, read: Sequence[str]
) -> FoundCharges:
    """Return the charges of an issuance look-up from which the invoice adopts one.

    Leave out each charge that is stored for another attempt, unless the answer has no other charges. `read` has the ids
    of the charges that the look-up read one by one, without the search. Assume that charges were left out, and that the
    remaining ones are all in `read` and closed. The search itself then shows no charge of this attempt, so set
    `search_error`.
    """
    own = await without_stored(work, stored, found)
    if not own.charges and not own.missing:
        return found
    has_left_out = (own.charges, own.missing) != (list(found.charges), list(found.missing))
    is_closed = all(each.state in CLOSED and each.charge_id in read for each in own.charges)
    if has_left_out and is_closed and not own.missing and own.search_error is None:
        return replace(own, search_error=NotFoundError("the search shows no charge"))
    return own


def choose(found: Sequence[Charge], expected: Expectation) -> Charge:
    """Return the charge that the invoice adopts. If several charges are equally suitable, choose the first of them."""
    return max(found, key=lambda charge: _preference(charge, expected))


def _preference(charge: Charge, expected: Expectation) -> tuple[int, bool, bool, int]:
    rank = {ChargeState.CANCELED: 0, ChargeState.EXPIRED: 1}.get(charge.state, 2)
    return rank, rank == 2 and expected.is_met(charge), bool(charge.entries), charge.attempt


def amounts(found: Sequence[Charge]) -> str:
    """Return the detail of an error: it names the first charge and its wrong amount.

    The detail also names the other charges that are not canceled.
    """
    first, *others = found
    detail = f"The gateway's charge {first.charge_id} is for {first.amount_cents} cents; check it there."
    others = [each for each in others if each.state is not ChargeState.CANCELED]
    if not others:
        return detail
    named = [f"{each.charge_id} ({each.amount_cents} cents)" for each in others[:NAMED]]
    if len(others) > NAMED:
        named.append(f"and {len(others) - NAMED} more")
    return f"{detail} Check the invoice's other charges too: {', '.join(named)}."


async def report_paid(
    work: Work, stored: InvoiceCharge, *, adopted: Charge, others: Sequence[Charge]
) -> None:
    """Report the second charges among `others` that have a payment, if they are still payable or copies of `adopted`.

    - A copy has the attempt number of the adopted charge and is not canceled.
    - A charge of another attempt is not reported if it cannot be paid now, because its payment can be rightful: it may
      be for another part of the total.
    - If any charge in `others` is not canceled, start late look-ups, which search for more copies (D-125).

    Call this before the payments are recorded: `gateway_payments.record` stores a charge's state, and
    `second_charges.emit` emits nothing for a stored state.

    `stored` is the stored charge as it was before the answer. If the answer has parked or failed the stored charge,
    report nothing, because the invoice can still adopt one of `others`.
    """
    ended = {ChargeStage.PARKED, ChargeStage.FAILED}
    if stored.stage in MAY_APPEAR and (await charges.lock_one(work.tx, stored)).stage in ended:
        return
    for charge in others:
        is_copy = charge.attempt == adopted.attempt and charge.state is not ChargeState.CANCELED
        if charge.entries and (charge.is_payable or is_copy):
            await second_charges.emit(
                work,
                stored.invoice_id,
                connection_id=stored.connection_id,
                known=adopted.charge_id,
                charge=charge,
            )
    if any(charge.state is not ChargeState.CANCELED for charge in others):
        await second_charges.plan_checks(work, [stored.charge_id])


async def look_up_all(work: Work, call: GatewayCall, answer: GatewayAnswer) -> None:
    """Add the charges of the answer to those found for this request, and schedule a look-up of them (D-123, D-162)."""
    await add(work, call, answer)
    await retries.schedule(work, call.invoice, at=work.now)


async def add(work: Work, call: GatewayCall, answer: GatewayAnswer) -> None:
    """Add the charges of the answer to those found for this request (D-123, D-162).

    The missing charges of the answer are added too.
    """
    answered = answer.charges if isinstance(answer, FoundCharges) else [answer]
    found = [(each.charge_id, each.attempt) for each in answered if isinstance(each, Charge)]
    missing = answer.missing if isinstance(answer, FoundCharges) else ()
    for gateway_id, number in [*found, *((each, call.charge.number) for each in missing)]:
        await charge_matching.add_charge(work.tx, call.charge.charge_id, gateway_id=gateway_id, number=number)


async def wait_for_search(work: Work, call: GatewayCall, current: InvoiceCharge, found: FoundCharges) -> bool:
    """Repeat a look-up if nobody can pay the charges that it read, and its search for more charges showed none.

    Return True if the look-up will be repeated, so that the caller must ignore this answer. Return False if the caller
    must go on with the answer.

    The search may have missed a charge that the payer can pay or has paid. So repeat the look-up, unless the payments
    cover the invoice's total:
    - If the search showed nothing or was refused, repeat the look-up once. But if charges are missing, return False,
      because `wait_for_missing` then decides.
    - If the search failed, repeat the look-up without limit, and record the payments now.
    """
    error = found.search_error
    if error is None or not await _is_current(work, call, current):
        return False
    if (await expectation(work, call.invoice, current, found=found.charges)).is_covered:
        return False
    if isinstance(error, (NotFoundError, PermanentError)):
        return not found.missing and not await retries.is_second_empty_look_up(work, call, current)
    await gateway_payments.record(work, _answers(current, found.charges))
    ids = [*(each.charge_id for each in found.charges), *found.missing]
    detail = f"Only the charge {_named(ids)} was found, nobody can pay it now, and the search for others fails: {error}"
    await retries.retry_later(work, call.invoice, error=TransientError(detail))
    return True


async def wait_for_missing(
    work: Work, call: GatewayCall, current: InvoiceCharge, found: FoundCharges
) -> bool:
    """Handle an answer in which some of the found charges are missing. The gateway may show these charges again.

    Return True if the caller must ignore this answer. Return False if the caller must record the charges that the
    gateway shows.

    - If the invoice no longer waits for this request, return False. But if the gateway shows no charge, read the
      missing charges later and return True.
    - If the gateway shows only canceled charges, record their payments. If the invoice's payments then cover the total,
      return False, and the invoice adopts a canceled charge.
    - Otherwise, repeat the look-up until MISSING_AFTER has passed. If the gateway then shows a charge that is not
      canceled, return False and ignore the missing charges. If it shows no such charge, park the stored charge: a
      missing charge may still exist, so a new charge could be a second charge.
    """
    has_other = any(charge.state is not ChargeState.CANCELED for charge in found.charges)
    since = _missing_since(call, current, found.missing)
    is_over = call.reserved_at - since >= MISSING_AFTER
    if not await _is_current(work, call, current):
        if not found.charges:
            await second_charges.look_late(work, current.connection_id, expired=(), missing=found.missing)
        return not found.charges
    if has_other and is_over:
        return False
    if found.charges and not has_other:
        if (await expectation(work, call.invoice, current, found=found.charges)).is_covered:
            return False
        await gateway_payments.record(work, _answers(current, found.charges))
    await add(work, call, found)  # the list may show fewer charges at the next look-up
    await charges.note_missing(work.tx, current, looked_up_at=since)
    await _repeat_or_park(work, call, current, missing=found.missing, is_over=is_over)
    return True


async def _is_current(work: Work, call: GatewayCall, current: InvoiceCharge) -> bool:
    """Return whether the call's request is the newest one, its outcome is unknown, and the invoice is `ready`."""
    is_newest = current.stage in IN_DOUBT and current.sent_at == call.charge.sent_at
    return is_newest and await is_ready(work, current)


def _answers(stored: InvoiceCharge, found: Sequence[Charge]) -> Sequence[ChargeAnswer]:
    return [ChargeAnswer(stored.invoice_id, stored.connection_id, each) for each in found]


def _missing_since(call: GatewayCall, stored: InvoiceCharge, missing: Sequence[str]) -> datetime:
    """Return when look-ups began to miss found charges.

    If the engine did not know one of the `missing` ids before, return the time of this look-up.
    """
    since = stored.looked_up_at
    if since is None or stored.empty_lookups or not set(missing).issubset(stored.known_charge_ids):
        return call.reserved_at
    return min(since, call.reserved_at)  # a wrong clock may have set `since` ahead (D-5)


async def _repeat_or_park(
    work: Work, call: GatewayCall, current: InvoiceCharge, *, missing: Sequence[str], is_over: bool
) -> None:
    detail = f"The gateway does not show the charge {_named(missing)} as expected"
    if is_over:
        detail += "; check it there, then retry issuance."
        await retries.park(work, call, code="charge_missing", detail=detail, gateway_id=missing[0])
        # late look-ups find only charges with the stored number, so also read the missing charges by id
        await second_charges.plan_checks(work, [current.charge_id])
        await second_charges.look_late(work, current.connection_id, expired=(), missing=missing)
        unread = await late_charge_checks.lock_unread(work.tx, current.charge_id)
        reported = unread_charges.with_reported(unread, missing)
        await late_charge_checks.save_unread(work.tx, current.charge_id, reported)
        return
    at = work.now + retry_delay(call.invoice.issue_failures + 1)
    await retries.schedule(work, call.invoice, at=at, error=NotFoundError(f"{detail}."))


def _named(gateway_ids: Sequence[str]) -> str:
    """Return the first ids, separated by commas, and how many more there are."""
    more = len(gateway_ids) - NAMED - 1
    return ", ".join(gateway_ids[: NAMED + 1]) + (f" and {more} more" if more > 0 else "")
