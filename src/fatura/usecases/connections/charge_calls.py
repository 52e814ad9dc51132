"""Store and show the requests to providers about a charge, and the providers' answers (D-267)."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import UUID

import msgspec

from fatura.domain.errors import not_found, require
from fatura.store.billing import invoices
from fatura.store.charging import charge_calls, charges
from fatura.store.charging.charge_calls import SEALED_PLACE, StoredCall
from fatura.usecases.connections.observed_gateway import About, ObservedGateway, ProviderCall
from fatura.usecases.paging import Page
from fatura.usecases.transaction import Work
from fatura.views.charge_calls import ChargeCallPageView, ChargeCallView, Operation
from fatura.views.view import instant

KEPT = 50
"""Maximum number of calls that are kept for a charge, the newest ones."""
_OPERATIONS = {
    "create_charge": "create",
    "find_charges": "find",
    "get_charge": "read",
    "cancel_charge": "cancel",
    "refund_charge": "refund",
}


@dataclass(frozen=True, slots=True)
class CallsAbout:
    """The calls of a gateway about a charge. `about` says what the calls named."""

    charge_id: UUID
    gateway: ObservedGateway | None
    about: Sequence[About]

    @property
    def made(self) -> Sequence[ProviderCall]:
        if self.gateway is None:
            return ()
        return [call for each in dict.fromkeys(self.about) for call in self.gateway.calls.get(each, ())]


class _Texts(msgspec.Struct):
    """The texts of a call, which are stored encrypted."""

    method: str
    path: str
    request: str
    answer: str
    failure: str | None


async def record(work: Work, found: Sequence[CallsAbout]) -> None:
    """Store the calls about charges, in the transaction that records their outcomes.

    The calls of an adapter that makes no HTTP calls are not stored, and neither are those about an erased customer.
    """
    made = {each.charge_id: each.made for each in found if each.made}
    if not made:
        return
    stored = await charge_calls.lock_charges(work.tx, list(made))
    calls = [_stored(work, charge_id, call) for charge_id in stored for call in made[charge_id][-KEPT:]]
    if not calls:
        return
    await charge_calls.add(work.tx, calls, stored_at=work.deps.clock())
    full = [charge_id for charge_id, count in stored.items() if count + len(made[charge_id]) > KEPT]
    if full:
        await charge_calls.keep_newest(work.tx, full, limit=KEPT)


def _stored(work: Work, charge_id: UUID, call: ProviderCall) -> StoredCall:
    made, hidden = call.exchange, [call.document] if call.document else []
    texts = _Texts(
        method=made.method,
        path=made.shown(made.path, hidden=hidden),
        request=made.shown(made.request, hidden=hidden),
        answer=made.shown(made.answer, hidden=hidden),
        failure=made.failure,
    )
    return StoredCall(
        call_id=call.call_id,
        charge_id=charge_id,
        operation=_OPERATIONS[call.operation],
        sent_at=work.now - timedelta(seconds=time.monotonic() - made.began),
        duration_ms=round(made.seconds * 1000),
        status=made.status,
        sealed=work.seal(msgspec.json.encode(texts), place=SEALED_PLACE, row_id=call.call_id),
    )


async def read_page(work: Work, page: Page, invoice_id: UUID, *, charge_id: UUID) -> ChargeCallPageView:
    """Return a page of the calls about an invoice's charge, newest first. Raises EngineError: `engine.not_found`."""
    charge = await charges.find(work.tx, charge_id)
    if charge is None or charge.invoice_id != invoice_id:
        found = await invoices.details(work.tx, [invoice_id])
        require(found.get(invoice_id), "invoice", id_=invoice_id)
        raise not_found("charge", charge_id)
    return await page.read(
        ChargeCallPageView,
        partial(charge_calls.of_charge, work.tx, charge_id),
        of=partial(_shown, work),
        total=await charge_calls.count(work.tx, charge_id),
    )


def _shown(work: Work, stored: StoredCall) -> ChargeCallView:
    plain = work.open(stored.sealed, place=SEALED_PLACE, row_id=stored.call_id)
    texts = msgspec.json.decode(plain, type=_Texts)
    return ChargeCallView(
        id=str(stored.call_id),
        at=instant(stored.sent_at),
        operation=msgspec.convert(stored.operation, Operation),
        method=texts.method,
        path=texts.path,
        request_body=texts.request or None,
        response_status=stored.status,
        response_body=texts.answer or None,
        failure=texts.failure,
        latency_ms=stored.duration_ms,
    )
