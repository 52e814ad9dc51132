"""Messages about invalid fields: the path of each validation error, and what is expected there (D-11)."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fatura.api.http.body import WHOLE_BODY, member
from fatura.domain.errors import MAX_LISTED

_EXPECTED = {
    "missing": "is required",
    "extra_forbidden": "is not a field of this request",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be an array",
    "tuple_type": "must be an array",
    "string_type": "must be text",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
    "none_required": "must be null",
    "enum": "must be one of {expected}",
    "literal_error": "must be {expected}",
    "too_short": "must have at least {min_length} elements",
    "too_long": "must have at most {max_length} elements",
}
_NOT_AN_OBJECT = "must be a JSON object"


def listed(error: ValidationError, value: Any) -> list[tuple[str, str]]:
    """Return `(path, message)` of at most MAX_LISTED errors that the validation of `value` found."""
    all_details = error.errors(include_url=False, include_input=False)
    return list(islice((place for details in all_details for place in _places(details, value)), MAX_LISTED))


def _places(details: ErrorDetails, value: Any) -> Iterator[tuple[str, str]]:
    path = _path(details["loc"], value)
    context: Mapping[str, Any] = details.get("ctx", {})
    match details["type"]:
        case "refused":
            yield path, context["message"]
        case "refused_inside":
            for inner, message in context["places"]:
                yield _joined(path, inner), message
        case "union_tag_not_found":
            yield member(path, _unquoted(context["discriminator"])), "is required"
        case "union_tag_invalid":
            expected = _alternatives(context["expected_tags"].split(", "))
            yield member(path, _unquoted(context["discriminator"])), f"must be {expected}"
        case "model_type" if path == WHOLE_BODY:
            yield path, _NOT_AN_OBJECT
        case kind:
            words = _EXPECTED.get(kind, "is not valid")
            yield path, words.format(**{name: _unquoted(str(each)) for name, each in context.items()})


def _joined(path: str, inner: str) -> str:
    return f"{path}.{inner}" if path and inner and not inner.startswith("[") else path + inner


def _unquoted(text: str) -> str:
    return text.replace("'", "")


def _alternatives(tags: Sequence[str]) -> str:
    *others, last = map(_unquoted, tags)
    return f"{', '.join(others)} or {last}" if others else last


def _path(location: tuple[str | int, ...], value: Any) -> str:
    """Convert the location that pydantic gives for an error into a path in the request.

    For a field with a union type, the location also contains the name of the type that pydantic tried. The path omits
    this name. The location is a sequence of keys and indexes. A key counts as a type's name if two things are true: the
    key is not the last one, and `value` contains no object or array under this key.
    """
    path = WHOLE_BODY
    for place, step in enumerate(location, 1):
        inside = _inside(value, step)
        if place < len(location) and not isinstance(inside, (dict, list)):
            continue
        path = member(path, step)
        value = cast("Any", inside)
    return path


def _inside(value: Any, step: str | int) -> Any:
    if isinstance(value, dict):
        return cast("dict[str | int, Any]", value).get(step)
    if isinstance(value, list) and isinstance(step, int):
        elements = cast("list[Any]", value)
        return elements[step] if step < len(elements) else None
    return None
