"""Check exchanges with a simulated provider against the provider's OpenAPI document, which is not part of Fatura.

The documents are files in the folder that the environment variable FATURA_CONTRACTS names.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from openapi_schema_validator import OAS30Validator

from tests.doubles.forms import nested

FOLDER = "FATURA_CONTRACTS"
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Exchange:
    method: str
    path: str
    query: Mapping[str, str]
    sent: bytes
    status: int
    answer: bytes


class Contract:
    """The operations of an OpenAPI 3.0 document. It lacks the paths `undocumented`, which are not checked."""

    def __init__(self, document: Any, undocumented: frozenset[str] = frozenset()) -> None:
        self._document = document
        self._undocumented = undocumented
        self.used = set[tuple[str, str]]()

    def violations(self, exchange: Exchange) -> Sequence[str]:
        """Return each contradiction between an exchange and the document.

        A request that the simulated provider refused may contradict the document.
        """
        if exchange.path in self._undocumented:
            return []
        found = self._operation(exchange)
        if found is None:
            return [f"{exchange.method} {exchange.path} is not in the document"]
        name, operation, values = found
        self.used.add((exchange.method, name))
        faults = list(self._answer_faults(operation, exchange))
        if exchange.status < 400:
            faults += self._request_faults(operation, exchange, values)
        return [f"{exchange.method} {name}: {fault}" for fault in faults]

    def example(self, name: str) -> Any:
        """Return an example of the document."""
        return self._document["components"]["examples"][name]["value"]

    def _operation(self, exchange: Exchange) -> tuple[str, Any, Mapping[str, str]] | None:
        for name, operations in self._document["paths"].items():
            pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(name))
            matched = re.fullmatch(pattern, exchange.path)
            if exchange.method.lower() in operations and matched is not None:
                operation = dict(operations[exchange.method.lower()])
                operation["parameters"] = [
                    *operations.get("parameters", []),
                    *operation.get("parameters", []),
                ]
                return name, operation, matched.groupdict()
        return None

    def _request_faults(self, operation: Any, exchange: Exchange, values: Mapping[str, str]) -> Iterator[str]:
        parameters = [self._resolved(each) for each in operation["parameters"]]
        known = {each["name"]: each for each in parameters if each["in"] in {"path", "query"}}
        flat = {name: value for name, value in exchange.query.items() if name in known}
        parts = nested((name, value) for name, value in exchange.query.items() if name not in known)
        given = {**flat, **parts, **{name: unquote(value) for name, value in values.items()}}
        for name, value in given.items():
            if name not in known:
                yield f"the parameter {name} does not exist"
                continue
            schema = self._resolved(known[name]["schema"])
            yield from self._faults(schema, self._typed(schema, value))
        yield from (
            f"the parameter {name} is missing"
            for name, each in known.items()
            if each.get("required") and name not in given
        )
        body = self._resolved(operation.get("requestBody", {}))
        is_needed = bool(body) and body.get("required", True)
        if (is_needed and not exchange.sent) or (exchange.sent and not body):
            yield "a body is missing, or not expected"
        if body and exchange.sent:
            yield from self._body_faults(body["content"], exchange.sent)

    def _body_faults(self, content: Any, body: bytes) -> Iterator[str]:
        schema = self._resolved(next(iter(content.values()))["schema"])
        if FORM in content:
            form = nested(parse_qsl(body.decode(), keep_blank_values=True))
            sent = self._typed(schema, form)
        else:
            sent = _parsed(body)
        if unknown := sent.keys() - schema.get("properties", sent).keys():
            yield f"the fields {sorted(unknown)} do not exist"
        yield from self._faults(schema, sent)

    def _typed(self, schema: Any, value: Any) -> Any:
        """Turn the texts of a query or a form into the types of a schema. Leave a text that cannot be turned."""
        schema = self._resolved(schema)
        for option in schema.get("anyOf", ()):
            typed = self._typed(option, value)
            if not list(self._faults(self._resolved(option), typed)):
                return typed
        if isinstance(value, dict):
            parts: Mapping[str, Any] = schema.get("properties", {})
            return {name: self._typed(parts.get(name, {}), each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._typed(schema.get("items", {}), each) for each in value]
        if schema.get("type") == "integer" and re.fullmatch("-?[0-9]+", value):
            return int(value)
        if schema.get("type") == "boolean" and value in {"true", "false"}:
            return value == "true"
        return value

    def _answer_faults(self, operation: Any, exchange: Exchange) -> Iterator[str]:
        answers = operation["responses"]
        if str(exchange.status) not in answers and "default" not in answers:
            yield f"the status {exchange.status} is not in the document"
            return
        answer = self._resolved(answers.get(str(exchange.status), answers.get("default")))
        for content in answer.get("content", {}).values():
            yield from self._faults(content["schema"], _parsed(exchange.answer))

    def _faults(self, schema: Any, value: Any) -> Iterator[str]:
        validator = OAS30Validator({**schema, "components": self._document["components"]})
        for error in validator.iter_errors(value):
            yield f"{error.json_path}: {error.message}"

    def _resolved(self, part: Any) -> Any:
        while "$ref" in part:
            found = self._document
            for name in part["$ref"].removeprefix("#/").split("/"):
                found = found[name]
            part = found
        return part


def given_document(file: str) -> Any:
    """Return the document in this file of the folder FATURA_CONTRACTS, or None if no folder is given."""
    folder = os.environ.get(FOLDER)
    return json.loads((Path(folder) / file).read_text()) if folder else None


def _parsed(text: bytes) -> Any:
    return json.loads(text, parse_float=Decimal)
