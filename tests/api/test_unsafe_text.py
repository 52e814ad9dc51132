"""Control and invisible characters are refused in every text of a request."""

from collections.abc import Iterator
from copy import deepcopy
from urllib.parse import quote

import pytest

from fatura.domain.text import NOT_BLANK_PATTERN, SAFE_PATTERN
from tests.support.account_resources import own_everything, valid_bodies
from tests.support.expect import everything, invalid
from tests.support.world import Json, World

PATTERNS = {SAFE_PATTERN, NOT_BLANK_PATTERN}
UNSAFE = ("a\nbcdefghijk", "a\u202ebcdefghijk", "a\u200bbcdefghijk")
"""Texts with an unsafe character. Each is long enough for a tax document, which has at least 11 characters."""


def _text_paths(document: Json, schema: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each text field in the schema of a body. A field with alternatives can be yielded twice."""
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if schema.get("pattern") in PATTERNS:
        yield path
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _text_paths(document, each, path)
    for name, each in schema.get("properties", {}).items():
        yield from _text_paths(document, each, (*path, name))


def _put(body: Json, path: tuple[str, ...], value: str) -> Json:
    changed = deepcopy(body)
    inner = changed
    for name in path[:-1]:
        inner = inner.setdefault(name, {})
    inner[path[-1]] = value
    return changed


@pytest.mark.parametrize("unsafe", UNSAFE)
async def test_no_text_field_of_a_body_takes_unsafe_text(world: World, unsafe: str) -> None:
    """[D-218, D-11]"""
    own = await own_everything(world, world)
    bodies, document = valid_bodies(own), (await world.get("/docs-json")).json
    before, tried = await everything(world), list[str]()
    for route, body in bodies.items():
        method, path = route.split(" ")
        operation = document["paths"][path][method]
        schema = operation["requestBody"]["content"].get("application/json", {}).get("schema", {})
        filled = path
        for name, ids in own.ids.items():
            filled = filled.replace(f"{{{name}}}", ids[0])
        for field in dict.fromkeys(_text_paths(document, schema)):
            answer = await world.call(method.upper(), filled, _put(body, field, unsafe))
            refused = invalid(answer)
            assert "control or invisible characters" in refused[".".join(field)], (route, field)
            tried.append(field[-1])
    assert {"name", "description", "externalRef", "label", "reference", "note", "reason", "document"} <= set(
        tried
    )
    assert await everything(world) == before


async def test_no_filter_takes_unsafe_text(world: World) -> None:
    """[D-218, D-109]"""
    for path in ("/v1/products?externalRef=", "/v1/customers?name=", "/v1/invoices?customerExternalRef="):
        refused = invalid(await world.get(path + quote("a\x1bb")))
        assert "control or invisible characters" in next(iter(refused.values()))
