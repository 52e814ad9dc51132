"""The fields of an event, to compare a real event with its sample in docs/reference/events.md."""

from typing import Any

from fatura.views.samples.events import sample_json
from tests.support.world import Json


def fields(value: Json) -> Any:
    """Return the field names of a value at every depth, except `processed`."""
    if isinstance(value, dict):
        return {name: fields(inner) for name, inner in value.items() if name != "processed"}
    if isinstance(value, list):
        return [fields(value[0])] if value else []
    return None


def fields_of_sample(type_: str) -> Any:
    return fields(sample_json(type_))
