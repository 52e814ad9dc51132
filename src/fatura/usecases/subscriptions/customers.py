"""Create customers when they subscribe; read and correct customers (D-15)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

from fatura.domain.errors import invalid_fields, require
from fatura.domain.filters import CustomerFilter
from fatura.domain.subscription import ERASED_REF, Customer, check_not_erased
from fatura.store import counters
from fatura.store.db import DeadlockError
from fatura.store.subscriptions import customers
from fatura.store.subscriptions.customers import StoredDocument
from fatura.usecases.paging import Page
from fatura.usecases.transaction import Work
from fatura.views.customers import CustomerPageView, CustomerProfileView


@dataclass(frozen=True, slots=True)
class CustomerInput:
    """The customer of a new subscription; an existing customer with the same `external_ref` is reused (D-15)."""

    external_ref: str
    name: str
    email: str
    document: str | None


async def create_or_reuse(work: Work, given: CustomerInput) -> tuple[Customer, bool]:
    """Return the customer with this externalRef, or create one. Also return whether the customer is new.

    If the customer exists without a tax document, the given document is stored.
    Raises EngineError: `engine.customer_erased`; `engine.invalid_request` if the externalRef begins with ERASED_REF,
    but no erased customer has it.
    """
    if given.external_ref.startswith(ERASED_REF):
        known = await customers.find_to_subscribe(work.tx, given.external_ref)
        if known is not None:
            check_not_erased(known)
        why = f"must not begin with `{ERASED_REF}`, because only erased customers have such an externalRef"
        raise invalid_fields(("customer.externalRef", why))
    customer = Customer(work.new_id(), given.external_ref, given.name, given.email)
    is_new = await customers.insert_unless_known(work.tx, customer, created_at=work.now)
    if is_new:
        work.totals["customers"] += 1
    else:
        known = await customers.find_to_subscribe(work.tx, given.external_ref)
        if known is None:
            raise DeadlockError("the customer with this externalRef was erased meanwhile")
        check_not_erased(known)
        customer = known
    if given.document is not None:
        document = _seal(work, customer.customer_id, given.document)
        await customers.fill_in_document(work.tx, customer.customer_id, document)
    return customer, is_new


async def read(work: Work, customer_id: UUID) -> CustomerProfileView:
    """Return a customer. Raises EngineError: `engine.not_found`."""
    found = require(await customers.find(work.tx, customer_id), "customer", id_=customer_id)
    return CustomerProfileView.of_profile(found)


async def read_page(work: Work, page: Page, wanted: CustomerFilter) -> CustomerPageView:
    """Return a page of the customers that match a filter, newest first (D-15)."""
    hashes = None if wanted.document is None else _hashes(work, wanted.document)
    if wanted == CustomerFilter():
        total = (await counters.totals(work.tx))["customers"]
    else:
        total = await customers.count(work.tx, wanted, hashes=hashes)
    records = partial(customers.page, work.tx, wanted, hashes=hashes)
    return await page.read(CustomerPageView, records, of=CustomerProfileView.of_profile, total=total)


async def patch(work: Work, customer_id: UUID, changes: Mapping[str, Any]) -> CustomerProfileView:
    """Change `name`, `email` or `document`, if given; None removes the document. New charges use the new values.

    Raises EngineError: `engine.not_found`, `engine.customer_erased`.
    """
    found = require(await customers.lock(work.tx, customer_id), "customer", id_=customer_id)
    check_not_erased(found.customer)
    corrected = {field: value for field, value in changes.items() if field != "document"}
    profile = replace(found, customer=replace(found.customer, **corrected))
    await customers.update(work.tx, profile.customer)
    if "document" in changes:
        given: str | None = changes["document"]
        document = None if given is None else _seal(work, customer_id, given)
        await customers.replace_document(work.tx, customer_id, document)
        profile = replace(profile, has_document=document is not None)
    view = CustomerProfileView.of_profile(profile)
    hidden = {"document"} & changes.keys()
    work.audit(customer_id, before=CustomerProfileView.of_profile(found), after=view, hidden=hidden)
    return view


def _seal(work: Work, customer_id: UUID, document: str) -> StoredDocument:
    sealed = work.seal(document.encode(), place=customers.DOCUMENT_PLACE, row_id=customer_id)
    return StoredDocument(sealed, _hashes(work, document)[0])


def _hashes(work: Work, document: str) -> Sequence[bytes]:
    return customers.document_hashes(work.deps.vault, document, account_id=work.account.account_id)
