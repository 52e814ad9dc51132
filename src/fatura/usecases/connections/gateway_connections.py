"""Add, change and list gateway connections, and create their adapters (D-43, D-44)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from fatura.domain.account import Account
from fatura.domain.connection import Connection
from fatura.domain.credentials import Mode
from fatura.domain.errors import (
    GATEWAY_ACCOUNT_CHANGED,
    TOO_MANY_CONNECTIONS,
    EngineError,
    invalid_fields,
    require,
)
from fatura.domain.gateway_health import HEALTHY
from fatura.domain.sweeping import next_sweep_at
from fatura.gateways import port
from fatura.gateways.checked import CheckedGateway
from fatura.observability import log
from fatura.store.catalog import mirrors
from fatura.store.charging import connection_sweeps
from fatura.store.charging import poll_rounds as stored_rounds
from fatura.store.connections import connection_health as stored_health
from fatura.store.connections import connections, reconciliation
from fatura.store.connections.connections import StoredConnection
from fatura.store.vault import KeyRingError
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.connections import connection_health, credential_checks, poll_rounds, providers
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import LaneName, Work, in_audited_transaction, in_transaction
from fatura.views.integration import (
    ConnectionListView,
    ConnectionView,
    IntegratedConnectionView,
    IntegrationView,
)

MAX_CONNECTIONS = 50
"""Maximum number of an account's connections. Every read of connections reads all of them (D-177)."""


@dataclass(frozen=True, slots=True)
class _Access:
    """A connection's decrypted credentials, and its settings including the secret ones."""

    credentials: Mapping[str, Any]
    settings: Mapping[str, Any]


def open_gateway(work: Work, stored: StoredConnection, *, is_probe: bool = False) -> ObservedGateway | None:
    """Return a connection's adapter. If its credentials cannot be decrypted, log an error and return None.

    Nothing is raised, so that one unusable connection does not stop work on the others.
    """
    connection = stored.connection
    try:
        adapter = _gateway(work, connection, _decrypted_access(work, stored))
    except KeyRingError as error:
        connection_id = str(connection.connection_id)
        log.error("gateway.credentials_unreadable", connection_id=connection_id, error=error)
        return None
    return ObservedGateway(adapter, connection, has_failures=stored.health != HEALTHY, is_probe=is_probe)


@dataclass(frozen=True, slots=True)
class OpenedConnection:
    """A connection, active or not, with its health and the result of `open_gateway`."""

    stored: StoredConnection
    gateway: ObservedGateway | None


async def open_for_calls(work: Work, connection_ids: Collection[UUID]) -> dict[UUID, OpenedConnection]:
    """Open connections that need a call now.

    If a connection's credentials cannot be decrypted, count a failed call, unless the connection is already failing.
    """
    opened = await open_gateways(work, connection_ids)
    for connection_id, each in sorted(opened.items()):
        if each.gateway is None and not each.stored.health.is_failing:
            await connection_health.count_unreadable(work, connection_id)
    return opened


async def open_gateways(
    work: Work, connection_ids: Collection[UUID], *, is_probe: bool = False
) -> dict[UUID, OpenedConnection]:
    """Open the connections with these ids. With `is_probe`, their calls count as calls of a probe."""
    return {
        stored.connection.connection_id: OpenedConnection(
            stored, open_gateway(work, stored, is_probe=is_probe)
        )
        for stored in await connections.find_all(work.tx)
        if stored.connection.connection_id in connection_ids
    }


def _gateway(work: Work, connection: Connection, access: _Access) -> CheckedGateway:
    config = port.ConnectionConfig(
        account_id=work.account.account_id,
        connection_id=connection.connection_id,
        settings=access.settings,
        credentials=access.credentials,
        now=work.now,
    )
    adapter = work.deps.providers[connection.provider].factory(config)
    return CheckedGateway(adapter, currency=work.account.currency, now=work.now)


def _decrypted_access(work: Work, stored: StoredConnection) -> _Access:
    row_id = stored.connection.connection_id
    plain = work.open(stored.credentials_sealed, place=connections.CREDENTIALS_PLACE, row_id=row_id)
    secret = msgspec.json.decode(plain)
    return _Access(secret.get("credentials", {}), {**stored.settings, **secret.get("settings", {})})


