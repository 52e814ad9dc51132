"""Bill with django-silver's own command `manage.py generate_docs`. Run this in the environment bench/peers/silver.

    bench/peers/silver/bin/python bench/peer_silver.py DATABASE COUNT

PGHOST, PGPORT and PGUSER name the server. The program creates COUNT monthly subscriptions of one provider and prints
`ready`. For each line on stdin, it bills one more month, and prints the seconds and the number of invoices as JSON.
"""

import json
import sys
import time
from datetime import date
from decimal import Decimal
from importlib import import_module
from typing import Any

STARTED = date(2026, 1, 1)


def main() -> None:
    database, count = sys.argv[1], int(sys.argv[2])
    _configure(database)
    command: Any = import_module("django.core.management").call_command
    command("migrate", verbosity=0)
    models: Any = import_module("silver.models")
    _fill(models, count)
    print("ready", flush=True)
    for month, _ in enumerate(sys.stdin, STARTED.month + 1):
        before, began = models.Invoice.objects.count(), time.perf_counter()
        command("generate_docs", billing_date=STARTED.replace(month=month), stdout=sys.stderr)
        seconds = time.perf_counter() - began
        result = {"seconds": seconds, "invoices": models.Invoice.objects.count() - before}
        print(json.dumps(result), flush=True)


def _configure(database: str) -> None:
    settings: Any = import_module("django.conf").settings
    settings.configure(
        SECRET_KEY="-",  # noqa: S106 - a temporary installation
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": database}},
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "dal",
            "django_fsm",
            "rest_framework",
            "django_filters",
            "silver",
        ],
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
        USE_TZ=True,
        PAYMENT_PROCESSORS={},
        SILVER_AUTOMATICALLY_CREATE_TRANSACTIONS=False,
        SILVER_CURRENCY_CONVERTER="silver.currencies.DummyConverter",
    )
    import_module("django").setup()


def _fill(models: Any, count: int) -> None:
    """Create monthly subscriptions to one plan, billed at the start of the month, each with its own customer."""
    address = {"address_1": "Rua 1", "country": "BR", "city": "Sao Paulo"}
    provider = models.Provider.objects.create(
        name="bench", flow="invoice", invoice_series="B", invoice_starting_number=1, **address
    )
    plan = models.Plan.objects.create(
        name="Plan", interval="month", interval_count=1, amount=Decimal("19.90"), currency="BRL", prebill_plan=True,
        product_code=models.ProductCode.objects.create(value="plan"), provider=provider,
    )  # fmt: skip
    for number in range(count):
        customer = models.Customer.objects.create(
            first_name="Customer", last_name=str(number), consolidated_billing=False, **address
        )
        subscription = models.Subscription.objects.create(plan=plan, customer=customer, start_date=STARTED)
        subscription.activate()
        subscription.save()


if __name__ == "__main__":
    main()
