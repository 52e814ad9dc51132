"""Check exchanges with the simulated Asaas against the vendor's OpenAPI document, which is not part of Fatura.

The document is the file `asaas-core.openapi.json` in the folder that the environment variable FATURA_CONTRACTS names.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from openapi_schema_validator import OAS30Validator

FOLDER = "FATURA_CONTRACTS"
FILE = "asaas-core.openapi.json"
UNDOCUMENTED = frozenset({"/v3/wallets/", "/v3/wallets"})
"""Paths that the adapter uses and the document does not contain."""
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Exchange:
    method: str
    path: str
    query: Mapping[str, str]
    sent: bytes
    status: int
    answer: bytes


class Contract:
    """The operations of an OpenAPI 3.0 document."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self.used = set[tuple[str, str]]()

    def violations(self, exchange: Exchange) -> Sequence[str]:
        """Return each contradiction between an exchange and the document.

        A request that the simulated Asaas refused may contradict the document.
        """
        if exchange.path in UNDOCUMENTED:
            return []
        found = self._operation(exchange)
        if found is None:
            return [f"{exchange.method} {exchange.path} is not in the document"]
        name, operation = found
        self.used.add((exchange.method, name))
        faults = list(self._answer_faults(operation, exchange))
        if exchange.status == 200:
            faults += self._request_faults(operation, exchange)
        return [f"{exchange.method} {name}: {fault}" for fault in faults]

    def _operation(self, exchange: Exchange) -> tuple[str, Any] | None:
        for name, operations in self._document["paths"].items():
            pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(name))
            if exchange.method.lower() in operations and re.fullmatch(pattern, exchange.path):
                return name, operations[exchange.method.lower()]
        return None

    def _request_faults(self, operation: Any, exchange: Exchange) -> Iterator[str]:
        parameters = {each["name"]: each for each in operation.get("parameters", []) if each["in"] == "query"}
        for key, value in exchange.query.items():
            if key not in parameters:
                yield f"the query parameter {key} does not exist"
            else:
                kind = self._resolved(parameters[key]["schema"])
                typed = int(value) if kind.get("type") == "integer" else value
                yield from self._faults(kind, typed)
        body = operation.get("requestBody")
        if (body is None) == bool(exchange.sent):
            yield "a body is missing, or not expected"
        if body is not None and exchange.sent:
            schema = dict(self._resolved(body["content"][_JSON]["schema"]))
            given = _parsed(exchange.sent)
            if (
                "installmentCount" in given
            ):  # the document requires `value`, although `totalValue` replaces it
                schema["required"] = [name for name in schema["required"] if name != "value"]
            unknown = given.keys() - schema["properties"].keys()
            if unknown:
                yield f"the fields {sorted(unknown)} do not exist"
            yield from self._faults(schema, given)

    def _answer_faults(self, operation: Any, exchange: Exchange) -> Iterator[str]:
        answers = operation["responses"]
        if str(exchange.status) not in answers:
            yield f"the status {exchange.status} is not in the document"
            return
        content = answers[str(exchange.status)].get("content", {}).get(_JSON)
        if content is not None:
            yield from self._faults(content["schema"], _parsed(exchange.answer))

    def _faults(self, schema: Any, value: Any) -> Iterator[str]:
        validator = OAS30Validator({**schema, "components": self._document["components"]})
        for error in validator.iter_errors(value):
            yield f"{error.json_path}: {error.message}"

    def _resolved(self, schema: Any) -> Any:
        reference = schema.get("$ref")
        return (
            schema
            if reference is None
            else self._document["components"]["schemas"][reference.rsplit("/", 1)[-1]]
        )


def _parsed(text: bytes) -> Any:
    return json.loads(text, parse_float=Decimal)


def given_contract() -> Contract | None:
    """Return the document in the folder FATURA_CONTRACTS, or None if no folder is given."""
    folder = os.environ.get(FOLDER)
    return Contract(json.loads((Path(folder) / FILE).read_text())) if folder else None