async def connect(
    work: Work,
    *,
    provider: str,
    label: str | None,
    credentials: Mapping[str, Any],
    settings: Mapping[str, Any],
    provider_account: str | None,
) -> ConnectionView:
    """Add a connection. `provider_account` is the result of an earlier call of `check_new` (D-43, D-59).

    Raises EngineError: `engine.too_many_connections`.
    """
    if await connections.lock_count(work.tx) >= MAX_CONNECTIONS:
        raise EngineError(
            TOO_MANY_CONNECTIONS,
            f"An account has at most {MAX_CONNECTIONS} gateway connections; change one of them instead.",
            meta={"limit": MAX_CONNECTIONS},
        )
    account_id = work.account.account_id
    connection = Connection(
        connection_id=work.deps.tagger.tagged_connection_id(work.new_id(), account_id=account_id),
        provider=provider,
        label=label,
        active=True,
        issues_charges=False,
        methods=(),
        max_installments=1,
        product_catalog=False,
        refunds=False,
        created_at=work.now,
    )
    stored = _with_access(work, connection, _Access(credentials, settings))
    stored = replace(stored, provider_account=provider_account)
    await connections.insert(work.tx, stored)
    first_sweep_at = next_sweep_at(connection.connection_id, now=work.now)
    await connection_sweeps.insert(
        work.tx, connection.connection_id, created_at=work.now, next_sweep_at=first_sweep_at
    )
    await _enqueue_catalog(work, stored.connection)
    view = ConnectionView.of(stored.connection, settings=stored.settings)
    work.audit(
        connection.connection_id,
        after=_audited(view),
        hidden=_hidden(work, connection, settings, {"credentials": credentials}),
    )
    return view


def _with_access(work: Work, connection: Connection, access: _Access) -> StoredConnection:
    """Return the connection with its adapter's capabilities, and with its secrets encrypted."""
    capabilities = _capabilities(_gateway(work, connection, access))
    connection = replace(
        connection,
        issues_charges=capabilities.issues_charges,
        methods=capabilities.methods,
        max_installments=capabilities.max_installments,
        product_catalog=capabilities.product_catalog,
        min_amount_cents=capabilities.min_amount_cents,
        min_installment_cents=capabilities.min_installment_cents,
        refunds=capabilities.refunds != "none",
        credentials_expire_at=capabilities.credentials_expire_at,
    )
    hidden = work.deps.providers[connection.provider].secret_settings
    secret = {name: value for name, value in access.settings.items() if name in hidden}
    text = msgspec.json.encode({"credentials": access.credentials, "settings": secret})
    sealed = work.seal(text, place=connections.CREDENTIALS_PLACE, row_id=connection.connection_id)
    plain = {name: value for name, value in access.settings.items() if name not in hidden}
    return StoredConnection(connection, plain, sealed, polls_per_minute=capabilities.polls_per_minute)


def _capabilities(gateway: port.Gateway) -> port.Capabilities:
    try:
        return gateway.capabilities()
    except port.GatewaySettingsError as error:
        raise invalid_fields(*error.fields) from None


