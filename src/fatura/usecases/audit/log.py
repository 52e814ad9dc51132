"""Read the audit log, oldest entries first. A cursor never skips an entry (D-63)."""

from fatura.domain.filters import AuditFilter
from fatura.store.audit import entries
from fatura.store.audit.entries import StoredEntry
from fatura.usecases.transaction import Work
from fatura.views.audit import AuditActorView, AuditEntryView, AuditLogView, AuditResourceView
from fatura.views.view import instant


async def read(work: Work, *, after: int, limit: int, wanted: AuditFilter) -> AuditLogView:
    """Return up to `limit` entries with numbers above `after` that match a filter, and the next cursor."""
    first = before = None
    if wanted.at_from is not None:
        first = await entries.sequence_at(work.tx, wanted.at_from)
        if first is None:
            return AuditLogView(data=[], next_cursor=str(after))
    if wanted.at_to is not None:
        before = await entries.sequence_after(work.tx, wanted.at_to)
    after = max(after, (first or 1) - 1)
    found = await entries.after(work.tx, after, wanted, before=before, limit=limit)
    next_cursor = found[-1].sequence if found else after
    return AuditLogView(data=[_view(each) for each in found], next_cursor=str(next_cursor))


def _view(entry: StoredEntry) -> AuditEntryView:
    actor = entry.actor
    return AuditEntryView(
        id=str(entry.audit_entry_id),
        at=instant(entry.created_at),
        actor=AuditActorView(
            kind=actor.kind, id=None if actor.id is None else str(actor.id), name=actor.name
        ),
        action=entry.action,
        resource=AuditResourceView(type=entry.resource_type, id=entry.resource_id),
        request_id=entry.request_id,
        address=entry.address,
        before=entry.before,
        after=entry.after,
    )
