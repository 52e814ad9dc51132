"""The named schemas of answers and events, made from the views."""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, cast

import msgspec

from fatura.domain.events import CATALOGUE
from fatura.views.events import DATA
from fatura.views.view import View

Schema = dict[str, Any]
_PLACE = "#/components/schemas/"
_CITATION = re.compile(r" \((spec|D-|RFC)[^)]*\)")


def name_of(view: type[View]) -> str:
    return view.__name__.removesuffix("View")


def reference(name: str) -> Schema:
    return {"$ref": _PLACE + name}


def event_name(type_: str) -> str:
    """Return the schema name of an event type: `invoice.paid` is InvoicePaidEvent."""
    return "".join(word.title() for word in re.split(r"[._]", type_)) + "Event"


def view_schemas(views: Iterable[type[View]]) -> Schema:
    """Return, by name, the schemas of the views, of all types inside them, and of the events."""
    _, found = msgspec.json.schema_components([*views, *DATA.values()], ref_template=_PLACE + "{name}")
    schemas: Schema = {name.removesuffix("View"): schema for name, schema in found.items()}
    for enum in StrEnum.__subclasses__():
        if enum.__name__ in schemas:  # msgspec sorts the values of an enum; restore the declared order
            schemas[enum.__name__]["enum"] = [str(each) for each in enum]
    return schemas | _event_schemas(schemas["Event"])


def _event_schemas(event: Schema) -> Schema:
    """Return one schema for each event type, and the schema `Event`, which allows any of them."""
    names = {type_: event_name(type_) for type_ in CATALOGUE}
    types = {
        names[type_]: {
            **event,
            "description": f"`{type_}`: {meaning}.",
            "properties": {
                **event["properties"],
                "type": {"type": "string", "const": type_},
                "data": reference(name_of(DATA[type_])),
            },
        }
        for type_, meaning in CATALOGUE.items()
    }
    choice = {
        "description": event["description"],
        "oneOf": [reference(name) for name in names.values()],
        "discriminator": {
            "propertyName": "type",
            "mapping": {type_: _PLACE + name for type_, name in names.items()},
        },
    }
    return {**types, "Event": choice}


def tidy(node: Any) -> Any:
    """Return a part of the document without generated titles and citations. References lose the suffix `View`.

    Floats without a fraction become integers, and an enum without a type gets the type `string`.
    """
    if isinstance(node, list):
        return [tidy(inner) for inner in cast("list[Any]", node)]
    if isinstance(node, float) and node.is_integer():
        return int(node)
    if not isinstance(node, Mapping):
        return node
    tidied = {
        name: _tidy_member(name, inner)
        for name, inner in cast("Schema", node).items()
        if not (name == "title" and isinstance(inner, str))
    }
    if isinstance(tidied.get("enum"), list) and "type" not in tidied:
        tidied["type"] = "string"  # msgspec writes no `type` for an enum of strings
    return tidied


def _tidy_member(name: str, inner: Any) -> Any:
    if name in {"example", "examples"}:
        return inner
    if name == "$ref":
        return inner.removesuffix("View")
    if name == "description" and isinstance(inner, str):
        return without_citations(inner)
    return tidy(inner)


def without_citations(text: str) -> str:
    return _CITATION.sub("", text)
