"""`fatura demo`: bill a sandbox account for three months, show the result, and keep serving the API."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.console import Console

import fatura
from fatura import bootstrap
from fatura.bootstrap import Address
from fatura.cli import account
from fatura.cli.client import connect
from fatura.cli.demo.story import run_story
from fatura.cli.operator import operator
from fatura.cli.options import DEFAULT_HOST, DEFAULT_PORT, DataDir, Host, Port, announce, read_settings
from fatura.cli.processes import run_until_stopped
from fatura.cli.up import run_engine
from fatura.domain.credentials import Mode
from fatura.settings import HostPorts

PROGRAM = Path("examples/merchant/app.py")
MERCHANT_STARTS_WITHIN_SECONDS = 20
Once = Annotated[
    bool, typer.Option("--once", help="Exit after the result is shown instead of serving until Ctrl-C.")
]


def demo(
    host: Host = DEFAULT_HOST, port: Port = DEFAULT_PORT, *, data_dir: DataDir = None, once: Once = False
) -> None:
    """Open a sandbox account, bill twenty subscribers for three months, show the result, and keep serving the API.

    An example merchant also runs: it answers price calls for variable items and receives webhooks.
    """
    settings = read_settings(data_dir, quiet=True)
    if data_dir is None:  # another folder, so that the demo's account is not in the database of `fatura up`
        settings = replace(settings, data_dir=settings.data_dir / "demo")
    address = Address(host, port)
    bootstrap.check_port(address)
    console = Console()
    console.print(
        "[bold]Fatura[/]: starting PostgreSQL, API and worker on this machine. No real charges are made."
    )
    with bootstrap.database(settings) as urls:
        bootstrap.migrate(urls)
        announce(settings)
        opened = asyncio.run(
            bootstrap.open_account(settings, urls.url, name="Demo", mode=Mode.SANDBOX, opened_by=operator())
        )

        async def story(stop: asyncio.Event) -> None:
            async with example_merchant(opened.secret) as merchant:

                async def meanwhile() -> None:
                    async with connect(f"http://{host}:{port}", opened.api_key) as client:
                        await run_story(client, console, merchant=merchant)
                    account.show(opened, folder=settings.data_dir)
                    if once:
                        stop.set()
                    else:
                        console.print("Serving until Ctrl-C.")

                served = urlsplit(merchant)
                merchant_port = served.port or 0
                allowed = HostPorts(served.hostname or "", merchant_port, merchant_port)
                engine = replace(settings, outbound_allow=(allowed,))
                await run_engine(engine, stop, address=address, meanwhile=meanwhile)

        run_until_stopped(story)


def find_program() -> Path:
    """Return the path of the example merchant's program, in the installed package or at the top of a checkout."""
    package = Path(fatura.__file__).resolve().parent
    installed = package / PROGRAM
    return installed if installed.exists() else package.parents[1] / PROGRAM


@asynccontextmanager
async def example_merchant(secret: str) -> AsyncGenerator[str]:
    """Run the example merchant, which verifies signatures with `secret`, on a free local port. Yield its URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(find_program()),
        "--port",
        "0",
        "--until-stdin-closes",
        env={**os.environ, "FATURA_INTEGRATION_SECRET": secret},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(MERCHANT_STARTS_WITHIN_SECONDS):
            address = (await process.stdout.readline()).decode().strip()
        if not address:
            raise RuntimeError("the example merchant did not start")
        yield address
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
