"""A new connection preloads every array type that a statement uses."""

import re
from itertools import chain

from fatura.store import pool
from tests.tidy.sources import repository

_ARRAY = re.compile(r"::(\w+)\[\]")
_SAME = {"int": "int4", "bigint": "int8", "integer": "int4", "smallint": "int2", "boolean": "bool"}


def test_every_array_type_is_preloaded():
    sources = repository(".py", under="src/")
    used = chain.from_iterable(
        _ARRAY.findall(source.text) for source in sources if source.path != "src/fatura/store/pool.py"
    )
    preloaded = set(_ARRAY.findall(pool.ARRAY_TYPES))
    assert len(preloaded) > 5
    assert {_SAME.get(name, name) for name in used} == preloaded
