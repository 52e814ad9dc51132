"""The audit entry that a request or a command must add."""

from dataclasses import dataclass

from fatura.domain.audit import AuditAction, Origin


class AuditError(Exception):
    """A request or command would commit its change with no audit entry, or with more than one (D-221).

    The check raises this error instead of using `assert`, because the check must also run under `python -O` (D-220).
    """


@dataclass(slots=True)
class AuditDraft:
    """What is known of an audit entry before the change is made. `Work.audit` completes it.

    `is_settled` is true once the entry is committed, or once it is clear that the request changes nothing.
    """

    origin: Origin
    action: AuditAction
    is_settled: bool = False

    def settle(self) -> None:
        """Note that no further entry is needed: the entry is committed, or the request changes nothing."""
        self.is_settled = True