async def check_new(
    deps: Deps,
    account: Account,
    *,
    provider: str,
    credentials: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> str | None:
    """Check the settings of a new connection, and ask the provider to check its credentials (D-43).

    Call this outside a transaction. Return the provider's id of the account to which the credentials belong, or None
    if the provider has no such id.
    Raises EngineError: `engine.invalid_request`, `engine.rate_limited`, `engine.unavailable`,
    `engine.account_suspended`.
    """
    offered = providers.offered(deps, account)
    known = offered.get(provider)
    if known is None:
        raise invalid_fields(("provider", f"must be one of {', '.join(offered)}"))
    now = account.now(deps.clock())
    gateway = known.factory(
        port.ConnectionConfig(account.account_id, UUID(int=0), settings, credentials, now)
    )
    _capabilities(gateway)
    return await credential_checks.check(deps, account, gateway)


async def patch(
    deps: Deps,
    account: Account,
    connection_id: UUID,
    changes: Mapping[str, Any],
    *,
    draft: AuditDraft | None,
) -> ConnectionView:
    """Change a connection's label, credentials, `active` flag or individual settings (D-34, D-43, D-46).

    If the connection may work again after the change, the invoices that wait for it become due, spread over time. But
    a connection that is failing and gets no new credentials is probed first.
    Raises EngineError: `engine.not_found`, `engine.invalid_request`, `engine.gateway_account_changed`,
    `engine.rate_limited`, `engine.unavailable`, `engine.account_suspended`.
    """
    found = None
    if "credentials" in changes or "settings" in changes:
        gateway = await in_transaction(deps, account, _changed_gateway, connection_id, changes)
        _capabilities(gateway)
        found = await credential_checks.check(deps, account, gateway)
    return await in_audited_transaction(
        deps, account, draft, _write_changes, connection_id, changes, provider_account=found
    )


async def _changed_gateway(work: Work, connection_id: UUID, changes: Mapping[str, Any]) -> port.Gateway:
    stored = require(await connections.find(work.tx, connection_id), "gateway connection", id_=connection_id)
    return _gateway(work, stored.connection, _access_after(work, stored, changes))


async def _write_changes(
    work: Work, connection_id: UUID, changes: Mapping[str, Any], *, provider_account: str | None
) -> ConnectionView:
    stored = require(await connections.lock(work.tx, connection_id), "gateway connection", id_=connection_id)
    _refuse_other_account(stored, provider_account)
    before = stored.connection
    connection = replace(
        before, label=changes.get("label", before.label), active=changes.get("active", before.active)
    )
    changed = replace(stored, connection=connection)
    has_new_access = "credentials" in changes or "settings" in changes
    if has_new_access:
        changed = _with_access(work, connection, _access_after(work, stored, changes))
    changed = replace(changed, provider_account=stored.provider_account or provider_account)
    if "settings" in changes and work.account.mode is Mode.SANDBOX:
        await _poll_all(work, connection_id)
    await connections.update(work.tx, changed)
    await _update_health(work, stored, connection, changes)
    if has_new_access or "active" in changes:
        await _enqueue_catalog(work, changed.connection)
    after = require(await connections.find(work.tx, connection_id), "gateway connection", id_=connection_id)
    view = shown(after)
    work.audit(
        connection_id,
        before=_audited(shown(stored)),
        after=_audited(view),
        hidden=_hidden(work, before, changes.get("settings", {}), changes),
    )
    return view


def _audited(view: ConnectionView) -> Mapping[str, Any]:
    """Return the state of a connection for the audit log, without its health, which no request sets."""
    state = msgspec.to_builtins(view)
    del state["health"]
    return state


def _hidden(
    work: Work, connection: Connection, settings: Mapping[str, Any], changes: Mapping[str, Any]
) -> Collection[str]:
    """Return the names of the secrets that a request sets, for the audit log."""
    secret = work.deps.providers[connection.provider].secret_settings & settings.keys()
    return sorted({"credentials"} & changes.keys()) + [f"settings.{name}" for name in sorted(secret)]


async def _poll_all(work: Work, connection_id: UUID) -> None:
    """Request a round of polls now, because new settings of the sandbox change what its payers do (D-46, D-190)."""
    if await stored_rounds.unpaid(work.tx, after=None, limit=1):
        await poll_rounds.request(work, connection_id, pause=timedelta(0))


def _refuse_other_account(stored: StoredConnection, provider_account: str | None) -> None:
    """Refuse credentials of another account at the provider, where the connection's charges do not exist (D-59).

    Raises EngineError: `engine.gateway_account_changed`.
    """
    if (
        None not in {stored.provider_account, provider_account}
        and stored.provider_account != provider_account
    ):
        route = f"POST /v1/integration/gateways/{stored.connection.connection_id}/move"
        raise EngineError(
            GATEWAY_ACCOUNT_CHANGED,
            "The credentials belong to another account at the provider; create another connection for that account, "
            f"and move the subscriptions to it with {route}.",
        )


async def _update_health(
    work: Work, before: StoredConnection, after: Connection, changes: Mapping[str, Any]
) -> None:
    """Update the health of a connection after a request has changed the connection (D-55).

    - After a deactivation, store its time. After an activation, remove this time.
    - After new credentials, treat the connection as working.
    - After new settings or an activation without new credentials, probe the connection now if it is failing.

    If the connection is then active and not failing, new credentials, new settings and an activation also make its
    waiting invoices due.
    """
    is_activated = after.active and not before.connection.active
    if after.active is not before.connection.active:
        paused_at = None if after.active else work.now
        await stored_health.set_paused(work.tx, after.connection_id, paused_at=paused_at)
    if "credentials" in changes:
        await connection_health.recover(work, after.connection_id)
    elif before.health.is_failing and (is_activated or "settings" in changes):
        await connection_health.probe_now(work, after.connection_id)
        return
    if after.active and (is_activated or "credentials" in changes or "settings" in changes):
        await connection_health.wake(work, after.connection_id)


def shown(stored: StoredConnection) -> ConnectionView:
    return ConnectionView.of(
        stored.connection, stored.health, settings=stored.settings, paused_at=stored.paused_at
    )


def _access_after(work: Work, stored: StoredConnection, changes: Mapping[str, Any]) -> _Access:
    """Return the credentials and settings with `changes` applied.

    Raises EngineError if the stored credentials cannot be decrypted and `changes` has no new ones.
    """
    try:
        known = _decrypted_access(work, stored)
    except KeyRingError:
        if "credentials" not in changes:
            raise invalid_fields(
                ("credentials", "must be sent again: the stored ones cannot be decrypted")
            ) from None
        known = _Access({}, stored.settings)
    return _Access(
        changes.get("credentials", known.credentials), {**known.settings, **changes.get("settings", {})}
    )


async def _enqueue_catalog(work: Work, connection: Connection) -> None:
    """If the connection is active and has a product catalog, schedule the mirroring of the account's products."""
    if not (connection.active and connection.product_catalog):
        return
    if await mirrors.enqueue_catalog(work.tx, connection.connection_id, now=work.now):
        work.notify(LaneName.MIRRORING)


async def read_all(work: Work) -> ConnectionListView:
    """Return the account's connections, oldest first (D-43)."""
    found = await connections.find_all(work.tx)
    return ConnectionListView(data=[shown(stored) for stored in found])


async def integration(work: Work) -> IntegrationView:
    """Return the account, and its gateway connections with the progress of their reconciliation (spec 4.6, D-269)."""
    found = await reconciliation.find_all(work.tx, now=work.now, real_now=work.deps.clock())
    shown_ones = [
        IntegratedConnectionView.with_reconciliation(shown(each), found[each.connection.connection_id])
        for each in await connections.find_all(work.tx)
    ]
    return IntegrationView.of(work.account, shown_ones)
