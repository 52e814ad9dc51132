"""Forms as Stripe reads them: the field `a[b][0]` is an entry of a list in an object."""

import re
from collections.abc import Iterable
from typing import Any


def nested(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the object that the fields of a form or of a query describe. Every value is a text."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        first, *rest = re.findall(r"[^\[\]]+", name)
        place = found
        for each in rest:
            place = place.setdefault(first, {})
            first = each
        place[first] = value
    return {name: _lists(value) for name, value in found.items()}


def _lists(value: Any) -> Any:
    """Turn objects whose names are numbers into lists."""
    if not isinstance(value, dict):
        return value
    parts = {name: _lists(each) for name, each in value.items()}
    return list(parts.values()) if parts and all(name.isdigit() for name in parts) else parts
