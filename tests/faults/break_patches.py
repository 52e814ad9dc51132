"""Functions that each disable one mechanism of the engine in this process (see `breaks`).

They replace functions, or change SQL statements before they are sent. `Found by` names the run that must report it.
"""

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from fatura import ids
from fatura.api.http import replies
from fatura.domain import invoice
from fatura.signature import PREFIX
from fatura.store import counters, db, vault
from fatura.store.db import Tx
from fatura.store.restore import frozen_accounts
from fatura.store.subscriptions import subscriptions
from fatura.store.vault import Vault
from fatura.usecases.charging import gateway_calls, issuance, outcomes
from fatura.usecases.idempotency import IdempotentRequest, StoredAnswer, execute_once, find_answer
from fatura.usecases.transaction import Work
from fatura.usecases.webhooks import delivery
from fatura.workers.lanes import LANES

STORE = Path(db.__file__).parent
Put = Callable[[Any, str, Any], None]
"""A function that sets an attribute: permanently (`setattr`) or for one test (`monkeypatch.setattr`)."""

PATCHES: dict[str, Callable[[], None]] = {}
"""The functions of this module by the name of the break, such as `long-lease`."""

Patch = TypeVar("Patch", bound=Callable[..., None])


def _break(patch: Patch) -> Patch:
    PATCHES[patch.__name__.replace("_", "-")] = patch
    return patch


def weaken(statement: str, old: str, new: str, *, put: Put = setattr) -> None:
    """Replace a part of every SQL statement that begins with `statement`."""
    written = " ".join(" ".join(path.read_text() for path in STORE.rglob("*.py")).split())
    assert statement in written, f"no statement begins with {statement}"
    assert old in written, f"no statement contains {old}"

    def weakened(send: Callable[..., Any]) -> Callable[..., Any]:
        def sent(self: Tx, sql: str, *values: object) -> Any:
            plain = " ".join(sql.split())
            return send(self, plain.replace(old, new) if plain.startswith(statement) else sql, *values)

        return sent

    for name in ("execute", "fetch", "fetchrow", "fetchval"):
        put(Tx, name, weakened(getattr(Tx, name)))


@_break
def retry_without_lookup() -> None:
    """After an unknown outcome, repeat the charge request without a look-up. Found by `crashes`."""

    def may(*_args: object, **_kwargs: object) -> bool:
        return True

    issuance._may_repeat = may


@_break
def trust_first_lookup() -> None:
    """Treat a charge as absent after one early, empty look-up. Found by `gateway`."""
    outcomes.LOOKUP_COUNTS_AFTER = timedelta(0)
    outcomes.EMPTY_LOOKUPS_NEEDED = 1


@_break
def skip_lease_check() -> None:
    """Let a worker send a charge request after its lease has expired. Found by `gateway`."""
    gateway_calls.SEND_WITHIN_SECONDS = 3600


@_break
def ignore_lease(*, put: Put = setattr) -> None:
    """Claim invoices that another worker has leased. Found by `orders`."""
    weaken(
        "WITH due AS MATERIALIZED ( SELECT x.invoice_id",
        "AND (x.lease_until IS NULL OR x.lease_until <= $4)",
        "AND $4::timestamptz IS NOT NULL",
        put=put,
    )


@_break
def long_lease() -> None:
    """Lease invoices for ten minutes. Found by `crashes`."""
    issuance.LEASE = timedelta(minutes=10)


@_break
def cancel_without_lock(*, put: Put = setattr) -> None:
    """Cancel a subscription without locking its row. Found by `orders`."""
    put(subscriptions, "lock", subscriptions.find)


@_break
def ignore_idempotency_keys() -> None:
    """Execute every request as if it had no Idempotency-Key. Found by `crashes`."""
    execute: Any = replies.execute_once

    async def always(deps: Any, account: Any, request: Any, *rest: Any, **named: Any) -> Any:
        return await execute(deps, account, None, *rest, **named)

    replies.execute_once = always


@_break
def store_keys_separately() -> None:
    """Commit the Idempotency-Key after the effect, in a separate transaction. Found by `crashes`."""

    async def apart(
        deps: Any,
        account: Any,
        request: IdempotentRequest | None,
        effect: Callable[[Work], Awaitable[Any]],
        *,
        status: int,
        holds_secret: bool = False,
    ) -> StoredAnswer:
        del holds_secret
        stored = await find_answer(deps, account, request)
        if stored is not None:
            return stored
        answer = await execute_once(deps, account, None, effect, status=status)

        async def keep(work: Work) -> Any:
            return json.loads(answer.body)

        if request is not None:
            await execute_once(deps, account, request, keep, status=status)
        return answer

    replies.execute_once = apart


