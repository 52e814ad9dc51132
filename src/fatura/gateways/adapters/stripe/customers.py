"""Find or create the customer of a charge at Stripe. Each step can be repeated."""

import re
from collections.abc import Mapping
from hashlib import sha256

from fatura.gateways.adapters.stripe.lists import objects
from fatura.gateways.adapters.stripe.objects import Customer, Named
from fatura.gateways.adapters.stripe.requests import keyed
from fatura.gateways.http import Form, ProviderCalls
from fatura.gateways.port import Payer, PermanentError, TransientError, UnknownOutcomeError

CUSTOMER, DOCUMENT = "fatura_customer", "fatura_document"
"""The names of the metadata with the engine's id of the customer, and with a hash of the document."""
MAX_NAME = 256
_SEPARATORS = re.compile(r"[.\-/ ]")
_CPF = re.compile("([0-9]{3})([0-9]{3})([0-9]{3})([0-9]{2})")
_CNPJ = re.compile("([0-9A-Z]{2})([0-9A-Z]{3})([0-9A-Z]{3})([0-9A-Z]{4})([0-9]{2})")


async def customer_id(calls: ProviderCalls, payer: Payer) -> str:
    """Return Stripe's id of the customer with the payer's id, e-mail address and document.

    If the customer has another name than the payer, change it. Stripe cannot find customers by metadata at once, so
    they are found by the e-mail address. If the address or the document changed, a new customer is created.
    Raises PermanentError, AuthFailedError, TransientError. A failure has created no charge.
    """
    tax_id = _tax_id(payer)
    marks = {CUSTOMER: str(payer.customer_id), DOCUMENT: _mark(payer, tax_id)}
    name = payer.name[:MAX_NAME]
    try:
        found = await _found(calls, payer.email, marks)
        if found is None:
            return (
                await calls.write("POST", "/v1/customers", answer=Named, body=_new(payer, marks, tax_id))
            ).id
        if found.name != name:
            await calls.write("POST", f"/v1/customers/{found.id}", answer=Named, body=Form({"name": name}))
    except UnknownOutcomeError as error:
        raise TransientError(str(error), http_status=error.http_status) from None
    return found.id


def _new(payer: Payer, marks: Mapping[str, str], tax_id: tuple[str, str] | None) -> Form:
    fields = {"name": payer.name[:MAX_NAME], "email": payer.email, "preferred_locales[0]": "pt-BR"}
    fields |= {f"metadata[{name}]": value for name, value in marks.items()}
    if tax_id is not None:
        fields |= {"tax_id_data[0][type]": tax_id[0], "tax_id_data[0][value]": tax_id[1]}
    return keyed(fields, f"customer:{payer.customer_id}")


async def _found(calls: ProviderCalls, email: str, marks: Mapping[str, str]) -> Customer | None:
    """Return the oldest customer with this address and these metadata."""
    found = None
    async for each in objects(calls, "/v1/customers", kind=Customer, query={"email": email}):
        if marks.items() <= (each.metadata or {}).items():
            found = each
    return found


def _tax_id(payer: Payer) -> tuple[str, str] | None:
    """Return the type and the formatted value of the payer's document. Raises PermanentError."""
    if payer.document is None:
        return None
    plain = _SEPARATORS.sub("", payer.document).upper()
    if found := _CPF.fullmatch(plain):
        return "br_cpf", "{}.{}.{}-{}".format(*found.groups())
    if found := _CNPJ.fullmatch(plain):
        return "br_cnpj", "{}.{}.{}/{}-{}".format(*found.groups())
    raise PermanentError("document_invalid", "The document of the customer is neither a CPF nor a CNPJ.")


def _mark(payer: Payer, tax_id: tuple[str, str] | None) -> str:
    """Return a hash that changes with the document. Stripe has the document itself as a tax id."""
    value = "" if tax_id is None else tax_id[1]
    return sha256(f"{payer.customer_id}:{value}".encode()).hexdigest()[:16]
