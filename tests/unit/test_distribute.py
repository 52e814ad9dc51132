"""The order in which tables are distributed over Citus nodes."""

import pytest

from fatura.store.migrations.distribute import ForeignKey, order


def keys(text: str) -> list[ForeignKey]:
    """Parse foreign keys that are written as `child>parent` and separated by spaces."""
    pairs = [pair.split(">") for pair in text.split()]
    return [ForeignKey(child, parent, f"{child}_{parent}", "") for child, parent in pairs]


@pytest.mark.parametrize(
    ("tables", "references", "ordered", "closing"),
    [
        ("b a", "", "a b", ""),
        ("a b c", "a>b b>c", "c b a", ""),
        ("a b", "a>a a>b", "b a", ""),
        ("a", "a>gone", "a", ""),
        ("plan version subscription", "version>plan version>subscription subscription>version",
            "plan version subscription", "version_subscription"),
        ("a b c child", "child>a a>b b>c c>a", "a c child b", "a_b"),
    ],
)  # fmt: skip
def test_parents_come_before_children(tables, references, ordered, closing):
    """A foreign key that completes a cycle of references is added after all tables are distributed. [D-47]"""
    found, late = order(tables.split(), keys(references))
    assert (found, [key.name for key in late]) == (ordered.split(), closing.split())
