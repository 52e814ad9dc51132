"""Find or create the customer of a charge at Asaas. Each step can be repeated."""

import re

from fatura.gateways.adapters.asaas.objects import Customer, Page, read_as
from fatura.gateways.http import ProviderCalls
from fatura.gateways.port import Payer, PermanentError, TransientError

_SEPARATORS = re.compile(r"[.\-/ ]")


async def customer_id(calls: ProviderCalls, payer: Payer) -> str:
    """Return Asaas' id of the customer whose `externalReference` is the engine's id of the payer.

    If the customer has other data than the payer, change it. Two concurrent calls for a new payer may create two
    customers, of which later calls use the newest. This does no harm, because charges are found by their own reference.
    Raises PermanentError, AuthFailedError, TransientError, UnknownOutcomeError.
    """
    if payer.document is None:
        detail = "Asaas needs the CPF or CNPJ of the customer."
        raise PermanentError("document_required", detail)
    data = {
        "name": payer.name,
        "cpfCnpj": _SEPARATORS.sub("", payer.document).upper(),
        "email": payer.email,
        "externalReference": str(payer.customer_id),
        "notificationDisabled": True,
    }
    found = await _found(calls, str(payer.customer_id))
    if found is None:
        return (await calls.write("POST", "/customers", answer=Customer, body=data)).id
    known = (found.name, found.cpf_cnpj, found.email, found.notification_disabled)
    if known != (data["name"], data["cpfCnpj"], data["email"], True):
        try:
            await calls.write("PUT", f"/customers/{found.id}", answer=Customer, body=data)
        except PermanentError:  # Asaas does not change every customer, so a new one gets the new data
            return (await calls.write("POST", "/customers", answer=Customer, body=data)).id
    return found.id


async def _found(calls: ProviderCalls, reference: str) -> Customer | None:
    try:
        page = await calls.read("/customers", Page, query={"externalReference": reference})
    except PermanentError as error:
        raise TransientError(str(error), http_status=error.http_status) from None
    customers = [read_as(each, Customer) for each in page.data]
    named = (each for each in customers if each.external_reference == reference and not each.deleted)
    return next(named, None)
