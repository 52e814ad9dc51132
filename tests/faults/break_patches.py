"""Functions that each disable one mechanism of the engine in this process (see `breaks`).

Each function replaces functions or constants of the engine, or changes SQL statements just before they are sent. The
docstring of each function names the fault run that must detect the missing mechanism.
"""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from fatura import ids
from fatura.api.http import replies
from fatura.domain import gateway_health, invoice
from fatura.domain.payments import EntryKind, PaymentEntry
from fatura.domain.refunds import RefundRequest
from fatura.gateways.port import TransientError, UnknownOutcomeError
from fatura.signature import PREFIX
from fatura.store import counters, open_transaction, vault
from fatura.store.charging import spacing
from fatura.store.counters import Counted
from fatura.store.db import Tx
from fatura.store.restore import frozen_accounts
from fatura.store.subscriptions import subscriptions
from fatura.store.vault import Vault
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.charging import gateway_calls, issuance, reservation, retries
from fatura.usecases.connections import gateway_connections
from fatura.usecases.idempotency import IdempotentRequest, StoredAnswer, execute_once, find_answer
from fatura.usecases.payments import gateway_payments, refund_answers
from fatura.usecases.payments.gateway_payments import ChargeAnswer
from fatura.usecases.reconciliation import sweep
from fatura.usecases.transaction import Work
from fatura.usecases.webhooks import delivery
from fatura.workers.lanes import LANES

STORE = Path(vault.__file__).parent
Put = Callable[[Any, str, Any], None]
"""A function that sets an attribute: permanently (`setattr`) or for one test (`monkeypatch.setattr`)."""

PATCHES: dict[str, Callable[[], None]] = {}
"""The functions decorated with `_break`. The key is the function's name with hyphens, such as `long-lease`."""

Patch = TypeVar("Patch", bound=Callable[..., None])


def _break(patch: Patch) -> Patch:
    PATCHES[patch.__name__.replace("_", "-")] = patch
    return patch


def weaken(statement: str, old: str, new: str, *, put: Put = setattr) -> None:
    """Replace the text `old` by `new` in every SQL statement that begins with `statement`."""
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
    """After a charge request with an unknown outcome, repeat the request without a look-up.

    The runs `crashes` and `providers` detect this.
    """

    def may(*_args: object, **_kwargs: object) -> bool:
        return True

    reservation._may_repeat = may


@_break
def trust_first_lookup() -> None:
    """Treat a charge as absent after one empty look-up, even if the look-up follows the request immediately.

    The run `gateway` detects this.
    """
    retries.LOOKUP_COUNTS_AFTER = timedelta(0)
    retries.EMPTY_LOOKUPS_NEEDED = 1


@_break
def skip_lease_check() -> None:
    """Let a worker send a charge request after its lease has expired. The run `gateway` detects this."""
    gateway_calls.SEND_WITHIN_SECONDS = 3600


@_break
def ignore_lease(*, put: Put = setattr) -> None:
    """Claim invoices that another worker has leased. The run `orders` detects this."""
    weaken(
        "WITH due AS MATERIALIZED ( SELECT x.invoice_id",
        "AND (x.lease_until IS NULL OR x.lease_until <= $3 OR x.lease_until > $6)",
        "AND $3::timestamptz < $6::timestamptz",
        put=put,
    )


@_break
def long_lease() -> None:
    """Lease invoices for almost three minutes instead of at most 60 seconds. The run `crashes` detects this."""
    issuance.LEASE = timedelta(seconds=170)


@_break
def cancel_without_lock(*, put: Put = setattr) -> None:
    """Cancel a subscription without locking its row. The run `orders` detects this."""
    put(subscriptions, "lock", subscriptions.find)


@_break
def ignore_idempotency_keys() -> None:
    """Execute every request as if it had no Idempotency-Key. The run `crashes` detects this."""
    execute: Any = replies.execute_once

    async def always(deps: Any, account: Any, request: Any, *rest: Any, **named: Any) -> Any:
        return await execute(deps, account, None, *rest, **named)

    replies.execute_once = always


