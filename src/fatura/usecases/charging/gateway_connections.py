"""Add, change and list gateway connections, and create their adapters (D-43, D-44)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import msgspec

from fatura.domain.account import Account
from fatura.domain.connection import Connection
from fatura.domain.errors import invalid_fields, require
from fatura.gateways import port
from fatura.observability import log
from fatura.store.catalog import mirrors
from fatura.store.charging import charge_polling, connections
from fatura.store.charging.connections import StoredConnection
from fatura.store.vault import KeyRingError
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import LaneName, Work, in_transaction
from fatura.views.integration import ConnectionListView, ConnectionView, IntegrationView


@dataclass(frozen=True, slots=True)
class _Access:
    """A connection's decrypted credentials, and its settings including the secret ones."""

    credentials: Mapping[str, Any]
    settings: Mapping[str, Any]


def open_gateway(work: Work, stored: StoredConnection) -> port.Gateway | None:
    """Return a connection's adapter. If its credentials cannot be decrypted, log an error and return None.

    Nothing is raised, so that one unusable connection does not stop work on the others.
    """
    try:
        return _gateway(work, stored.connection, _decrypted_access(work, stored))
    except KeyRingError as error:
        connection_id = str(stored.connection.connection_id)
        log.error("gateway.credentials_unreadable", connection_id=connection_id, error=str(error))
        return None


async def open_gateways(
    work: Work, connection_ids: Collection[UUID]
) -> dict[UUID, tuple[Connection, port.Gateway | None]]:
    """Return the connections with these ids, active or not, each with the result of `open_gateway`."""
    return {
        stored.connection.connection_id: (stored.connection, open_gateway(work, stored))
        for stored in await connections.find_all(work.tx)
        if stored.connection.connection_id in connection_ids
    }


def _gateway(work: Work, connection: Connection, access: _Access) -> port.Gateway:
    config = port.ConnectionConfig(
        account_id=work.account.account_id,
        connection_id=connection.connection_id,
        settings=access.settings,
        credentials=access.credentials,
        now=work.now,
    )
    return work.deps.providers[connection.provider].factory(config)


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
) -> ConnectionView:
    """Add a connection. Call `check_new` before the transaction (D-43)."""
    connection = Connection(
        connection_id=work.new_id(),
        provider=provider,
        label=label,
        active=True,
        issues_charges=False,
        methods=(),
        max_installments=1,
        product_catalog=False,
        created_at=work.now,
    )
    stored = _with_access(work, connection, _Access(credentials, settings))
    await connections.insert(work.tx, stored)
    await _follow_up(work, stored.connection, may_work_again=False)
    return ConnectionView.of(stored.connection)


def _with_access(work: Work, connection: Connection, access: _Access) -> StoredConnection:
    """Return the connection with its adapter's capabilities, and with its secrets encrypted."""
    capabilities = _capabilities(_gateway(work, connection, access))
    connection = replace(
        connection,
        issues_charges=capabilities.issues_charges,
        methods=capabilities.methods,
        max_installments=capabilities.max_installments,
        product_catalog=capabilities.product_catalog,
    )
    hidden = work.deps.providers[connection.provider].secret_settings
    secret = {name: value for name, value in access.settings.items() if name in hidden}
    text = msgspec.json.encode({"credentials": access.credentials, "settings": secret})
    sealed = work.seal(text, place=connections.CREDENTIALS_PLACE, row_id=connection.connection_id)
    plain = {name: value for name, value in access.settings.items() if name not in hidden}
    return StoredConnection(connection, plain, sealed)


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
) -> None:
    """Check the settings, and ask the provider to check the credentials. Call it outside a transaction (D-43).

    Raises EngineError: `engine.invalid_request`.
    """
    known = deps.providers.get(provider)
    if known is None or account.mode not in known.modes:
        offered = sorted(name for name, entry in deps.providers.items() if account.mode in entry.modes)
        only = f"must be one of {', '.join(offered)}" if offered else "there is none yet for live accounts"
        raise invalid_fields(("provider", only))
    now = account.now(deps.clock())
    gateway = known.factory(
        port.ConnectionConfig(account.account_id, UUID(int=0), settings, credentials, now)
    )
    _capabilities(gateway)
    await _check_credentials(gateway)


async def _check_credentials(gateway: port.Gateway) -> None:
    """Ask the provider to check the credentials. Raises EngineError: `engine.invalid_request`."""
    try:
        await gateway.check_credentials()
    except port.AuthFailedError:
        raise invalid_fields(("credentials", "were refused by the gateway; check them there")) from None
    except port.TransientError as error:
        raise invalid_fields(
            ("credentials", f"could not be checked at the gateway, try again: {error}")
        ) from None


async def patch(
    deps: Deps, account: Account, connection_id: UUID, changes: Mapping[str, Any]
) -> ConnectionView:
    """Change a connection's label, credentials, `active` flag or individual settings (D-34, D-43, D-46).

    If the change may make the connection work again, invoices that wait for it are retried immediately.
    Raises EngineError: `engine.not_found`, `engine.invalid_request`.
    """
    if "credentials" in changes:
        gateway = await in_transaction(deps, account, _changed_gateway, connection_id, changes)
        _capabilities(gateway)
        await _check_credentials(gateway)
    return await in_transaction(deps, account, _write_changes, connection_id, changes)


async def _changed_gateway(work: Work, connection_id: UUID, changes: Mapping[str, Any]) -> port.Gateway:
    stored = require(await connections.lock(work.tx, connection_id), "gateway connection", id_=connection_id)
    return _gateway(work, stored.connection, _access_after(work, stored, changes))


async def _write_changes(work: Work, connection_id: UUID, changes: Mapping[str, Any]) -> ConnectionView:
    stored = require(await connections.lock(work.tx, connection_id), "gateway connection", id_=connection_id)
    before = stored.connection
    connection = replace(
        before, label=changes.get("label", before.label), active=changes.get("active", before.active)
    )
    changed = replace(stored, connection=connection)
    has_new_access = "credentials" in changes or "settings" in changes
    if has_new_access:
        changed = _with_access(work, connection, _access_after(work, stored, changes))
    await connections.update(work.tx, changed)
    may_work_again = has_new_access or (connection.active and not before.active)
    await _follow_up(work, changed.connection, may_work_again=may_work_again)
    return ConnectionView.of(changed.connection)


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


async def _follow_up(work: Work, connection: Connection, *, may_work_again: bool) -> None:
    """Schedule the copy of the catalog to an active connection.

    With `may_work_again`, also make the connection's invoices due for issuing and its charges due for polling.
    """
    if not connection.active:
        return
    if connection.product_catalog and await mirrors.enqueue_catalog(
        work.tx, connection.connection_id, now=work.now
    ):
        work.notify(LaneName.MIRRORING)
    if may_work_again:
        await charge_polling.make_connection_due(work.tx, connection.connection_id, now=work.now)
        work.notify(LaneName.ISSUANCE, LaneName.RECONCILIATION)


async def read_all(work: Work) -> ConnectionListView:
    """Return the account's connections, oldest first (D-43)."""
    found = await connections.find_all(work.tx)
    return ConnectionListView(data=[ConnectionView.of(stored.connection) for stored in found])


async def integration(work: Work) -> IntegrationView:
    """Return the account and its gateway connections (spec 4.6)."""
    return IntegrationView.of(work.account, (await read_all(work)).data)
