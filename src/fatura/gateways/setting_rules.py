"""Rules for settings that several providers have. A rule accepts a valid value, and has the message for others."""

from collections.abc import Callable, Iterable
from itertools import permutations
from typing import Any

from fatura.domain.offer import MAX_INSTALLMENTS, PaymentMethod

Rule = tuple[Callable[[Any], bool], str]

ALL_METHODS = tuple(str(method) for method in PaymentMethod)
_LISTS_OF_METHODS = [list(order) for count in (1, 2, 3) for order in permutations(ALL_METHODS, count)]
METHODS: Rule = (
    lambda value: value in _LISTS_OF_METHODS,
    f"must be a list of one or more of {', '.join(ALL_METHODS)}, each once",
)
INSTALLMENTS: Rule = (
    lambda value: type(value) is int and 1 <= value <= MAX_INSTALLMENTS,
    f"must be an integer from 1 to {MAX_INSTALLMENTS}",
)


def one_of(names: Iterable[str]) -> Rule:
    known = tuple(names)
    return lambda value: isinstance(value, str) and value in known, f"must be one of {', '.join(known)}"
