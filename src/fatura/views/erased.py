"""Remove the data of an erased customer from events and from stored answers (D-62).

Objects keep all members. Texts that a merchant, a gateway or a price endpoint wrote become `[erased]`, because any of
them may name the customer. Each `externalRef` of the customer and of subscriptions becomes `erased-`, followed by the
id of the customer or subscription. The e-mail and the pay data become null.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from fatura.domain.subscription import ERASED
from fatura.views.view import View

_CUSTOMER = frozenset({"id", "externalRef", "name", "email"})
_TEXTS = frozenset({"description", "detail", "note", "responseBody"})
"""Members whose texts become `[erased]` in every object."""
_PAY_DATA = frozenset({"url", "pixCode", "boletoLine", "expiresAt"})
OF_ERASED = '"email":null'
"""The JSON of an event contains this only if its customer is erased, because every other customer has an e-mail."""


def event_text(data: View) -> str:
    """Return the JSON of a new event's data. If the customer is erased, also erase the texts in the JSON."""
    text = data.json_text()
    return erased(text) if OF_ERASED in text else text


def erased(text: str | bytes) -> str:
    """Remove a customer's data from `text`, the JSON of an event's data or of an answer about this customer."""
    return msgspec.json.encode(_erased(msgspec.json.decode(text))).decode()


def _erased(value: Any) -> Any:
    if isinstance(value, list):
        return [_erased(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        members = cast("Mapping[str, Any]", value)
        return {name: _member(name, each, members) for name, each in members.items()}
    return value


def _member(name: str, value: Any, of: Mapping[str, Any]) -> Any:
    """Return the value, without personal data, of the member `name` of the object `of`."""
    if of.keys() >= _CUSTOMER and name in _CUSTOMER | {"hasDocument"}:
        return _of_customer(name, value, of)
    if value is None:
        return None
    if name in _TEXTS or _is_text_of_merchant(name, of):
        return ERASED
    if name == "externalRef" and "planId" in of:
        return f"erased-{of['id']}"
    if name == "subscriptionExternalRef":
        return f"erased-{of['subscriptionId']}"
    if name in _PAY_DATA and of.keys() >= _PAY_DATA:
        return None
    return _erased(value)


def _is_text_of_merchant(name: str, of: Mapping[str, Any]) -> bool:
    """Return whether a merchant wrote the text: the reference of a manual payment, or the reason of a refund."""
    return (name == "reference" and of.get("source") == "manual") or (name == "reason" and "paymentId" in of)


def _of_customer(name: str, value: Any, of: Mapping[str, Any]) -> Any:
    match name:
        case "externalRef":
            return f"erased-{of['id']}"
        case "name":
            return ERASED
        case "email":
            return None
        case "hasDocument":
            return False
        case _:
            return value
