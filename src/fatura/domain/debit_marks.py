"""Recognize the marks of debits in bank statements, even if the amount has no minus (D-257)."""

import unicodedata
from collections.abc import Collection, Sequence

_TYPES = frozenset({"payment", "check", "fee", "srvchg", "cash", "directdebit", "repeatpmt"})
"""Further types of OFX transactions that mark a debit. The types ATM and POS may be credits too."""
_COLUMNS = frozenset({"type", "tipo", "d/c", "c/d", "debito/credito", "credito/debito", "natureza"})
"""The names of columns of a CSV file that may mark a debit."""
_KINDS = frozenset({"c", "d", "cred", "deb", "credit", "debit", "credito", "debito", "entrada", "saida"})
"""Folded cells that say only whether a transaction is a credit or a debit."""
_CELLS = frozenset(
    unicodedata.normalize(form, cell)
    for cell in ("D", "DEBIT", "Debit", "DEBITO", "Debito", "DÉBITO", "Débito")
    for form in ("NFC", "NFD")
)
"""Cells that mark a debit in any column, as banks write them."""
_MAX_MARK = 60
"""Longer cells are texts. Folding them would only take time."""


def folded(text: str) -> str:
    """Return the text in lower case and without accents."""
    parts = unicodedata.normalize("NFKD", text.strip().casefold())
    return "".join(each for each in parts if not unicodedata.combining(each))


def is_debit_type(kind: str) -> bool:
    """Return whether the type of an OFX transaction marks a debit."""
    return _is_debit(kind) or (len(kind) <= _MAX_MARK and folded(kind) in _TYPES)


def places(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Collection[int]:
    """Return the indexes of the columns that may mark a debit: by their folded names, or by their cells.

    The cells of such a column say only whether a transaction is a credit or a debit. If a column has a name that says
    so and also such cells, only its name counts, because all messages of the payers could be `D`.
    """
    named = {place for place, name in enumerate(names) if name in _COLUMNS}
    by_cells = {place for place in range(len(names)) if _has_only_kinds([row[place] for row in rows])}
    return named if named & by_cells else named | by_cells


def is_debit_row(row: Sequence[str], kinds: Collection[int]) -> bool:
    """Return whether one of these columns marks a debit. If there are no such columns, any cell may."""
    if not kinds:
        return not _CELLS.isdisjoint(map(str.strip, row))
    return any(_is_debit(row[place]) for place in kinds)


def _is_debit(mark: str) -> bool:
    if len(mark) > _MAX_MARK:
        return False
    plain = folded(mark).strip("- ")
    return plain.startswith("deb") or plain in {"d", "saida"} or "enviad" in plain


def _has_only_kinds(cells: Sequence[str]) -> bool:
    marks = {cell.strip() for cell in cells if cell.strip()}
    return bool(marks) and all(len(each) <= _MAX_MARK and folded(each) in _KINDS for each in marks)
