"""The Central Bank's OpenAPI document of the Pix API, which is not part of Fatura."""

from tests.doubles.contract import Contract, given_document

FILE = "bacen-pix-core.openapi.json"


def given_contract() -> Contract | None:
    """Return the document in the folder FATURA_CONTRACTS, or None if no folder is given.

    The document requires the receiver's address beside `recebedor` too, where it is not defined. Its own examples have
    it inside `recebedor` only.
    """
    document = given_document(FILE)
    if document is None:
        return None
    document["components"]["schemas"]["DadosRecebedor"].pop("required", None)
    return Contract(document)
