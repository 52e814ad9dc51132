"""Run the tests of the adapters of payment providers (`make contracts`).

If the folder with the providers' documents is given, write docs/reference/gateways.md from the results.
"""

import os
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from fatura.gateways.port import Capabilities, Gateway

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/gateways.md"
ADAPTERS = ROOT / "src/fatura/gateways/adapters"
SUITES = ("gateway_contract.py", "refund_contract.py")
SHOP = "1,000 charges match the provider's ledger to the cent, after lost answers and dying workers"
DOCUMENT = "requests and answers match the provider's own document"

_HEAD = """\
# Payment providers

<!-- Generated from a test run; `make contracts` writes it again. -->

Read this when you choose a payment provider, or change an adapter. The field `capabilities` of a connection in
`GET /v1/integration` shows what your own connection offers.

## What each provider offers

The table shows a connection whose settings enable as much as possible.

- *After a lost answer*: `key` and `natural_id` mean that the engine repeats the request, because the provider makes one
  charge from both. `lookup` means that the engine first looks the charge up
  ([D-33](../decisions.md#d-33-one-charge-per-invoice)).
- *Refunds*: `key` and `lookup` mean the same for refunds. `none` means that the connection makes no refunds.
- *Lists charges*: the nightly comparison and a restore from a backup need this list.

"""
_PROOF = """
## What the tests show

Each test runs the adapter against a simulated provider, over HTTP if the provider has an API. The simulated providers
are our own code, so they prove nothing about facts that a provider does not document. The pages about connecting a
provider, in [docs/how-to](../how-to), say what was never tried at the provider itself.

A number is the number of passed tests. An empty cell means that no such test ran for this provider.

"""


class Results:
    """A plugin of pytest. It reads the capabilities of each adapter, and counts its passed tests."""

    def __init__(self) -> None:
        names = [each.name for each in ADAPTERS.iterdir() if (each / "__init__.py").exists()]
        self.names = sorted(names, key=len, reverse=True)
        self.offers: dict[str, Capabilities] = {}
        self.passed = defaultdict[tuple[str, str], int](int)
        self.failed = set[tuple[str, str]]()

    def pytest_runtest_call(self, item: pytest.Function) -> None:
        name = self._name(item.path)
        if name is not None and "gateway" in item.funcargs and name not in self.offers:
            self.offers[name] = cast(Gateway, item.funcargs["gateway"]).capabilities()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file, _, test = report.nodeid.partition("::")
        name = self._name(Path(file))
        if name is None:
            return
        cell = _row(file, re.sub(r"\[.*", "", test).rpartition("::")[2] or test), name
        if report.failed:
            self.failed.add(cell)
        self.passed[cell] += report.when == "call" and report.passed

    def _name(self, file: Path) -> str | None:
        """Return the adapter that a file's tests are about, or None."""
        stem = file.stem.removeprefix("test_")
        return next((each for each in self.names if stem == each or stem.startswith(f"{each}_")), None)

    def page(self) -> str:
        columns = sorted(self.offers)
        offered = [_shown(self.offers[each]) for each in columns]
        capabilities = {row: [each[row] for each in offered] for row in offered[0]}
        proof = {row: [self._cell(row, each) for each in columns] for row in (*suite_rows(), SHOP, DOCUMENT)}
        return _HEAD + _table(columns, capabilities) + _PROOF + _table(columns, proof)

    def _cell(self, row: str, name: str) -> str:
        return "**fails**" if (row, name) in self.failed else str(self.passed[row, name] or "")


def _row(file: str, test: str) -> str:
    if Path(file).stem.endswith(("_document", "_documents")):
        return DOCUMENT
    if test.startswith("test_lost_answers_leave_one_charge"):
        return SHOP
    return test.removeprefix("test_").replace("_", " ")


def suite_rows() -> Sequence[str]:
    """Return the names of the tests in the contract suites, which each adapter inherits."""
    texts = [(ROOT / "tests/contract" / file).read_text("utf-8") for file in SUITES]
    return [
        name.replace("_", " ") for text in texts for name in re.findall(r"    async def test_(\w+)", text)
    ]


def _shown(offers: Capabilities) -> Mapping[str, str]:
    ttl = offers.idempotency_ttl
    return {
        "creates charges": _yes(offers.issues_charges),
        "payment methods": ", ".join(offers.methods),
        "installments of a card, at most": str(offers.max_installments) if "card" in offers.methods else "",
        "after a lost answer": offers.idempotency
        + (f", within {ttl.total_seconds() / 3600:g} hours" if ttl else ""),
        "refunds": offers.refunds,
        "lists charges": _yes(offers.lists_charges),
        "product catalog": _yes(offers.product_catalog),
        "lowest amount, in cents": str(offers.min_amount_cents or ""),
        "lowest installment, in cents": str(offers.min_installment_cents or ""),
        "polls a minute, at most": str(offers.polls_per_minute or ""),
    }


def _yes(value: bool) -> str:  # noqa: FBT001 - the cell of a table
    return "yes" if value else "no"


def _table(columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    lines = [f"| | {' | '.join(f'`{each}`' for each in columns)} |", "|---|" + "---|" * len(columns)]
    lines += [f"| {row} | {' | '.join(cells)} |" for row, cells in rows.items()]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> Any:
    results = Results()
    shops = [str(each) for each in (ROOT / "tests/scenarios/charging").glob("test_*_shop.py")]
    tests = [str(ROOT / "tests/contract"), *shops, "-q", "-m", "faults or not faults", *arguments]
    code = pytest.main(tests, plugins=[results])
    if os.environ.get("FATURA_CONTRACTS"):
        PAGE.write_text(results.page(), "utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
    else:
        print("no documents of providers were checked: name their folder with CONTRACTS=<folder>")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
