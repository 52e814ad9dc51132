"""The pairs of operations that run concurrently and change the same rows, each with a fixture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.faults.orders import operations as does
from tests.faults.orders.fixtures import (
    abandoned,
    disputed,
    draft,
    due,
    former,
    held,
    issued,
    moved_on,
    paid,
    partly_paid,
    partly_paid_at_gateway,
    pushing,
    ready,
    ready_with_two_connections,
    settled,
    swept,
    two_connections,
)
from tests.faults.orders.named_outcomes import NAMED_OUTCOMES, NamedOutcome
from tests.faults.orders.operations import Operation
from tests.faults.orders.setup import MakeFixture


@dataclass(frozen=True, slots=True)
class Pair:
    """Two operations, the fixture that they change, and the named outcomes that are correct for this pair."""

    a: Operation
    b: Operation
    fixture: MakeFixture
    named_outcomes: tuple[NamedOutcome, ...] = ()

    @property
    def weight(self) -> int:
        """The factor by which this pair gets more schedules than other pairs in the short version of this run."""
        return WEIGHTS.get((self.fixture, self.a, self.b), 1)

    @property
    def name(self) -> str:
        return f"{self.a.name} | {self.b.name}"


WEIGHTS: Mapping[tuple[MakeFixture, Operation, Operation], int] = {
    (ready, does.ISSUANCE, does.ISSUANCE): 5,
    (due, does.GENERATION, does.SUBSCRIBE): 8,
}
"""Pairs that get more schedules. Only a few of their schedules reveal a missing lease or a wrong event order."""

_CONCURRENT: Sequence[tuple[MakeFixture, Operation, Sequence[Operation]]] = (
    (
        due,
        does.GENERATION,
        (
            does.GENERATION,
            does.CANCEL,
            does.CUSTOMIZE,
            does.PUBLISH,
            does.ARCHIVE_PLAN,
            does.EDIT_PRODUCT,
            does.EDIT_CUSTOMER,
            does.SUBSCRIBE,
        ),
    ),
    (due, does.CANCEL, (does.CANCEL, does.CANCEL_AGAIN, does.CUSTOMIZE)),
    (due, does.CUSTOMIZE, (does.CUSTOMIZE_AGAIN, does.ARCHIVE_PRODUCT, does.EDIT_DEARER)),
    (due, does.PUBLISH, (does.PUBLISH_AGAIN, does.ARCHIVE_PLAN, does.ARCHIVE_PRODUCT)),
    (due, does.CREATE_PLAN, (does.ARCHIVE_PRODUCT, does.EDIT_DEARER)),
    (
        due,
        does.SUBSCRIBE,
        (does.ARCHIVE_PLAN, does.PUBLISH, does.SUBSCRIBE_TOO, does.SUBSCRIBE_REPLAY, does.OTHER_BODY),
    ),
    (due, does.SUBSCRIBE_KNOWN, (does.EDIT_CUSTOMER,)),
    (moved_on, does.GENERATION, (does.PROPAGATE,)),
    (moved_on, does.CANCEL, (does.PROPAGATE,)),
    (moved_on, does.CUSTOMIZE, (does.PROPAGATE,)),
    (moved_on, does.PUBLISH, (does.PROPAGATE,)),
    (moved_on, does.ARCHIVE_PLAN, (does.PROPAGATE,)),
    (moved_on, does.PROPAGATE, (does.PROPAGATE_AGAIN,)),
    (moved_on, does.SUBSCRIBE, (does.PROPAGATE,)),
    (
        draft,
        does.PRICING,
        (
            does.PRICING,
            does.VALUE,
            does.RETRY_PRICING,
            does.CANCEL_INVOICE,
            does.ROTATE,
            does.EDIT_ENDPOINT,
            does.CANCEL,
        ),
    ),
    (draft, does.VALUE, (does.OTHER_VALUE, does.CANCEL_INVOICE)),
    (held, does.RETRY_PRICING, (does.VALUE, does.CANCEL_INVOICE)),
    (
        ready,
        does.ISSUANCE,
        (does.ISSUANCE, does.CANCEL_INVOICE, does.RETRY_ISSUANCE, does.CANCEL, does.CONNECTION_OFF),
    ),
    (ready, does.RETRY_ISSUANCE, (does.CANCEL_INVOICE,)),
    (abandoned, does.ISSUANCE, (does.ISSUANCE, does.RETRY_ISSUANCE)),
    (
        paid,
        does.RECONCILIATION,
        (does.RECONCILIATION, does.GATEWAY_WEBHOOK, does.CANCEL_INVOICE, does.PAYMENT),
    ),
    (partly_paid_at_gateway, does.PART_POLL, (does.PAYMENT, does.REISSUE)),
    (swept, does.SWEEP, (does.SWEEP, does.RECONCILIATION, does.GATEWAY_WEBHOOK)),
    (two_connections, does.MOVE, (does.GENERATION, does.SUBSCRIBE_HERE, does.CANCEL)),
    (ready_with_two_connections, does.MOVE, (does.ISSUANCE,)),
    (issued, does.CANCEL_INVOICE, (does.CANCEL_INVOICE_AGAIN, does.RECONCILIATION, does.GATEWAY_WEBHOOK)),
    (
        issued,
        does.REISSUE,
        (does.REISSUE_AGAIN, does.REISSUE_REPLAY, does.RECONCILIATION, does.PAYMENT, does.CANCEL_INVOICE),
    ),
    (
        issued,
        does.PAYMENT,
        (does.PAYMENT_AGAIN, does.PAYMENT_REPLAY, does.RECONCILIATION, does.CANCEL_INVOICE),
    ),
    (
        settled,
        does.REFUND,
        (
            does.REFUND_AGAIN,
            does.REFUND_REPLAY,
            does.RECONCILIATION,
            does.GATEWAY_WEBHOOK,
            does.CONNECTION_OFF,
        ),
    ),
    (paid, does.GATEWAY_WEBHOOK, (does.WEBHOOK_COPY,)),
    (former, does.ERASE, (does.GATEWAY_WEBHOOK, does.RECONCILIATION)),
    (partly_paid, does.REFUND, (does.REISSUE,)),
    (disputed, does.REFUND, (does.DISPUTE_POLL,)),
    (
        pushing,
        does.PUSH,
        (does.PUSH, does.REDELIVER, does.OTHER_WEBHOOK, does.NO_WEBHOOK, does.ROTATE, does.GENERATION),
    ),
    (pushing, does.OTHER_WEBHOOK, (does.NO_WEBHOOK,)),
    (pushing, does.REDELIVER, (does.NO_WEBHOOK,)),
    (pushing, does.ROTATE, (does.ROTATE_AGAIN,)),
)
"""Each entry has a fixture, an operation, and the operations that run concurrently with that operation."""

PAIRS = tuple(
    Pair(a, b, fixture, NAMED_OUTCOMES.get((a.name, b.name), ()))
    for fixture, a, others in _CONCURRENT
    for b in others
)
