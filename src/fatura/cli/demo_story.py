"""The demo's story, told through the HTTP API: a catalog, twenty subscribers, three months, and what came of them."""

import asyncio
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fatura.cli.client import Client
from fatura.cli.demo_catalog import enroll, make_catalog
from fatura.cli.demo_tables import events, invoices, metered_table, months_table, webhooks_line

MONTHS_DAYS = 92
STEP_DAYS = 4
SETTLE_DAYS = 1
"""After the last release by hand, so that what was released is paid."""
LOOK_EVERY_SECONDS = 0.2
WEBHOOKS_WITHIN_SECONDS = 20
BY_HAND_CENTS = 3600


async def tell(client: Client, console: Console, *, merchant: str) -> None:
    """Tell the whole story and leave the account as it became; `merchant` is the example's address. Raises ApiError."""
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
        await enroll(client, plans, progress=progress)
        await _pass_days(client, progress, "passing three months", MONTHS_DAYS)
        await _release_by_hand(client, progress)
        await _pass_days(client, progress, "and a day", SETTLE_DAYS)
        summary, reported = await _summary(client, progress, merchant=merchant)
    console.print(await months_table(client))
    console.print(await metered_table(client, summary))
    console.print(webhooks_line(summary, reported=reported), highlight=False, soft_wrap=True)
    _show_the_way(client, console)


async def _pass_days(client: Client, progress: Progress, what: str, days: int) -> None:
    """Move the clock on, a few days at a time to be seen; the worker runs the real engine at every due instant."""
    task = progress.add_task(what, total=days, note="")
    for passed in range(0, days, STEP_DAYS):
        step = min(STEP_DAYS, days - passed)
        clock = await client.post("/v1/test-clock/advance", {"days": step})
        progress.update(task, advance=step, note=clock["now"][:10])


async def _release_by_hand(client: Client, progress: Progress) -> None:
    """Give the items whose endpoint stays broken a value, and let their invoices go on."""
    held = [invoice["id"] async for invoice in invoices(client, "&status=awaiting_value")]
    task = progress.add_task("releasing by hand", total=len(held), note="")
    for invoice_id in held:
        for item in (await client.get(f"/v1/invoices/{invoice_id}"))["items"]:
            if item["pricingStatus"] == "pending":
                await client.post(
                    f"/v1/invoices/{invoice_id}/items/{item['id']}/value",
                    {"amount": BY_HAND_CENTS, "description": "2 smoothies, counted by hand"},
                )
        progress.update(task, advance=1)


async def _summary(client: Client, progress: Progress, *, merchant: str) -> tuple[dict[str, Any], int]:
    """Return what the merchant counted, once all events are there or enough was waited, and how many there are."""
    reported = len([event async for event in events(client)])
    task = progress.add_task("awaiting webhooks", total=reported, note="")
    async with Client(merchant, api_key="") as example:
        summary = await example.get("/summary")
        for _ in range(round(WEBHOOKS_WITHIN_SECONDS / LOOK_EVERY_SECONDS)):
            arrived = sum(summary["events"].values())
            progress.update(task, completed=arrived)
            if arrived >= reported:
                break
            await asyncio.sleep(LOOK_EVERY_SECONDS)
            summary = await example.get("/summary")
    return summary, reported


def _show_the_way(client: Client, console: Console) -> None:
    overdue = f"'{client.base_url}/v1/invoices?status=overdue'"
    lines = (
        f"[bold]API key[/]  {client.api_key}",
        f"[bold]try[/]      curl -H 'Authorization: Bearer {client.api_key}' {overdue}",
        f"[bold]docs[/]     {client.base_url}/docs",
    )
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)
