"""The steps of the demo, made through the HTTP API: catalog, subscriptions, three months, results."""

import asyncio
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from fatura.cli import credentials
from fatura.cli.client import Client, connect
from fatura.cli.demo.catalog import enroll, make_catalog
from fatura.cli.demo.tables import dates_line, events, invoices, metered_table, months_table, webhooks_line
from fatura.observability import printable

MONTHS_DAYS = 92
STEP_DAYS = 4
SETTLE_DAYS = 3
"""Days to advance after values were entered by hand, so that the invoices with these values are paid."""
POLL_SECONDS = 0.2
WEBHOOKS_WITHIN_SECONDS = 20
ENTERED_CENTS = 3600


async def run_story(client: Client, console: Console, *, merchant: str) -> None:
    """Run all steps and print the results; `merchant` is the example merchant's URL. Raises ApiError."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        waiting = progress.add_task("starting API and worker", total=1, note="")
        await client.wait_until_ready()
        progress.update(waiting, completed=1)
        await client.put("/v1/integration/webhook", {"url": f"{merchant}/webhooks"})
        plans = await make_catalog(client, merchant=merchant)
        subscriptions = await enroll(client, plans, progress=progress)
        await _advance_days(client, progress, "advancing three months", MONTHS_DAYS)
        await _enter_values(client, progress)
        await _advance_days(client, progress, f"advancing {SETTLE_DAYS} days", SETTLE_DAYS)
        summary, emitted = await _summary(client, progress, merchant=merchant)
    console.print(await months_table(client))
    console.print(await metered_table(client, summary))
    console.print(dates_line(subscriptions[1]), highlight=False, soft_wrap=True)
    console.print(webhooks_line(summary, emitted=emitted), highlight=False, soft_wrap=True)
    _print_next_steps(client, console)


async def _advance_days(client: Client, progress: Progress, what: str, days: int) -> None:
    """Advance the test clock in steps of a few days, to show progress."""
    task = progress.add_task(what, total=days, note="")
    for passed in range(0, days, STEP_DAYS):
        step = min(STEP_DAYS, days - passed)
        clock = await client.post("/v1/test-clock/advance", {"days": step})
        progress.update(task, advance=step, note=clock["now"][:10])


async def _enter_values(client: Client, progress: Progress) -> None:
    """Enter a value for each item whose endpoint keeps failing, so that its invoice can be issued."""
    held = [invoice["id"] async for invoice in invoices(client, "&status=awaiting_value")]
    task = progress.add_task("entering values by hand", total=len(held), note="")
    for invoice_id in held:
        for item in (await client.get(f"/v1/invoices/{invoice_id}"))["items"]:
            if item["pricingStatus"] == "pending":
                await client.post(
                    f"/v1/invoices/{invoice_id}/items/{item['id']}/value",
                    {"amount": ENTERED_CENTS, "description": "2 smoothies, counted by hand"},
                )
        progress.update(task, advance=1)


async def _summary(client: Client, progress: Progress, *, merchant: str) -> tuple[dict[str, Any], int]:
    """Wait until the example merchant has received all events, but at most WEBHOOKS_WITHIN_SECONDS.

    Return the merchant's summary, and the number of events that were emitted before the wait.
    """
    emitted = len([event async for event in events(client)])
    task = progress.add_task("waiting for webhooks", total=emitted, note="")
    async with connect(merchant, api_key="") as example:
        summary = await example.get("/summary")
        for _ in range(round(WEBHOOKS_WITHIN_SECONDS / POLL_SECONDS)):
            arrived = sum(summary["events"].values())
            progress.update(task, completed=arrived)
            if arrived >= emitted:
                break
            await asyncio.sleep(POLL_SECONDS)
            summary = await example.get("/summary")
    return summary, emitted


def _print_next_steps(client: Client, console: Console) -> None:
    key = client.api_key if credentials.is_shown() else "..."
    overdue = f"'{client.base_url}/v1/invoices?status=overdue'"
    lines = {
        "try": f"curl -H 'Authorization: Bearer {key}' {overdue}",
        "docs": f"{client.base_url}/docs",
    }
    for name, value in lines.items():
        console.print(Text.assemble((f"{name:<9}", "bold"), printable(value)), soft_wrap=True)
