"""Deliberate breaks, by name: each takes one mechanism away, so that the run which holds it can be seen to fail.

`make faults BREAK=name ARGS=run`; every process of a run calls `apply`, and every database of a run `break_database`.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import asyncpg

from fatura import ids
from fatura.api import replies
from fatura.store import recovery, subscriptions, vault
from fatura.store.db import Tx
from fatura.usecases import issuance, issue_outcomes

VARIABLE = "FATURA_BREAK"


@dataclass(frozen=True, slots=True)
class Break:
    """One break: what is taken away, which run has to find it, and how: a patch of the process, or SQL."""

    name: str
    says: str
    found_by: str
    patch: Callable[[], None] | None = None
    sql: str | None = None


Put = Callable[[Any, str, Any], None]
"""Sets an attribute: for good, or for one test (`monkeypatch.setattr`)."""


def weaken(statement: str, old: str, new: str, *, put: Put = setattr) -> None:
    """Send the statements that begin so with a piece of them replaced."""

    def weakened(send: Callable[..., Any]) -> Callable[..., Any]:
        def sent(self: Tx, sql: str, *values: object) -> Any:
            plain = " ".join(sql.split())
            return send(self, plain.replace(old, new) if plain.startswith(statement) else sql, *values)

        return sent

    for name in ("execute", "fetch", "fetchrow", "fetchval"):
        put(Tx, name, weakened(getattr(Tx, name)))


def _send_again_blind() -> None:
    def may(*_args: object, **_kwargs: object) -> bool:
        return True

    issuance._may_replay = may


def _believe_at_once() -> None:
    issue_outcomes.LOOKUP_COUNTS_AFTER = timedelta(0)
    issue_outcomes.EMPTY_LOOKUPS_NEEDED = 1


def forget_the_lease(*, put: Put = setattr) -> None:
    """Claim an invoice though another worker has it."""
    weaken(
        "WITH due AS MATERIALIZED ( SELECT x.invoice_id",
        "AND (x.lease_until IS NULL OR x.lease_until <= $4)",
        "AND $4::timestamptz IS NOT NULL",
        put=put,
    )


def _keep_the_lease() -> None:
    issuance.LEASE = timedelta(minutes=10)


def _cancel_without_lock() -> None:
    subscriptions.lock = subscriptions.find


def _forget_keys() -> None:
    once: Any = replies.once

    async def always(deps: Any, account: Any, request: Any, *rest: Any, **named: Any) -> Any:
        return await once(deps, account, replace(request, key=None), *rest, **named)

    replies.once = always


def _never_freeze() -> None:
    async def yes(_tx: Tx) -> bool:
        return True

    recovery.may_charge = yes


def _ids_by_chance() -> None:
    def by_chance(at: Any, billed: Any) -> Any:
        return ids.new_ids(at, len(list(billed)))

    ids.invoice_ids = by_chance


def _bind_no_ciphertext() -> None:
    def nothing(*_args: object, **_kwargs: object) -> bytes:
        return b""

    vault._bound_to = nothing


BREAKS: tuple[Break, ...] = (
    Break(
        "send-again-blind",
        "a charge of unknown outcome is sent again without a look-up",
        "crashes",
        _send_again_blind,
    ),
    Break("believe-at-once", "one early empty look-up proves absence", "liar", _believe_at_once),
    Break(
        "forget-the-lease", "an invoice is claimed though another worker has it", "orders", forget_the_lease
    ),
    Break("keep-the-lease", "a dead worker's lease lasts ten minutes", "crashes", _keep_the_lease),
    Break(
        "cancel-without-lock",
        "cancelling reads the subscription without holding it",
        "orders",
        _cancel_without_lock,
    ),
    Break("forget-keys", "Idempotency-Keys are not looked at", "crashes", _forget_keys),
    Break("never-freeze", "charging goes on while a restore is compared", "restore", _never_freeze),
    Break("ids-by-chance", "an invoice's id does not tell what it bills", "restore", _ids_by_chance),
    Break("bind-no-ciphertext", "a ciphertext opens in any row", "secrets", _bind_no_ciphertext),
)


def chosen() -> Break | None:
    """Return the break that the environment names; it is an error to name one that does not exist."""
    name = os.environ.get(VARIABLE)
    return {each.name: each for each in BREAKS}[name] if name else None


def apply() -> None:
    """Break this process, if the environment says so."""
    broken = chosen()
    if broken is not None and broken.patch is not None:
        broken.patch()


async def break_database(url: str) -> None:
    """Break a migrated database, if the environment says so."""
    broken = chosen()
    if broken is None or broken.sql is None:
        return
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(broken.sql)
    finally:
        await connection.close()
