"""Ask a provider whether it still accepts a connection's stored credentials (D-259)."""

from functools import partial
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.errors import account_suspended, require
from fatura.domain.gateway_health import CallError
from fatura.gateways import port
from fatura.store import suspension
from fatura.store.connections import connections
from fatura.usecases.connections import connection_health, gateway_connections
from fatura.usecases.connections.gateway_connections import OpenedConnection
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_transaction
from fatura.views.integration import ConnectionView
from fatura.views.providers import ConnectionCheckView


async def check(deps: Deps, account: Account, connection_id: UUID) -> ConnectionCheckView:
    """Check the credentials, and count the result towards the connection's health.

    A connection has one check at a time. Requests that arrive meanwhile share the next check.
    Raises EngineError: `engine.not_found`, `engine.rate_limited`, `engine.account_suspended`.
    """
    key = account.account_id, connection_id
    return await deps.connection_checks.get(partial(_check, deps, account, connection_id), group=key, key=key)


async def _check(deps: Deps, account: Account, connection_id: UUID) -> ConnectionCheckView:
    with deps.gateway_requests.one(account.account_id):
        opened = await in_transaction(deps, account, _open, connection_id)
        error = await _ask(deps, account, opened)
        view = await in_transaction(deps, account, _view, connection_id)
    return ConnectionCheckView.of(view, error)


async def _open(work: Work, connection_id: UUID) -> OpenedConnection:
    # check this again: the account may have been suspended after the request was admitted
    if not await suspension.may_work(work.tx):
        raise account_suspended()
    found = await gateway_connections.open_for_calls(work, [connection_id])
    return require(found.get(connection_id), "gateway connection", id_=connection_id)


async def _ask(deps: Deps, account: Account, opened: OpenedConnection) -> CallError | None:
    gateway = opened.gateway
    if gateway is None:
        return connection_health.UNREADABLE.error
    try:
        await gateway.check_credentials()
    except (port.GatewayError, TimeoutError) as error:
        return gateway.why(error)
    finally:
        await connection_health.record_check(deps, account, gateway, used=opened.stored)
    return None


async def _view(work: Work, connection_id: UUID) -> ConnectionView:
    stored = require(await connections.find(work.tx, connection_id), "gateway connection", id_=connection_id)
    return gateway_connections.shown(stored)
