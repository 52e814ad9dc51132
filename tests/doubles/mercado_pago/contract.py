"""The OpenAPI document of Mercado Pago, which is not part of Fatura. A third party wrote it, not Mercado Pago."""

from tests.doubles.contract import Contract, given_document

FILE = "mercadopago-core.thirdparty.openapi.json"
UNDOCUMENTED = frozenset({"/users/me"})
"""Paths that the adapter uses and the document does not contain."""
PREFERENCE_FIELDS = {
    "payment_methods": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "excluded_payment_types": {
                "type": "array",
                "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
            },
            "installments": {"type": "integer", "minimum": 1},
        },
    },
    "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
}
"""Fields of a preference that Mercado Pago's own pages describe, and the document leaves out."""
QUERY = {"external_reference": {"type": "string"}, "limit": {"type": "integer", "maximum": 100}}
"""Parameters of the search for preferences, which the document leaves out as well."""


def given_contract() -> Contract | None:
    """Return the document in the folder FATURA_CONTRACTS with the fields it lacks, or None if no folder is given."""
    document = given_document(FILE)
    if document is None:
        return None
    schemas = document["components"]["schemas"]
    schemas["PreferenceRequest"]["properties"] |= PREFERENCE_FIELDS
    schemas["Payer"]["properties"]["name"] = {"type": "string"}
    search = document["paths"]["/checkout/preferences/search"]["get"]
    search["parameters"] = [{"name": name, "in": "query", "schema": each} for name, each in QUERY.items()]
    return Contract(document, UNDOCUMENTED)
