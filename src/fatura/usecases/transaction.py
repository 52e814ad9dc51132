"""Run functions in a transaction of one account.

Before the commit, update the account's totals, and insert events and audit entries.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

import msgspec

from fatura import tracing
from fatura.domain import audit, quotas
from fatura.domain.account import Account
from fatura.domain.audit import AuditAction, NewEntry, Origin
from fatura.domain.calendar import local_date
from fatura.domain.credentials import Mode
from fatura.domain.errors import UNAUTHORIZED, EngineError
from fatura.domain.events import NewEvent
from fatura.ids import new_id, new_ids
from fatura.observability import add_to_logs
from fatura.store import counters
from fatura.store.accounts import accounts
from fatura.store.audit import entries
from fatura.store.counters import Counted
from fatura.store.db import (
    DatabaseUnavailableError,
    DeadlockError,
    LockTimeoutError,
    NoFreeConnectionError,
    Tx,
)
from fatura.store.webhooks import events
from fatura.usecases.audit_draft import AuditDraft, AuditError
from fatura.usecases.database_clock import WrongClockError
from fatura.usecases.deps import Deps
from fatura.views.erased import event_text
from fatura.views.events import DATA
from fatura.views.view import View

T = TypeVar("T")
P = ParamSpec("P")

DATABASE_FAILURES = (
    DatabaseUnavailableError,
    NoFreeConnectionError,
    DeadlockError,
    LockTimeoutError,
    WrongClockError,
)
"""Exceptions that any transaction may raise. Nothing was committed, unless the database failed during the commit."""
MAX_RUNS = 4
"""Maximum number of times that a transaction is run when every run ends in a deadlock."""


class LaneName(StrEnum):
    """A kind of background work; `workers.lanes` defines how it runs."""

    GENERATION = "generation"
    PRICING = "pricing"
    ISSUANCE = "issuance"
    RECONCILIATION = "reconciliation"
    SWEEP = "sweep"
    GATEWAY_PROBE = "gateway_probe"
    MIRRORING = "mirroring"
    PUSH = "push"
    PROBE = "probe"
    TEST_CLOCK = "test_clock"
    RETENTION = "retention"
    PROPAGATION = "propagation"
    ERASURE = "erasure"


@dataclass(slots=True)
class Work:
    """A running transaction; `now` is the account's time at the start, or at the most recent `refresh`.

    If `draft` is set, the transaction makes the change of a request or command. It commits only after `audit`,
    `audit_nothing` or `audit_later` was called.
    """

    deps: Deps
    tx: Tx
    account: Account
    now: datetime
    totals: Counter[str] = field(default_factory=Counter)
    pending_events: list[NewEvent] = field(default_factory=list)
    draft: AuditDraft | None = None
    is_audited: bool = False
    pending_entries: list[NewEntry] = field(default_factory=list)
    lanes_to_notify: dict[LaneName, timedelta] = field(default_factory=dict[LaneName, timedelta])
    event_numbers: str | None = None
    """The numbers of the emitted events, such as `12-15`, after `finish`."""

    @property
    def today(self) -> date:
        """Return the Sao Paulo date of `now`."""
        return local_date(self.now)

    async def refresh(self) -> None:
        """Set `now` to the current time after a wait for a lock.

        Otherwise, a change that was committed during the wait could be later than `now`. Raises WrongClockError,
        because the host's clock may have changed during the wait (D-5).
        """
        await check_clock(self.deps, self.tx)
        if self.account.mode is Mode.SANDBOX:
            self.account = await _reload(self.tx)
        self.now = self.account.now(self.deps.clock())

    def seal(self, plain: bytes, *, place: str, row_id: object) -> bytes:
        """Return `plain` encrypted, to be stored in the column `place` of the account's row `row_id`."""
        account_id = self.account.account_id
        return self.deps.vault.seal(plain, place=place, account_id=account_id, row_id=str(row_id))

    def open(self, sealed: bytes, *, place: str, row_id: object) -> bytes:
        """Decrypt a value that `seal` returned for the same column and row. Raises KeyRingError if this fails."""
        account_id = self.account.account_id
        return self.deps.vault.open(sealed, place=place, account_id=account_id, row_id=str(row_id))

    def new_id(self) -> UUID:
        """Return a new id with the timestamp `now`."""
        return new_id(self.now)

    def new_ids(self, count: int) -> list[UUID]:
        return new_ids(self.now, count)

    def emit(
        self, type_: str, data: View, *, subscription_id: UUID | None = None, invoice_id: UUID | None = None
    ) -> None:
        """Add an event, which `finish` inserts at the end of the transaction (D-37)."""
        assert type(data) is DATA[type_], (type_, data)
        new = NewEvent(type_, self.now, event_text(data), subscription_id, invoice_id)
        self.pending_events.append(new)

    def audit(
        self,
        resource_id: object,
        *,
        before: View | Mapping[str, Any] | None = None,
        after: View | Mapping[str, Any] | None = None,
        hidden: Collection[str] = (),
    ) -> None:
        """Complete the audit entry of the request or command; do nothing in the engine's own work (D-63).

        Pass the state of the resource before and after the change; the entry has only the fields that differ. `before`
        is None for a new resource, and `after` is None for a removed one. `hidden` are the names of changed fields that
        the entry lists without their values.
        """
        if self.draft is not None:
            if self.is_audited:
                raise AuditError("a request has one audit entry")
            self.is_audited = True
            origin, action = self.draft.origin, self.draft.action
            self.audit_for(origin, action, resource_id=resource_id, before=before, after=after, hidden=hidden)

    def audit_nothing(self) -> None:
        """Let the transaction commit without an audit entry: the request changes nothing, or its entry exists."""
        self.is_audited = True

    def audit_later(self) -> None:
        """Let the transaction commit without an audit entry: a later transaction completes the request."""
        self.draft = None

    def audit_for(
        self,
        origin: Origin,
        action: AuditAction,
        *,
        resource_id: object,
        before: View | Mapping[str, Any] | None = None,
        after: View | Mapping[str, Any] | None = None,
        hidden: Collection[str] = (),
    ) -> None:
        """Add an audit entry for a change by the engine itself, or by an earlier request that takes effect now.

        The other arguments are those of `audit`.
        """
        self.pending_entries.append(
            audit.new_entry(
                origin,
                action,
                resource_id=resource_id,
                before=_state(before),
                after=_state(after),
                hidden=hidden,
            )
        )

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None]:
        """If the block raises, undo its changes. The transaction can continue, except after DATABASE_FAILURES."""
        events, totals = len(self.pending_events), self.totals.copy()
        audited, is_audited = len(self.pending_entries), self.is_audited
        try:
            async with self.tx.savepoint():
                yield
        except Exception:
            del self.pending_events[events:]
            del self.pending_entries[audited:]
            self.totals, self.is_audited = totals, is_audited
            raise

    def notify(self, *lanes: LaneName, after: timedelta = timedelta()) -> None:
        """Notify the workers of these lanes when `after` has passed since the commit."""
        for lane in lanes:
            self.lanes_to_notify[lane] = min(after, self.lanes_to_notify.get(lane, after))

    async def finish(self) -> None:
        """Update the totals, number the events and audit entries, and insert them.

        This must run last, because it locks the row of counters that all transactions of the account share (D-38).
        Raises EngineError: `engine.quota_exceeded` (D-245).
        """
        if self.draft is not None and not self.is_audited:
            raise AuditError(f"{self.draft.action.name} has no audit entry")
        if not self.pending_events and not self.pending_entries and not any(self.totals.values()):
            return
        counted = await counters.add(
            self.tx,
            events=len(self.pending_events),
            entries=len(self.pending_entries),
            now=self.now,
            deltas=self.totals,
        )
        quotas.check(self.deps.settings.quotas, added=self.totals, stored=counted.limited)
        if self.pending_events:
            first = counted.last_sequence - len(self.pending_events) + 1
            await events.append(
                self.tx,
                self.pending_events,
                ids=self.new_ids(len(self.pending_events)),
                first_sequence=first,
                stored_at=self.deps.clock(),
            )
            self.event_numbers = f"{first}-{counted.last_sequence}"
            self.notify(LaneName.PUSH)
        if self.pending_entries:
            await self._append_entries(counted)

    async def _append_entries(self, counted: Counted) -> None:
        assert counted.last_audited_at is not None, "the time of the new entries was stored"
        first = counted.last_audit_sequence - len(self.pending_entries) + 1
        for sequence, entry in enumerate(self.pending_entries, start=first):
            await entries.append(
                self.tx,
                entry,
                entry_id=self.new_id(),
                sequence=sequence,
                created_at=counted.last_audited_at,
                stored_at=self.deps.clock(),
            )


