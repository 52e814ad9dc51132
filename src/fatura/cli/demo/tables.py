"""The demo's results as tables: invoices by month, metered items, webhooks."""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from typing import Any

from rich.table import Table

from fatura.cli.client import Client
from fatura.cli.demo.catalog import METERED_PRODUCTS
from fatura.cli.output import add_row

PAGE = 100
PRICE_CALL_DATES = (
    "A price call comes three days before the period of its invoice begins, so it bills what was used before."
)
STATUSES = ("paid", "overdue", "issued", "awaiting_value")


async def months_table(client: Client) -> Table:
    months: dict[str, Counter[str]] = defaultdict(Counter)
    total = Counter[str]()
    held = {event["data"]["invoice"]["id"] async for event in events(client, "&type=invoice.held")}
    async for invoice in invoices(client):
        for month in (months[invoice["dueDate"][:7]], total):
            month["invoices"] += 1
            month["cents"] += invoice["totalCents"] or 0  # the total is null while an item has no value
            month[invoice["status"]] += 1
            month["were held"] += invoice["id"] in held
    heads = ("month", "invoices", "invoiced", "paid", "overdue", "not due\nyet", "held\nnow", "were\nheld")
    table = _table("Invoices by due month", heads, ("total", *_cells(total)))
    for name, month in sorted(months.items()):
        add_row(table, name, *_cells(month))
    return table


def _cells(month: Counter[str]) -> tuple[str, ...]:
    counts = (str(month[each]) for each in (*STATUSES, "were held"))
    return str(month["invoices"]), money(month["cents"]), *counts


async def metered_table(client: Client, merchant: dict[str, Any]) -> Table:
    """Return the table of variable items. `merchant` is what the example merchant answers to GET /summary."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    async for event in events(client):
        if event["type"] not in {"invoice.held", "invoice.ready"}:
            continue
        for item in event["data"]["invoice"]["items"]:
            metered = found[item["productExternalRef"] or ""]
            is_skipped = item["pricingStatus"] == "skipped"
            if event["type"] == "invoice.held":
                metered["held"] += item["pricingStatus"] == "pending"
            else:
                metered["skipped" if is_skipped else item["pricingSource"]] += 1
                metered["cents"] += item["amountCents"] or 0
    heads = ("item", "calls", "failed", "priced", "skipped", "by\nhand", "billed", "were\nheld")
    table = _table("Variable items", heads)
    for product in METERED_PRODUCTS:
        metered = found[product.external_ref]
        numbers = (
            merchant["priceCalls"].get(product.external_ref, 0),
            merchant["priceFailures"].get(product.external_ref, 0),
            *(metered[how] for how in ("endpoint", "skipped", "manual")),
        )
        add_row(table, product.name, *numbers, money(metered["cents"]), metered["held"])
    says = ", ".join(f"{product.name.lower()} {product.says}" for product in METERED_PRODUCTS)
    table.caption = f"{says}. {PRICE_CALL_DATES}"
    return table


def dates_line(subscription: dict[str, Any]) -> str:
    """Return a line that explains the first dates of a monthly subscription with a charge day."""
    name, day, due = subscription["customer"]["name"], subscription["chargeDay"], subscription["nextDueDate"]
    return (
        f"[bold]dates[/]    {name} subscribed with chargeDay {day}: the first invoice is due on {due}, was generated "
        f"three days earlier, and covers the month that begins on {due}"
    )


def webhooks_line(merchant: dict[str, Any], *, emitted: int) -> str:
    """Return a line with the counts of emitted and received events, and of verified, refused and duplicate requests."""
    return (
        f"[bold]webhooks[/] {emitted} events were emitted, {sum(merchant['events'].values())} received; "
        f"{merchant['verified']} requests were verified, {merchant['refused']} refused, "
        f"{merchant['duplicates']} duplicates"
    )


def money(cents: int) -> str:
    """Return an amount in the Brazilian format, such as R$ 1.234,50."""
    reais, rest = divmod(cents, 100)
    return f"R$ {reais:,}".replace(",", ".") + f",{rest:02}"


def _table(title: str, heads: tuple[str, ...], feet: tuple[str, ...] = ()) -> Table:
    table = Table(title=title, show_footer=bool(feet))
    for place, head in enumerate(heads):
        justify = "left" if place == 0 else "right"
        table.add_column(head, footer=feet[place] if feet else "", justify=justify)
    return table


async def invoices(client: Client, query: str = "") -> AsyncIterator[dict[str, Any]]:
    """Yield all invoices, or those that match `query`, such as `&status=overdue`. Fetch them page by page."""
    page, pages = 1, 1
    while page <= pages:
        answer = await client.get(f"/v1/invoices?page={page}&pageSize={PAGE}{query}")
        for invoice in answer["data"]:
            yield invoice
        page, pages = page + 1, answer["pagination"]["totalPages"]


async def events(client: Client, query: str = "") -> AsyncIterator[dict[str, Any]]:
    """Yield all events, or those that match `query`, such as `&type=invoice.held`. Do not wait for new events."""
    cursor = "0"
    while answer := await client.get(f"/v1/events?cursor={cursor}&limit=200{query}"):
        for event in answer["data"]:
            yield event
        if not answer["data"]:
            return
        cursor = answer["nextCursor"]
