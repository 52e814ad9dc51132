"""A new connection is told of every array that a statement takes."""

import re
from itertools import chain

from fatura.store import array_types
from tests.tidy.sources import repository

_ARRAY = re.compile(r"::(\w+)\[\]")
_SAME = {"int": "int4", "bigint": "int8", "integer": "int4", "smallint": "int2", "boolean": "bool"}


def test_every_array_is_told_of():
    """By the name that PostgreSQL has for it."""
    sources = repository(".py", under="src/")
    taken = chain.from_iterable(
        _ARRAY.findall(source.text) for source in sources if "array_types" not in source.path
    )
    told = set(_ARRAY.findall(array_types.ALL))
    assert len(told) > 5
    assert {_SAME.get(name, name) for name in taken} == told