@_break
def store_keys_separately() -> None:
    """Store the Idempotency-Key in a second transaction, after the effect is committed.

    The run `crashes` detects this.
    """

    async def apart(
        deps: Any,
        account: Any,
        request: IdempotentRequest | None,
        effect: Callable[[Work], Awaitable[Any]],
        *,
        status: int,
        draft: AuditDraft | None,
        holds_secret: bool = False,
    ) -> StoredAnswer:
        del holds_secret
        stored = await find_answer(deps, account, request)
        if stored is not None:
            return stored
        answer = await execute_once(deps, account, None, effect, status=status, draft=draft)

        async def keep(work: Work) -> Any:
            return json.loads(answer.body)

        if request is not None:
            await execute_once(deps, account, request, keep, status=status, draft=None)
        return answer

    replies.execute_once = apart


@_break
def number_events_by_sequence() -> None:
    """Number events by a PostgreSQL sequence instead of the counter row. The run `orders` detects this.

    With this break, a transaction gets the numbers of its events before it locks the counter row. Transactions may
    therefore commit in another order than that of the numbers.
    """
    add = counters.add

    async def by_sequence(tx: Tx, *, events: int, **others: Any) -> Counted:
        last = await tx.fetchval("SELECT next_event_number($1, $2)", events)
        counted = await add(tx, events=0, **others)
        shown = "UPDATE account_counter c SET last_sequence = greatest(c.last_sequence, $2) WHERE c.account_id = $1"
        await tx.execute(shown, last)
        return replace(counted, last_sequence=last)

    counters.add = by_sequence


@_break
def push_out_of_order() -> None:
    """Deliver the events of one invoice concurrently. The run `simulator` detects this."""
    weaken(
        "SELECT d.sequence, e.event_id",
        "AND d.waits IS NOT TRUE AND NOT EXISTS ( SELECT FROM delivery b WHERE b.account_id = $1"
        " AND b.ordered_by = d.ordered_by AND b.sequence < d.sequence AND b.next_attempt_at IS NOT NULL )",
        "",
    )


@_break
def sign_with_wrong_secret() -> None:
    """Sign webhooks with a wrong secret. The run `simulator` detects this."""

    async def anything(_work: Work) -> tuple[str, ...]:
        return (f"{PREFIX}{'A' * 43}=",)

    delivery.signing_secrets = anything


@_break
def round_down() -> None:
    """Round every fraction of a cent down. The run `simulator` detects this."""

    def down(monthly_price_cents: int, *, months: int, discount_percent: int) -> int:
        return months * monthly_price_cents * (100 - discount_percent) // 100

    invoice.item_amount_cents = down


@_break
def drop_second_payment() -> None:
    """Record only the first payment of a charge. The run `simulator` detects this."""
    new_entries = gateway_payments.new_entries

    async def first_only(work: Work, answers: Sequence[ChargeAnswer]) -> Sequence[PaymentEntry]:
        later = {
            entry.reference
            for answer in answers
            for entry in [each for each in answer.charge.entries if each.kind is EntryKind.PAYMENT][1:]
        }
        return [each for each in await new_entries(work, answers) if each.reference not in later]

    gateway_payments.new_entries = first_only


@_break
def count_refund_twice() -> None:
    """Double the field `refundedCents` of every invoice. The run `simulator` detects this."""
    weaken(
        "SELECT v.invoice_id, v.subscription_id, v.cycle, v.status",
        "sum(e.amount_cents) FILTER (WHERE e.kind = 'refund')",
        "2 * sum(e.amount_cents) FILTER (WHERE e.kind = 'refund')",
    )


@_break
def send_refunds_again() -> None:
    """If the answer to a refund request is lost, send the request again.

    The runs `simulator` and `gateway` detect this.
    """
    plain = refund_answers.after_sending

    async def trusting(work: Work, current: RefundRequest, answer: Any) -> None:
        is_lost = isinstance(answer, UnknownOutcomeError | TimeoutError)
        await plain(work, current, TransientError("not made") if is_lost else answer)

    refund_answers.after_sending = trusting