def _state(of: View | Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return msgspec.to_builtins(of) if isinstance(of, View) else of


async def check_clock(deps: Deps, tx: Tx) -> None:
    """Compare this host's clock with the database's before a write that depends on time. Raises WrongClockError."""
    await deps.clock.check(partial(deps.db.clock_time, tx))


@asynccontextmanager
async def open_work(
    deps: Deps, account: Account, *, snapshot: bool = False, draft: AuditDraft | None = None
) -> AsyncGenerator[Work]:
    """Open a transaction of an account. A sandbox account's clock offset is read in the same transaction.

    With `snapshot`, the transaction is read-only, and all its statements see the same state. With `draft`, the
    transaction must call `Work.audit`, `audit_nothing` or `audit_later`.
    Raises DATABASE_FAILURES; with `snapshot`, all of them except WrongClockError.
    """
    if draft is not None and draft.is_settled:
        raise AuditError("a request has one audit entry")
    async with deps.db.transaction(account.account_id, snapshot=snapshot) as tx:
        if not snapshot:
            await check_clock(deps, tx)
        if account.mode is Mode.SANDBOX:
            account = await _reload(tx)
        work = Work(deps, tx, account, account.now(deps.clock()), draft=draft)
        yield work
        await work.finish()
    if work.draft is not None:
        work.draft.settle()
    if work.event_numbers is not None:
        add_to_logs(events=work.event_numbers)
        tracing.current().set(fatura__events=work.event_numbers)
    for lane, after in work.lanes_to_notify.items():
        if after:
            asyncio.get_running_loop().call_later(after.total_seconds(), deps.notify, lane)
        else:
            deps.notify(lane)


async def in_transaction(
    deps: Deps,
    account: Account,
    function: Callable[Concatenate[Work, P], Awaitable[T]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Run `function(work, ...)` in one transaction; retry it after a deadlock.

    Raises what the function raises, and DATABASE_FAILURES.
    """
    return await run(deps, account, lambda work: function(work, *args, **kwargs))


async def in_audited_transaction(
    deps: Deps,
    account: Account,
    draft: AuditDraft | None,
    function: Callable[Concatenate[Work, P], Awaitable[T]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Run `function(work, ...)` like `in_transaction`.

    With a `draft`, `function` must call `Work.audit`. If it adds no entry, it must call `audit_nothing` or
    `audit_later`.

    Without a `draft`, the function runs for the engine itself.
    """
    return await run(deps, account, lambda work: function(work, *args, **kwargs), draft=draft)


async def in_snapshot(
    deps: Deps,
    account: Account,
    function: Callable[Concatenate[Work, P], Awaitable[T]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Run `function(work, ...)` in one read-only transaction, whose statements all see the same state.

    Raises what the function raises, and DATABASE_FAILURES except WrongClockError.
    """
    return await run(deps, account, lambda work: function(work, *args, **kwargs), snapshot=True)


async def run(
    deps: Deps,
    account: Account,
    function: Callable[[Work], Awaitable[T]],
    *,
    snapshot: bool = False,
    draft: AuditDraft | None = None,
) -> T:
    """Run `function(work)` like `in_transaction`; `snapshot` and `draft` have the same meaning as for `open_work`."""
    for number in range(1, MAX_RUNS + 1):
        try:
            async with open_work(deps, account, snapshot=snapshot, draft=draft) as work:
                return await function(work)
        except DeadlockError:
            if number == MAX_RUNS:
                raise
    raise AssertionError


async def load_account(deps: Deps, account_id: UUID) -> Account:
    async with deps.db.transaction(account_id, quick=True) as tx:
        return await _reload(tx)


async def _reload(tx: Tx) -> Account:
    account = await accounts.load(tx)
    if account is None:
        raise EngineError(UNAUTHORIZED, "The account does not exist.")
    return account
