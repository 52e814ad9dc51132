"""Bill with the wizards of Tryton's `sale_subscription`. Run this in the environment bench/peers/tryton.

    bench/peers/tryton/bin/python bench/peer_tryton.py DATABASE COUNT

PGHOST, PGPORT and PGUSER name the server. The program creates COUNT monthly subscriptions of one company and prints
`ready`. For each line on stdin, it creates one more month's consumptions and invoices, and prints the seconds and the
number of invoices as JSON.
"""

import json
import os
import subprocess
import sys
import time
from datetime import date
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

STARTED = date(2026, 1, 1)


def main() -> None:
    database, count = sys.argv[1], int(sys.argv[2])
    _activate(database)
    os.environ["TRYTOND_DATABASE_URI"] = "postgresql://"
    import_module("proteus.config").set_trytond(f"postgresql:///{database}")
    _fill(count)
    print("ready", flush=True)
    invoice: Any = _model("account.invoice")
    for month, _ in enumerate(sys.stdin, STARTED.month + 1):
        before, began = len(invoice.find([])), time.perf_counter()
        _execute("sale.subscription.line.consumption.create", STARTED.replace(month=month))
        _execute("sale.subscription.create_invoice", STARTED.replace(month=month))
        seconds = time.perf_counter() - began
        print(json.dumps({"seconds": seconds, "invoices": len(invoice.find([])) - before}), flush=True)


def _activate(database: str) -> None:
    """Create the tables with Tryton's own command."""
    command = [str(Path(sys.executable).parent / "trytond-admin"), "-d", database, "--email", ""]
    with NamedTemporaryFile("w") as password:
        print("bench-peers", file=password, flush=True)
        subprocess.run(
            [*command, "-u", "sale_subscription", "--activate-dependencies"],
            env={**os.environ, "TRYTONPASSFILE": password.name, "TRYTOND_DATABASE_URI": "postgresql://"},
            stdout=sys.stderr,
            check=True,
        )


def _model(name: str) -> Any:
    return import_module("proteus").Model.get(name)


def _execute(wizard: str, on: date) -> None:
    opened: Any = import_module("proteus").Wizard(wizard)
    opened.form.date = on
    opened.execute("create_")


def _fill(count: int) -> None:
    company: Any = import_module("trytond.modules.company.tests.tools")
    account: Any = import_module("trytond.modules.account.tests.tools")
    company.create_company()
    account.create_chart(company.get_company())
    service = _monthly_plan(account.get_accounts(company.get_company())["revenue"])
    for number in range(count):
        customer = _model("party.party")(name=f"Customer {number}")
        customer.save()
        subscription = _model("sale.subscription")(party=customer, start_date=STARTED)
        subscription.invoice_start_date = STARTED.replace(month=STARTED.month + 1)
        subscription.invoice_recurrence = service.consumption_recurrence
        line = subscription.lines.new()
        line.service, line.quantity = service, 1
        subscription.click("quote")
        subscription.click("run")


def _monthly_plan(revenue: Any) -> Any:
    monthly = _model("sale.subscription.recurrence.rule.set")(name="Monthly")
    (rule,) = monthly.rules
    rule.freq, rule.interval = "monthly", 1
    monthly.save()
    category = _model("product.category")(name="Services", accounting=True)
    category.account_revenue = revenue
    category.save()
    template = _model("product.template")(name="Plan", type="service", list_price=Decimal("19.90"))
    (template.default_uom,) = _model("product.uom").find([("name", "=", "Unit")])
    template.account_category = category
    template.save()
    service = _model("sale.subscription.service")()
    (service.product,) = template.products
    service.consumption_recurrence = monthly
    service.save()
    return service


if __name__ == "__main__":
    main()
