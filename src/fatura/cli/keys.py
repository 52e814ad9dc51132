"""`fatura keys`: show which keys of the key ring are in use, and re-encrypt all secrets with the ring's first key."""

import json
from collections import Counter
from dataclasses import dataclass, replace

import typer
from rich.console import Console
from rich.progress import Progress

from fatura.cli.failed_accounts import failed_as_json, print_failed
from fatura.cli.operator import operator
from fatura.cli.options import ACCOUNT_FAILED, DataDir, Json, run_with_deps
from fatura.cli.output import add_row, table
from fatura.usecases.accounts import key_ring, tag_key
from fatura.usecases.deps import Deps
from fatura.usecases.operations.checks import all_accounts
from fatura.usecases.operations.each_account import EachAccount, FailedAccount

app = typer.Typer(help="Manage the key ring that encrypts secrets at rest.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class _State:
    """The use of each key. `ring` has the key ids in the ring's order; `used` counts the encrypted values by key id.

    The values of a `failed` account may be missing from `used`.
    """

    ring: tuple[bytes, ...]
    used: Counter[bytes]
    failed: tuple[FailedAccount, ...] = ()
    reencrypted: int = 0
    unreadable: int = 0

    @property
    def done(self) -> bool:
        """Return whether all counted values are encrypted with the ring's first key."""
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
        if self.failed and not self.used[key]:
            return "keep it: some accounts could not be read"
        return "in use" if self.used[key] else "encrypts nothing"


@app.command("list")
def list_(data_dir: DataDir = None, *, json_: Json = False) -> None:
    """Show for each key id how many secrets the key encrypts, and whether you can remove the key from the ring.

    An account that cannot be read is passed over; the exit code is then 3.
    """
    state = run_with_deps(data_dir, _list)
    _print(state, json_=json_)
    if state.failed:
        raise typer.Exit(ACCOUNT_FAILED)


@app.command()
def rotate(data_dir: DataDir = None, *, json_: Json = False) -> None:
    """Re-encrypt all secrets with the key ring's first key. The engine may run meanwhile.

    The exit code is 1 if a secret could not be re-encrypted. An account that fails is passed over; the exit code is
    then 3. You can repeat the command.

    Before you run this, first add the new key to the end of every process's key ring, then move the key to the start
    of each ring.
    """
    state = run_with_deps(data_dir, _rotate)
    _print(state, json_=json_)
    if state.failed:
        raise typer.Exit(ACCOUNT_FAILED)
    if not state.done:
        raise typer.Exit(1)


async def _list(deps: Deps) -> _State:
    return await _read_state(deps, EachAccount(deps))


async def _read_state(deps: Deps, each: EachAccount) -> _State:
    """Count the values that each key encrypts, if possible also in accounts for which `rotate` failed."""
    used = Counter[bytes]((await tag_key.ring_key(deps),))
    for account_id in await all_accounts(deps):
        async with each.attempt(account_id):
            used += await key_ring.usage(deps, account_id)
    failed = {failure.account_id: failure for failure in each.failed}
    return _State(deps.vault.key_ids, used, tuple(failed.values()))


async def _rotate(deps: Deps) -> _State:
    reencrypted = unreadable = 0
    accounts, each = await all_accounts(deps), EachAccount(deps)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        shown = progress.add_task("re-encrypting", total=len(accounts))
        for account_id in accounts:
            async with each.attempt(account_id):
                async for batch in key_ring.reencrypt(deps, account_id, asked_by=operator()):
                    reencrypted += batch.reencrypted
                    unreadable += batch.unreadable
                    progress.update(shown, description=f"{reencrypted} re-encrypted")
            progress.advance(shown)
    # Re-encrypt the tag key last. A process that cannot decrypt the tag key does not start. So no process starts
    # without the old key while other secrets still need that key.
    if not each.failed:
        reencrypted += await tag_key.reencrypt(deps)
    return replace(await _read_state(deps, each), reencrypted=reencrypted, unreadable=unreadable)


def _print(state: _State, *, json_: bool) -> None:
    if json_:
        keys_ = [{"keyId": key, "values": count, "state": advice} for key, count, advice in state.lines()]
        report = {"reencrypted": state.reencrypted, "unreadable": state.unreadable, "keys": keys_}
        typer.echo(json.dumps({**report, "failed": failed_as_json(state.failed)}))
        return
    title = f"{state.reencrypted} re-encrypted, {state.unreadable} unreadable"
    keys = table("key", "values", "state", title=title if state.reencrypted or state.unreadable else None)
    for key, count, advice in state.lines():
        add_row(keys, key, count, advice)
    Console().print(keys)
    print_failed(state.failed, "was passed over")