@_break
def number_events_by_sequence() -> None:
    """Number events by a database sequence, before the lock that orders commits. Found by `orders`."""
    add = counters.add

    async def by_sequence(tx: Tx, *, events: int, deltas: Any) -> int:
        last = await tx.fetchval("SELECT next_event_number($1, $2)", events)
        await add(tx, events=0, deltas=deltas)
        shown = "UPDATE account_counter c SET last_sequence = greatest(c.last_sequence, $2) WHERE c.account_id = $1"
        await tx.execute(shown, last)
        return last

    counters.add = by_sequence


@_break
def push_out_of_order() -> None:
    """Deliver the events of one invoice concurrently. Found by `simulator`."""
    weaken(
        "SELECT d.sequence, e.event_id",
        "AND d.waits IS NOT TRUE AND NOT EXISTS ( SELECT FROM delivery b WHERE b.account_id = $1"
        " AND b.ordered_by = d.ordered_by AND b.sequence < d.sequence AND b.next_attempt_at IS NOT NULL )",
        "",
    )


@_break
def sign_with_wrong_secret() -> None:
    """Sign webhooks with a wrong secret. Found by `simulator`."""

    async def anything(_work: Work) -> tuple[str, ...]:
        return (f"{PREFIX}{'A' * 43}=",)

    delivery.signing_secrets = anything


@_break
def round_down() -> None:
    """Round half cents down. Found by `simulator`."""

    def down(monthly_price_cents: int, *, months: int, discount_percent: int) -> int:
        return months * monthly_price_cents * (100 - discount_percent) // 100

    invoice.item_amount_cents = down


@_break
def trust_any_commit() -> None:
    """Do not check whether the server confirmed a COMMIT. Found by `failover`."""

    async def commit(connection: Any) -> None:
        await connection.execute("COMMIT")

    db.commit = commit


@_break
def commit_refused_requests() -> None:
    """Commit the writes of refused requests. Found by `bad-requests`."""

    async def keep(connection: Any) -> None:
        await connection.execute("COMMIT")

    db.roll_back = keep


@_break
def charge_during_restore() -> None:
    """Continue charging during the comparison after a restore. Found by `restore`."""

    async def yes(_tx: Tx) -> bool:
        return True

    frozen_accounts.may_charge = yes


@_break
def random_invoice_ids() -> None:
    """Make invoice ids random instead of deriving them from subscription and cycle. Found by `restore`."""

    def by_chance(at: Any, billed: Any) -> Any:
        return ids.new_ids(at, len(list(billed)))

    ids.invoice_ids = by_chance


@_break
def read_any_account() -> None:
    """Read invoices of all accounts; `breaks` also disables Row Level Security. Found by `probes`."""
    for columns in ("v.invoice_id, v.subscription_id", "i.invoice_id, i.item_id"):
        for table in "vscip":
            weaken(f"SELECT {columns}", f"{table}.account_id = $1", "$1::uuid IS NOT NULL")


@_break
def unbind_ciphertexts() -> None:
    """Let a ciphertext decrypt in any row. Found by `secrets`."""

    def nothing(*_args: object, **_kwargs: object) -> bytes:
        return b""

    vault._bound_to = nothing


@_break
def store_plain_secrets() -> None:
    """Store secrets without encryption. Found by `secrets`."""

    def seal(self: Vault, plain: bytes, **_place: object) -> bytes:
        return self.sealing_id + plain

    def opened(self: Vault, sealed: bytes, **_place: object) -> bytes:
        return sealed[len(self.sealing_id) :]

    Vault.seal, Vault.open = seal, opened


@_break
def accept_revoked_keys() -> None:
    """Accept revoked API keys. Found by `secrets`."""
    weaken("SELECT a.account_id, a.mode, a.currency, a.clock_offset, k", " AND k.revoked_at IS NULL", "")


@_break
def one_push_at_a_time() -> None:
    """Call only one webhook endpoint at a time. Found by `neighbours`."""
    for lane in LANES:
        if lane.name in {"push", "probe"}:
            object.__setattr__(lane, "batches_at_once", 1)
