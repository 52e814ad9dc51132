"""`fatura keys`: show which keys of the key ring are in use, and re-encrypt all secrets with the ring's first key."""

import json
from collections import Counter
from dataclasses import dataclass, replace

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from fatura.cli.options import DataDir, Json, run_with_deps
from fatura.usecases.accounts import key_ring
from fatura.usecases.deps import Deps
from fatura.usecases.operations.checks import all_accounts

app = typer.Typer(help="Manage the key ring that encrypts secrets at rest.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class _State:
    """The use of each key. `ring` has the ring's key ids in order; `used` counts the encrypted values by key id."""

    ring: tuple[bytes, ...]
    used: Counter[bytes]
    reencrypted: int = 0
    unreadable: int = 0

    @property
    def done(self) -> bool:
        """Return whether all values are encrypted with the first key."""
        return not (set(self.used) - {self.ring[0]})

    def lines(self) -> list[tuple[str, int, str]]:
        """Return a line for each key: its id, the number of values that it encrypts, and what to do with the key."""
        missing = sorted(set(self.used) - set(self.ring))
        return [(key.hex(), self.used[key], self._advice(key)) for key in (*self.ring, *missing)]

    def _advice(self, key: bytes) -> str:
        if key not in self.ring:
            return "missing: add it to the end of the ring"
        if key == self.ring[0]:
            return "encrypts new values"
        return "in use" if self.used[key] else "encrypts nothing: remove it if you retire it"


@app.command("list")
def list_(data_dir: DataDir = None, *, json_: Json = False) -> None:
    """Show for each key id how many secrets the key encrypts, and whether you can remove the key from the ring."""
    _print(run_with_deps(data_dir, _read_state), json_=json_)


@app.command()
def rotate(data_dir: DataDir = None, *, json_: Json = False) -> None:
    """Re-encrypt all secrets with the first key while the engine runs; exit 1 if a secret could not be re-encrypted.

    Before you run this, first add the new key to the end of every process's key ring, then move the key to the start
    of each ring.
    """
    state = run_with_deps(data_dir, _rotate)
    _print(state, json_=json_)
    if not state.done:
        raise typer.Exit(1)


async def _read_state(deps: Deps) -> _State:
    used = Counter[bytes]()
    for account_id in await all_accounts(deps):
        used += await key_ring.usage(deps, account_id)
    return _State(deps.vault.key_ids, used)


async def _rotate(deps: Deps) -> _State:
    reencrypted = unreadable = 0
    accounts = await all_accounts(deps)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        shown = progress.add_task("re-encrypting", total=len(accounts))
        for account_id in accounts:
            async for batch in key_ring.reencrypt(deps, account_id):
                reencrypted += batch.reencrypted
                unreadable += batch.unreadable
                progress.update(shown, description=f"{reencrypted} re-encrypted")
            progress.advance(shown)
    return replace(await _read_state(deps), reencrypted=reencrypted, unreadable=unreadable)


def _print(state: _State, *, json_: bool) -> None:
    if json_:
        keys_ = [{"keyId": key, "values": count, "state": advice} for key, count, advice in state.lines()]
        typer.echo(
            json.dumps({"reencrypted": state.reencrypted, "unreadable": state.unreadable, "keys": keys_})
        )
        return
    title = f"{state.reencrypted} re-encrypted, {state.unreadable} unreadable"
    table = Table("key", "values", "state", title=title if state.reencrypted or state.unreadable else None)
    for key, count, advice in state.lines():
        table.add_row(key, str(count), advice)
    Console().print(table)
