"""Check requests and responses against the OpenAPI document of `/docs-json`."""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

Json = Any
BASE = "urn:contract"
HEADERS = ("x-request-id", "retry-after", "idempotent-replayed")
"""If a response has one of these headers, the document must list the header. Other headers need not be listed."""


def closed(document: Json) -> Json:
    """Return a copy of the document that forbids undocumented fields.

    The original allows such fields, because clients must accept fields of later versions.
    """
    document = copy.deepcopy(document)
    for schema in document["components"]["schemas"].values():
        if schema.get("type") == "object":
            schema.setdefault("additionalProperties", False)
    return document


class Contract:
    """Checks responses against an OpenAPI document, and remembers their operations and statuses."""

    def __init__(self, document: Json) -> None:
        self.document = closed(document)
        self.seen: set[tuple[str, str, str]] = set()
        contents = Resource(contents=self.document, specification=DRAFT202012)
        self._registry: Registry[Any] = Registry().with_resource(BASE, contents)
        self._paths = {path: re.compile(re.sub(r"\{\w+\}", "[^/]+", path)) for path in document["paths"]}

    def operations(self) -> Iterator[tuple[str, str, Json]]:
        for path, operations in self.document["paths"].items():
            for method, operation in operations.items():
                yield method.upper(), path, operation

    def resolve(self, node: Json) -> Json:
        """Return a schema node with its `$ref` replaced by the target."""
        while "$ref" in node:
            target = self.document
            for step in node["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            node = {**target, **{name: value for name, value in node.items() if name != "$ref"}}
        return node

    def faults(self, value: Json, *pointer: str) -> list[str]:
        """Validate a value with the schema that is at a JSON pointer of the document. Return the errors."""
        steps = "/".join(quote(step.replace("~", "~0").replace("/", "~1")) for step in pointer)
        validator = Draft202012Validator(
            {"$ref": f"{BASE}#/{steps}"}, registry=self._registry, format_checker=FormatChecker()
        )
        return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]

    async def judge(self, response: httpx.Response) -> None:
        """Check a response against its schema. If the response is a success, check the request too.

        httpx calls this method for each response.
        """
        method, path = response.request.method.lower(), self._template(response.request.url.path)
        body, status = await response.aread(), str(response.status_code)
        operation = self.document["paths"][path][method]
        answer = operation["responses"][status]
        self.seen.add((method.upper(), path, status))
        documented = {name.lower() for name in answer["headers"]}
        assert {name for name in HEADERS if name in response.headers} <= documented
        if status == "204":
            assert (body, "content" in answer) == (b"", False)
            return
        media_type = response.headers["content-type"]
        at = ("paths", path, method, "responses", status, "content", media_type, "schema")
        assert self.faults(json.loads(body), *at) == [], body
        if response.is_success and response.request.content:
            at = ("paths", path, method, "requestBody", "content", "application/json", "schema")
            assert self.faults(json.loads(response.request.content), *at) == []

    def _template(self, path: str) -> str:
        if path in self._paths:
            return path
        return next(template for template, pattern in self._paths.items() if pattern.fullmatch(path))
