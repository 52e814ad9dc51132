"""The OpenAPI document of Asaas, which is not part of Fatura."""

from tests.doubles.contract import Contract, given_document

FILE = "asaas-core.openapi.json"
UNDOCUMENTED = frozenset({"/v3/wallets/", "/v3/wallets"})
"""Paths that the adapter uses and the document does not contain."""


def given_contract() -> Contract | None:
    """Return the document in the folder FATURA_CONTRACTS, or None if no folder is given.

    For a payment in installments, the document requires `value`, although `totalValue` replaces it.
    """
    document = given_document(FILE)
    if document is None:
        return None
    body = document["paths"]["/v3/payments"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schema = document["components"]["schemas"][body["$ref"].rsplit("/", 1)[-1]] if "$ref" in body else body
    schema["required"].remove("value")
    schema["anyOf"] = [{"required": ["value"]}, {"required": ["installmentCount", "totalValue"]}]
    return Contract(document, UNDOCUMENTED)
