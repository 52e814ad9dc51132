"""Each OpenAPI link in `/docs-json` passes a value of the type that the target's parameter requires."""

import re
from collections.abc import Iterator

import pytest

from fatura.api.openapi.links import LEADS
from fatura.reference import openapi_document
from tests.support.contract import Contract
from tests.support.world import Json

CONTRACT = Contract(openapi_document())
OPERATIONS = {operation["operationId"]: (path, operation) for _, path, operation in CONTRACT.operations()}
EXPRESSION = re.compile(r"\$response\.body#(/.+)")


def links() -> Iterator[tuple[str, Json, Json]]:
    """For every link in a response, yield the operation's id, the link, and the response's schema."""
    for source, (_, operation) in OPERATIONS.items():
        for status, response in operation["responses"].items():
            for link in response.get("links", {}).values():
                assert status[0] == "2"
                yield source, link, response["content"]["application/json"]["schema"]


def schema_at(schema: Json, steps: list[str]) -> Json:
    """Return the schema of the value to which a JSON pointer leads. `steps` are the parts of the pointer."""
    for step in steps:
        schema = CONTRACT.resolve(schema)
        schema = CONTRACT.resolve(schema["oneOf"][0]) if "oneOf" in schema else schema
        schema = schema["items"] if step == "0" else schema["properties"][step]
    schema = CONTRACT.resolve(schema)
    alternatives = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    assert len(alternatives) == 1, schema
    return CONTRACT.resolve(alternatives[0])


def link_parameters(target: str, link: Json) -> Iterator[tuple[str, Json]]:
    """For each parameter that a link fills, yield the link's expression and the parameter's schema.

    `target` is the operation to which the link leads.
    """
    _, operation = OPERATIONS[target]
    parameters = {each["name"]: each for each in map(CONTRACT.resolve, operation.get("parameters", []))}
    for name, expression in link.get("parameters", {}).items():
        yield expression, schema_at(parameters[name]["schema"], [])


@pytest.mark.parametrize(
    ("source", "link", "answer"),
    list(links()),
    ids=lambda each: each.get("operationId", "") if isinstance(each, dict) else each,
)
def test_a_link_s_value_has_the_type_of_its_parameter(source, link, answer):
    """[spec 4.6 GET /docs-json links]"""
    for expression, wanted in link_parameters(link["operationId"], link):
        found = EXPRESSION.fullmatch(expression)
        assert found, expression
        held = schema_at(answer, found[1][1:].split("/"))
        assert (held["type"], held.get("format")) == (wanted["type"], wanted.get("format"))


def test_every_id_of_a_path_comes_from_a_link():
    """[spec 4.6 GET /docs-json links]"""
    led_to = {link["operationId"]: link for _, link, _ in links()}
    for name, (path, _) in OPERATIONS.items():
        ids = set(re.findall(r"\{(\w+)\}", path))
        if ids:
            assert ids <= led_to[name]["parameters"].keys(), name


def test_the_document_has_every_link_of_the_table():
    """[spec 4.6 GET /docs-json links]"""
    named = {(source, target) for lead in LEADS for source in lead.answers for target in lead.lead_to}
    assert named == {(source, link["operationId"]) for source, link, _ in links()}
