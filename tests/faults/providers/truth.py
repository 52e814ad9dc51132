"""Compare what the simulated providers hold with the invoices of the engine."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from fatura.usecases.operations import checks
from tests.faults.providers.doubles import Held
from tests.faults.providers.world import Shop, World
from tests.faults.report import Report

SHOWN = 20


async def compare(world: World, report: Report, *, charges: int) -> None:
    """Report every difference. All charges must be paid, and all work must be final."""
    found = Counter[str]()
    for shop in world.shops:
        invoices = {each["id"]: each for each in await shop.merchant.all("/v1/invoices")}
        held = defaultdict[str, list[Held]](list)
        for each in shop.simulated.held():
            held[each.invoice_id].append(each)
        counted = Counter(len(held[invoice_id]) for invoice_id in invoices)
        report.count(
            f"invoices with exactly one charge, {shop.simulated.name}",
            counted[1],
            at_least=charges,
            at_most=charges,
        )
        found["missing"] += counted[0]
        found["double"] += sum(number for many, number in counted.items() if many > 1)
        found["cents"] += sum(abs(cents) for cents in _differences(shop, invoices).values())
        report.problems += _problems(shop, invoices, held)[:SHOWN]
    report.count("invoices without a charge at the provider", found["missing"], at_most=0)
    report.count("invoices with two charges that are paid or can be paid", found["double"], at_most=0)
    report.count("cents by which the ledgers of providers and engine differ", found["cents"], at_most=0)
    for account_id in await checks.all_accounts(world.deps):
        for finding in await checks.findings(world.deps, account_id):
            report.problems.append(f"invariant {finding.invariant.name}: {finding.offenders[:SHOWN]}")


def _differences(shop: Shop, invoices: Mapping[str, Any]) -> Counter[str]:
    """Return by how many cents the payments of each invoice at the provider exceed those in the engine."""
    differences = shop.simulated.received()
    differences.subtract({invoice_id: each["paidCents"] for invoice_id, each in invoices.items()})
    return differences


def _problems(shop: Shop, invoices: Mapping[str, Any], held: Mapping[str, Sequence[Held]]) -> Sequence[str]:
    name = shop.simulated.name
    unknown = [f"{name}: a charge of {each}, which is no invoice" for each in held if each not in invoices]
    wrong = [
        f"{name}: the charge {charge.charge_id} of {charge.cents} cents, but invoice {invoice_id} has the charge "
        f"{invoices[invoice_id]['gatewayInvoiceId']} and {invoices[invoice_id]['totalCents']} cents"
        for invoice_id, charges in held.items()
        for charge in charges
        if invoice_id in invoices
        and (charge.charge_id, charge.cents)
        != (invoices[invoice_id]["gatewayInvoiceId"], invoices[invoice_id]["totalCents"])
    ]
    unpaid = [
        f"{name}: invoice {each['id']} is {each['status']}, with {each['paidCents']} of {each['totalCents']} cents"
        for each in invoices.values()
        if each["status"] != "paid" or each["paidCents"] != each["totalCents"]
    ]
    return [*unknown, *wrong, *unpaid]
