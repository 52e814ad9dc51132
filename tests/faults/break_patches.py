"""How each deliberate break takes its mechanism away in a running process: statements weakened, functions replaced."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

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
"""Sets an attribute: for good, or for one test (`monkeypatch.setattr`)."""


def weaken(statement: str, old: str, new: str, *, put: Put = setattr) -> None:
    """Send the statements that begin so with a piece of them replaced."""
    written = " ".join(" ".join(path.read_text() for path in STORE.rglob("*.py")).split())
    assert statement in written, f"no statement begins {statement}"
    assert old in written, f"no statement holds {old}"

    def weakened(send: Callable[..., Any]) -> Callable[..., Any]:
        def sent(self: Tx, sql: str, *values: object) -> Any:
            plain = " ".join(sql.split())
            return send(self, plain.replace(old, new) if plain.startswith(statement) else sql, *values)

        return sent

    for name in ("execute", "fetch", "fetchrow", "fetchval"):
        put(Tx, name, weakened(getattr(Tx, name)))


def send_again_blind() -> None:
    """Send a charge of unknown outcome again, whatever the gateway knows."""

    def may(*_args: object, **_kwargs: object) -> bool:
        return True

    issuance._may_repeat = may


def believe_at_once() -> None:
    """Take the first empty look-up for proof."""
    outcomes.LOOKUP_COUNTS_AFTER = timedelta(0)
    outcomes.EMPTY_LOOKUPS_NEEDED = 1


def send_without_a_last_look() -> None:
    """Send whatever the clocks say: the lease may be another's by now."""
    gateway_calls.SEND_WITHIN_SECONDS = 3600


def forget_the_lease(*, put: Put = setattr) -> None:
    """Claim an invoice though another worker has it."""
    weaken(
        "WITH due AS MATERIALIZED ( SELECT x.invoice_id",
        "AND (x.lease_until IS NULL OR x.lease_until <= $4)",
        "AND $4::timestamptz IS NOT NULL",
        put=put,
    )


def keep_the_lease() -> None:
    """Hold what a dead worker held for ten minutes."""
    issuance.LEASE = timedelta(minutes=10)


def cancel_without_lock(*, put: Put = setattr) -> None:
    """Read the subscription that is canceled without holding it."""
    put(subscriptions, "lock", subscriptions.find)


def forget_keys() -> None:
    """Do every request as if it had no Idempotency-Key."""
    whole: Any = replies.execute_once

    async def always(deps: Any, account: Any, request: Any, *rest: Any, **named: Any) -> Any:
        return await whole(deps, account, replace(request, key=None), *rest, **named)

    replies.execute_once = always


def keep_keys_apart() -> None:
    """Commit the effect, and its Idempotency-Key after it, in a transaction of its own."""

    async def apart(
        deps: Any,
        account: Any,
        request: IdempotentRequest,
        effect: Callable[[Work], Awaitable[Any]],
        *,
        status: int,
        holds_secret: bool = False,
    ) -> StoredAnswer:
        del holds_secret
        stored = await find_answer(deps, account, request)
        if stored is not None:
            return stored
        answer = await execute_once(deps, account, replace(request, key=None), effect, status=status)

        async def keep(work: Work) -> Any:
            return json.loads(answer.body)

        if request.key is not None:
            await execute_once(deps, account, request, keep, status=status)
        return answer

    replies.execute_once = apart


def number_events_by_a_sequence() -> None:
    """Take event numbers from a sequence, as one would, and the account's counter row for the totals only."""
    add = counters.add

    async def by_sequence(tx: Tx, *, events: int, deltas: Any) -> int:
        last = await tx.fetchval("SELECT next_event_number($1, $2)", events)
        await add(tx, events=0, deltas=deltas)
        shown = "UPDATE account_counter c SET last_sequence = greatest(c.last_sequence, $2) WHERE c.account_id = $1"
        await tx.execute(shown, last)
        return last

    counters.add = by_sequence


def push_out_of_turn() -> None:
    """Push an event though an earlier one of its invoice is still open."""
    weaken(
        "SELECT d.sequence, e.event_id",
        "AND d.waits IS NOT TRUE AND NOT EXISTS ( SELECT FROM delivery b WHERE b.account_id = $1"
        " AND b.ordered_by = d.ordered_by AND b.sequence < d.sequence AND b.next_attempt_at IS NOT NULL )",
        "",
    )


def sign_with_anything() -> None:
    """Sign what is pushed with a secret that is not the account's."""

    async def anything(_work: Work) -> tuple[str, ...]:
        return (f"{PREFIX}{'A' * 43}=",)

    delivery.signing_secrets = anything


def round_down() -> None:
    """Drop half a cent instead of rounding it up."""

    def down(monthly_price_cents: int, *, months: int, discount_percent: int) -> int:
        return months * monthly_price_cents * (100 - discount_percent) // 100

    invoice.item_amount_cents = down


def believe_any_commit() -> None:
    """Take whatever a COMMIT answers for a commit, warnings and all."""

    async def commit(connection: Any) -> None:
        await connection.execute("COMMIT")

    db.commit = commit


def commit_what_failed() -> None:
    """End a transaction that raised with a COMMIT: what it wrote before stays."""

    async def keep(connection: Any) -> None:
        await connection.execute("COMMIT")

    db.roll_back = keep


def never_freeze() -> None:
    """Charge on while a restore is compared with the gateways."""

    async def yes(_tx: Tx) -> bool:
        return True

    frozen_accounts.may_charge = yes


def ids_by_chance() -> None:
    """Give invoices ids that do not tell what they bill."""

    def by_chance(at: Any, billed: Any) -> Any:
        return ids.new_ids(at, len(list(billed)))

    ids.invoice_ids = by_chance


def forget_the_account() -> None:
    """Read invoices without comparing their account."""
    for columns in ("v.invoice_id, v.subscription_id", "i.invoice_id, i.item_id"):
        for table in "vscip":
            weaken(f"SELECT {columns}", f"{table}.account_id = $1", "$1::uuid IS NOT NULL")


def bind_no_ciphertext() -> None:
    """Seal without saying for which row."""

    def nothing(*_args: object, **_kwargs: object) -> bytes:
        return b""

    vault._bound_to = nothing


def seal_nothing() -> None:
    """Keep secrets as they are."""

    def seal(self: Vault, plain: bytes, **_place: object) -> bytes:
        return self.sealing_id + plain

    def opened(self: Vault, sealed: bytes, **_place: object) -> bytes:
        return sealed[len(self.sealing_id) :]

    Vault.seal, Vault.open = seal, opened


def let_revoked_keys_in() -> None:
    """Do not look whether an API key was revoked."""
    weaken("SELECT a.account_id, a.mode, a.currency, a.clock_offset, k", " AND k.revoked_at IS NULL", "")


def one_place_for_all() -> None:
    """Push to one endpoint at a time, whoever's it is."""
    for lane in LANES:
        if lane.name in {"push", "probe"}:
            object.__setattr__(lane, "batches_at_once", 1)
