"""The audit entry that a request or a command must add."""

from dataclasses import dataclass

from fatura.domain.audit import AuditAction, Origin


class AuditError(Exception):
    """A request or command would commit its change with no audit entry, or with more than one (D-221).

    This is an exception and not an `assert`, because `python -O` would skip an `assert` (D-220).
    """


@dataclass(slots=True)
class AuditDraft:
    """The part of an audit entry that is known before the change is made. `Work.audit` completes the entry.

    `is_settled` is true once the entry is committed, or once it is clear that the request changes nothing.
    """

    origin: Origin
    action: AuditAction
    is_settled: bool = False

    def settle(self) -> None:
        """Note that no further entry is needed: the entry is committed, or the request changes nothing."""
        self.is_settled = True
