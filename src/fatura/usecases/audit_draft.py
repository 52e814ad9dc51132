"""The audit entry that a request or a command must add."""

from dataclasses import dataclass

from fatura.domain.audit import AuditAction, Origin


class AuditError(Exception):
    """The change of a request or command would be committed without exactly one audit entry (D-221).

    This is no assertion, because the check must also run under `python -O` (D-220).
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
        """Note that the request changes nothing: it repeats an Idempotency-Key, or is a dry run."""
        self.is_settled = True
