"""The OpenAPI document of Stripe, which is not part of Fatura."""

from tests.doubles.contract import Contract, given_document

FILE = "stripe-core-2026.openapi.json"


def given_contract() -> Contract | None:
    """Return the document in the folder FATURA_CONTRACTS, or None if no folder is given.

    The document lacks the list of disputes, which has the parameters of the list of refunds, and the search of
    invoices, which returns a page like the list of invoices.
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
    listed = document["paths"]["/v1/invoices"]["get"]["responses"]["200"]["content"]["application/json"][
        "schema"
    ]
    kind = {"object": {"type": "string", "enum": ["search_result"]}}
    searched = {**listed, "properties": {**listed["properties"], **kind}}
    document["paths"]["/v1/invoices/search"] = {
        "get": {
            "parameters": [
                {"name": name, "in": "query", "required": name == "query", "schema": {"type": "string"}}
                for name in ("query", "limit", "page")
            ],
            "responses": {
                **operation["responses"],
                "200": {"content": {"application/json": {"schema": searched}}},
            },
        }
    }
    document["paths"] = dict(sorted(document["paths"].items(), key=lambda each: "{" in each[0]))
    return Contract(document)