@_break
def sweep_nothing() -> None:
    """Make the nightly sweep ignore every difference that it finds. The run `simulator` detects this."""

    async def nothing(*_args: object) -> Counter[str]:
        return Counter()

    sweep._act_on_known = sweep._act_on_unmatched = nothing


@_break
def issue_all_at_once() -> None:
    """Issue all waiting invoices of a subscription at the same time, instead of 24 hours apart.

    The run `simulator` detects this.
    """

    async def nothing(*_args: object, **_kwargs: object) -> Sequence[object]:
        return []

    spacing.uncharged = nothing


@_break
def trust_any_provider_account() -> None:
    """Accept new credentials that belong to another account at the provider. The run `simulator` detects this."""
    gateway_connections._refuse_other_account = lambda *_args: None


@_break
def hide_failing_connections() -> None:
    """Emit no event when the calls to a gateway fail for hours. The run `simulator` detects this."""
    gateway_health.EMIT_AFTER = timedelta(days=365)


@_break
def trust_any_commit() -> None:
    """Accept a COMMIT although the server warns that no standby confirmed it. The run `failover` detects this."""

    async def commit(connection: Any) -> None:
        await connection.execute("COMMIT")

    open_transaction.commit = commit


@_break
def commit_refused_requests() -> None:
    """Commit the writes of a refused request instead of rolling them back. The run `bad-requests` detects this."""

    async def keep(connection: Any) -> None:
        await connection.execute("COMMIT")

    open_transaction.roll_back = keep


@_break
def charge_during_restore() -> None:
    """Continue to create charges of an account while `fatura restored` has frozen the account.

    The run `restore` detects this.
    """

    async def yes(_tx: Tx) -> bool:
        return True

    frozen_accounts.may_charge = yes


@_break
def random_invoice_ids() -> None:
    """Make invoice ids random instead of deriving them from subscription and cycle. The run `restore` detects this."""

    def by_chance(at: Any, billed: Any) -> Any:
        return ids.new_ids(at, len(list(billed)))

    ids.invoice_ids = by_chance


@_break
def read_any_account() -> None:
    """Let each account read the invoices of all accounts. The run `probes` detects this.

    This function removes the comparison with the account's id from queries. For this break, `breaks` also disables Row
    Level Security.
    """
    for columns in ("v.invoice_id, v.subscription_id", "i.invoice_id, i.item_id"):
        for table in "vscip":
            weaken(f"SELECT {columns}", f"{table}.account_id = $1", "$1::uuid IS NOT NULL")


@_break
def unbind_ciphertexts() -> None:
    """Encrypt secrets without binding a ciphertext to its row, so that the ciphertext can be decrypted in other rows.

    The run `secrets` detects this.
    """

    def nothing(*_args: object, **_kwargs: object) -> bytes:
        return b""

    vault._bound_to = nothing


@_break
def store_plain_secrets() -> None:
    """Store secrets without encryption. The run `secrets` detects this."""

    def seal(self: Vault, plain: bytes, **_place: object) -> bytes:
        return self.sealing_id + plain

    def opened(self: Vault, sealed: bytes, **_place: object) -> bytes:
        return sealed[len(self.sealing_id) :]

    Vault.seal, Vault.open = seal, opened


@_break
def accept_revoked_keys() -> None:
    """Accept revoked API keys. The run `secrets` detects this."""
    weaken("SELECT a.account_id, a.mode, a.currency, a.clock_offset, k", " AND k.revoked_at IS NULL", "")


@_break
def one_push_at_a_time() -> None:
    """Call only one webhook endpoint at a time. The run `neighbours` detects this."""
    for lane in LANES:
        if lane.name in {"push", "probe"}:
            object.__setattr__(lane, "batches_at_once", 1)
