"""`fatura keys`: which keys of the ring are in use, and sealing everything anew so that old ones can go."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from fatura import bootstrap
from fatura.cli.options import DataDir, Json, read_settings
from fatura.usecases.accounts import key_ring
from fatura.usecases.deps import Deps
from fatura.usecases.operations.checks import all_accounts

app = typer.Typer(help="The key ring that seals secrets at rest.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class _State:
    """How many values each key sealed, by its id; `ring` are the ids of the ring, newest first."""

    ring: tuple[bytes, ...]
    used: Counter[bytes]
    resealed: int = 0
    unreadable: int = 0

    @property
    def done(self) -> bool:
        """Say whether the first key sealed everything."""
        return not (set(self.used) - {self.ring[0]})

    def lines(self) -> list[tuple[str, int, str]]:
        """Return each key's id, how many values it sealed, and what that means."""
        missing = sorted(set(self.used) - set(self.ring))
        return [(key.hex(), self.used[key], self._advice(key)) for key in (*self.ring, *missing)]

    def _advice(self, key: bytes) -> str:
        if key not in self.ring:
            return "missing: add it at the end of the ring"
        if key == self.ring[0]:
            return "seals"
        return "in use" if self.used[key] else "may be dropped"


@app.callback()
def keys() -> None:
    """Look after the key ring."""


@app.command("list")
def list_(data_dir: DataDir = None, *, json_: Json = False) -> None:
    """Show how many secrets each key sealed, and which keys may be dropped; keys are shown by their ids."""
    settings = read_settings(data_dir)
    with bootstrap.migrated_database(settings) as url:
        state = asyncio.run(_with_deps(settings, url, rotate=False))
    _tell(state, json_=json_)


@app.command()
def rotate(data_dir: DataDir = None, *, json_: Json = False) -> None:
    """Seal everything anew with the first key, while everything runs; exit 1 when something is left.

    Give every process the ring with the new key at the end first, then with the new key in front, then run this.
    """
    settings = read_settings(data_dir)
    with bootstrap.migrated_database(settings) as url:
        state = asyncio.run(_with_deps(settings, url, rotate=True))
    _tell(state, json_=json_)
    if not state.done:
        raise typer.Exit(1)


async def _with_deps(settings: bootstrap.Settings, url: str, *, rotate: bool) -> _State:
    async with bootstrap.opened(settings, url) as deps:
        resealed, unreadable = await _rotate(deps) if rotate else (0, 0)
        used = Counter[bytes]()
        for account_id in await all_accounts(deps):
            used += await key_ring.usage(deps, account_id)
        return _State(deps.vault.key_ids, used, resealed, unreadable)


async def _rotate(deps: Deps) -> tuple[int, int]:
    resealed = unreadable = 0
    accounts = await all_accounts(deps)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        shown = progress.add_task("sealing anew", total=len(accounts))
        for account_id in accounts:
            async for batch in key_ring.reseal(deps, account_id):
                resealed += batch.resealed
                unreadable += batch.unreadable
                progress.update(shown, description=f"{resealed} sealed anew")
            progress.advance(shown)
    return resealed, unreadable


def _tell(state: _State, *, json_: bool) -> None:
    if json_:
        keys_ = [{"keyId": key, "values": count, "state": advice} for key, count, advice in state.lines()]
        typer.echo(json.dumps({"resealed": state.resealed, "unreadable": state.unreadable, "keys": keys_}))
        return
    table = Table(
        "key", "sealed values", "", title=f"{state.resealed} sealed anew, {state.unreadable} do not open"
    )
    for key, count, advice in state.lines():
        table.add_row(key, str(count), advice)
    Console().print(table)
