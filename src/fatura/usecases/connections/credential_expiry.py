"""Tell the merchant before the credentials of a gateway connection expire (D-268)."""

from datetime import timedelta

from fatura.observability import log
from fatura.store.connections import connection_health
from fatura.store.connections.connections import StoredConnection
from fatura.usecases.transaction import Work
from fatura.views.events import ConnectionDataView
from fatura.views.integration import ConnectionView

TELL_BEFORE = timedelta(days=30)


async def tell(work: Work, stored: StoredConnection) -> None:
    """Emit `connection.credentials_expiring` once for each expiry, from TELL_BEFORE on. Log a warning each time."""
    connection = stored.connection
    expire_at = connection.credentials_expire_at
    if expire_at is None or expire_at - TELL_BEFORE > work.now:
        return
    connection_id = connection.connection_id
    log.warning("gateway.credentials_expire", connection_id=str(connection_id), at=expire_at.isoformat())
    if await connection_health.note_expiry(work.tx, connection_id, expire_at):
        view = ConnectionView.of(
            connection, stored.health, settings=stored.settings, paused_at=stored.paused_at
        )
        work.emit("connection.credentials_expiring", ConnectionDataView(connection=view))
