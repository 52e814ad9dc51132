"""The pairs of operations that change the same rows, and their fixtures."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.faults.orders import operations as does
from tests.faults.orders.fixtures import abandoned, draft, due, held, issued, moved_on, paid, pushing, ready
from tests.faults.orders.named_outcomes import NAMED_OUTCOMES, NamedOutcome
from tests.faults.orders.operations import Operation
from tests.faults.orders.setup import MakeFixture


@dataclass(frozen=True, slots=True)
class Pair:
    """Two operations, their fixture, and the outcomes that are allowed in addition to the serial ones."""

    a: Operation
    b: Operation
    fixture: MakeFixture
    named_outcomes: tuple[NamedOutcome, ...] = ()

    @property
    def weight(self) -> int:
        """The factor by which this pair gets more schedules than others."""
        return WEIGHTS.get((self.fixture, self.a, self.b), 1)

    @property
    def name(self) -> str:
        return f"{self.a.name} | {self.b.name}"


WEIGHTS: Mapping[tuple[MakeFixture, Operation, Operation], int] = {
    (ready, does.ISSUANCE, does.ISSUANCE): 5,
    (due, does.GENERATION, does.SUBSCRIBE): 8,
}
"""Pairs that get more schedules, because few schedules reveal a missing lease or a wrong event order."""

PAIRS: tuple[Pair, ...] = tuple(
    Pair(a, b, fixture, NAMED_OUTCOMES.get((a.name, b.name), ()))
    for fixture, met in (
        (
            due,
            (
                (does.GENERATION, does.GENERATION),
                (does.GENERATION, does.CANCEL),
                (does.GENERATION, does.CUSTOMIZE),
                (does.GENERATION, does.PUBLISH),
                (does.GENERATION, does.ARCHIVE_PLAN),
                (does.GENERATION, does.EDIT_PRODUCT),
                (does.GENERATION, does.EDIT_CUSTOMER),
                (does.GENERATION, does.SUBSCRIBE),
                (does.CANCEL, does.CANCEL),
                (does.CANCEL, does.CANCEL_AGAIN),
                (does.CANCEL, does.CUSTOMIZE),
                (does.CUSTOMIZE, does.CUSTOMIZE_AGAIN),
                (does.CUSTOMIZE, does.ARCHIVE_PRODUCT),
                (does.CUSTOMIZE, does.EDIT_DEARER),
                (does.PUBLISH, does.PUBLISH_AGAIN),
                (does.PUBLISH, does.ARCHIVE_PLAN),
                (does.PUBLISH, does.ARCHIVE_PRODUCT),
                (does.CREATE_PLAN, does.ARCHIVE_PRODUCT),
                (does.CREATE_PLAN, does.EDIT_DEARER),
                (does.SUBSCRIBE, does.ARCHIVE_PLAN),
                (does.SUBSCRIBE, does.PUBLISH),
                (does.SUBSCRIBE, does.SUBSCRIBE_TOO),
                (does.SUBSCRIBE, does.SUBSCRIBE_REPLAY),
                (does.SUBSCRIBE, does.OTHER_BODY),
                (does.SUBSCRIBE_KNOWN, does.EDIT_CUSTOMER),
            ),
        ),
        (
            moved_on,
            (
                (does.GENERATION, does.PROPAGATE),
                (does.CANCEL, does.PROPAGATE),
                (does.CUSTOMIZE, does.PROPAGATE),
                (does.PUBLISH, does.PROPAGATE),
                (does.ARCHIVE_PLAN, does.PROPAGATE),
                (does.PROPAGATE, does.PROPAGATE_AGAIN),
                (does.SUBSCRIBE, does.PROPAGATE),
            ),
        ),
        (
            draft,
            (
                (does.PRICING, does.PRICING),
                (does.PRICING, does.VALUE),
                (does.PRICING, does.RETRY_PRICING),
                (does.PRICING, does.CANCEL_INVOICE),
                (does.PRICING, does.ROTATE),
                (does.PRICING, does.EDIT_ENDPOINT),
                (does.PRICING, does.CANCEL),
                (does.VALUE, does.OTHER_VALUE),
                (does.VALUE, does.CANCEL_INVOICE),
            ),
        ),
        (held, ((does.RETRY_PRICING, does.VALUE), (does.RETRY_PRICING, does.CANCEL_INVOICE))),
        (
            ready,
            (
                (does.ISSUANCE, does.ISSUANCE),
                (does.ISSUANCE, does.CANCEL_INVOICE),
                (does.ISSUANCE, does.RETRY_ISSUANCE),
                (does.ISSUANCE, does.CANCEL),
                (does.ISSUANCE, does.CONNECTION_OFF),
                (does.RETRY_ISSUANCE, does.CANCEL_INVOICE),
            ),
        ),
        (abandoned, ((does.ISSUANCE, does.ISSUANCE), (does.ISSUANCE, does.RETRY_ISSUANCE))),
        (
            paid,
            (
                (does.RECONCILIATION, does.RECONCILIATION),
                (does.RECONCILIATION, does.GATEWAY_WEBHOOK),
                (does.RECONCILIATION, does.CANCEL_INVOICE),
            ),
        ),
        (
            issued,
            (
                (does.CANCEL_INVOICE, does.CANCEL_INVOICE_AGAIN),
                (does.CANCEL_INVOICE, does.RECONCILIATION),
                (does.CANCEL_INVOICE, does.GATEWAY_WEBHOOK),
            ),
        ),
        (
            pushing,
            (
                (does.PUSH, does.PUSH),
                (does.PUSH, does.REDELIVER),
                (does.PUSH, does.OTHER_WEBHOOK),
                (does.PUSH, does.NO_WEBHOOK),
                (does.PUSH, does.ROTATE),
                (does.PUSH, does.GENERATION),
                (does.OTHER_WEBHOOK, does.NO_WEBHOOK),
                (does.REDELIVER, does.NO_WEBHOOK),
                (does.ROTATE, does.ROTATE_AGAIN),
            ),
        ),
    )
    for a, b in met
)
