"""D-249 states for every table what limits its size."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MIGRATIONS = ROOT / "src/fatura/store/migrations"


def test_each_table_says_what_bounds_it() -> None:
    """[D-249]"""
    text = (ROOT / "docs/decisions.md").read_text()
    section = text.partition("### D-249 ")[2].partition("\n### ")[0]
    listed = [name for row in re.findall(r"^\| (`.+?) \|", section, re.MULTILINE) for name in row.split(", ")]
    created = [
        name
        for file in sorted(MIGRATIONS.glob("*.sql"))
        for name in re.findall(r"^CREATE TABLE (\w+)", file.read_text(), re.MULTILINE)
    ]
    assert len(created) > 30
    assert sorted(name.strip("`") for name in listed) == sorted(created)
