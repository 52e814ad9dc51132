"""The documentation of a route in the OpenAPI document, except its inputs."""

from collections.abc import Mapping
from dataclasses import dataclass

from fatura.domain.errors import Problem
from fatura.views.view import View


@dataclass(frozen=True, slots=True)
class Documentation:
    """`answers` holds the view of each status, None for an answer without a body."""

    tag: str
    summary: str
    answers: Mapping[int, type[View] | None]
    problems: frozenset[Problem] = frozenset()
