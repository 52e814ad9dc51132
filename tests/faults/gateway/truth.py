"""Compare the gateways' journal and what merchants know with the engine's database, by the simulator's rules."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import combinations

from tests.faults.gateway.people import People
from tests.faults.gateway.world import World
from tests.faults.report import Report
from tests.faults.simulator.check_money import MoneyChecker
from tests.faults.simulator.gateway_state import SimCharge

SHOWN = 20
_EVER = datetime.max.replace(tzinfo=UTC)


async def compare(world: World, people: People, report: Report) -> None:
    """Report every difference. All work must be final."""
    people.read_charges()
    await MoneyChecker(people.world).check(at_rest=True)
    report.problems += people.world.problems[:SHOWN]
    charges = people.world.side.gateway.charges.values()
    in_time = [each for each in charges if not world.account_kinds[each.account_id].creates_too_late]
    report.problems += list(payable_together(in_time))[:SHOWN]


def payable_together(charges: Iterable[SimCharge]) -> Iterator[str]:
    """Yield a problem for each pair of charges of an invoice that could both be paid at one instant (D-49).

    Ignore pairs with the same attempt number: the module `run` counts such second charges. Also ignore charges that
    the gateway forgot or that were paid late: the journal does not show how long such a charge was payable.
    """
    of_invoice = defaultdict[object, list[SimCharge]](list)
    for each in charges:
        if not (each.was_forgotten or each.was_paid_late):
            of_invoice[each.invoice_id].append(each)
    for invoice_id, made in of_invoice.items():
        for one, other in combinations(made, 2):
            if one.attempt != other.attempt and max(one.created_at, other.created_at) < min(
                _closed_at(one), _closed_at(other)
            ):
                yield f"two charges of invoice {invoice_id} could be paid at once: {one.history}, {other.history}"


def _closed_at(charge: SimCharge) -> datetime:
    return _EVER if charge.state in {"open", "refused"} else charge.state_at
