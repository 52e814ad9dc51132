"""The OpenAPI document of Stripe, which is not part of Fatura."""

from tests.doubles.contract import Contract, given_document

FILE = "stripe-core-2026.openapi.json"


def given_contract() -> Contract | None:
    """Return the document in the folder FATURA_CONTRACTS, or None if no folder is given.

    The document lacks the list of disputes, which has the parameters of the list of refunds.
    """
    document = given_document(FILE)
    if document is None:
        return None
    operation = document["paths"]["/v1/refunds"]["get"]
    answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
    disputes = {**answer, "properties": {**answer["properties"]}}
    disputes["properties"]["data"] = {"type": "array", "items": {"$ref": "#/components/schemas/dispute"}}
    content = {"200": {"content": {"application/json": {"schema": disputes}}}}
    document["paths"]["/v1/disputes"] = {"get": {**operation, "responses": content}}
    return Contract(document)
