"""The generated pages of the docs. They are made from the tables in the code."""

import json
from operator import attrgetter
from typing import Any

from fatura.api.app import create_app
from fatura.api.v1 import RESOURCES
from fatura.domain import audit_actions, charge, errors, events, invoice_states, refunds
from fatura.domain.charge import INITIAL_STAGES, STAGES, ChargeStatus
from fatura.domain.invoice_states import INITIAL_STATES, MEANINGS, TABLE, Fact, InvoiceStatus, decide, moves
from fatura.observability import DESCRIBED
from fatura.usecases.operations.checks import MAX_OFFENDERS
from fatura.variables import VARIABLES
from fatura.views.audit import AuditLogView
from fatura.views.samples.answers import SAMPLES
from fatura.views.samples.events import sample_json

_GENERATED = "<!-- Generated from the code; `make docs` writes it again. -->\n\n"
_CELLS = (
    "Each cell shows the invoice's state after the fact. `stays` means that the state does not change, but the fact "
    "emits an event. A number is the HTTP status with which the client's request is refused. An empty cell means "
    "that the fact changes nothing and emits nothing."
)


_CHARGES_INTRODUCTION = """\
Read this when an invoice has several charges, or when a charge is not in the status that you expect. The rules here are
the decisions [D-33](../decisions.md#d-33-one-charge-per-invoice) and
[D-49](../decisions.md#d-49-charges-of-an-invoice).

A charge is a request for payment at the gateway. An invoice may have several charges, numbered from 1. The engine
stores a charge before it sends the request, so that after a crash the engine knows which charge may
exist at the gateway.

The engine stores a *stage* for each charge. Clients see a `status` instead, in `charges[]` of an invoice:

"""

_CHARGE_STEPS = """\
The following steps use the names of the stages:

1. The engine stores the charge as `sending`, with the request in encrypted form, and sends the request.
2. If the gateway confirms the charge, the charge becomes `open` and the invoice becomes `issued`.
3. If the gateway refuses the request, the charge becomes `failed`. The invoice stays `ready` until a person acts. The
   same happens, without a request, if the amount is below the gateway's minimum
   ([D-155](../decisions.md#d-155-amounts-below-a-gateways-minimum)).
4. If the answer is lost or cannot be recorded, the charge becomes `unknown`. The engine repeats the same request, or
   looks the charge up. If two look-ups find nothing, the charge becomes `absent` and its request is sent again.
5. The engine polls an `open` charge until it is paid, canceled or long past due. If a payment is declined, the charge
   becomes `refused` and the invoice `overdue`, even before its due date; the payer may try again. If somebody cancels
   the charge in the provider's dashboard, the invoice becomes `canceled`. An invoice never leaves this state.
6. A reissue ([D-51](../decisions.md#d-51-reissuing-an-invoice)) cancels the charge at the gateway. Then the engine
   stores the amount, payment method and due date of the next charge, which is `planned` until issuance sends its
   request.
7. If two polls, an hour apart, show that the gateway does not know an `open` charge any more, the charge becomes
   `missing`, and `invoice.charge_missing` is emitted
   ([D-56](../decisions.md#d-56-a-charge-that-the-gateway-does-not-know)).
8. A paid charge stays `paid` when its payments are refunded or disputed. The refunds are entries of the invoice's
   ledger. For each refund that a merchant asks for, the engine stores a record that has stages too
   ([D-53](../decisions.md#d-53-refunds)).
9. Every night, a sweep compares the engine's charges with the provider's list
   ([D-161](../decisions.md#d-161-the-nightly-sweep)). The engine polls each stored charge that differs from the list.
   If a listed charge refers to an invoice but is not stored, the engine reads it from the gateway and handles it as a
   second charge ([D-162](../decisions.md#d-162-charges-that-only-a-webhook-names)).

"""

_AUDIT_INTRODUCTION = """\
Read this when you want to know who changed something in an account, or what an API key has done. `GET /v1/audit` lists
each change as one entry, oldest first:

- The history of one resource: `GET /v1/audit?resourceId=<id>`.
- What one API key did: `GET /v1/audit?actor=<id of the key>`. `actor=operator` shows the commands of operators.
- One kind of change in a range of time: `GET /v1/audit?action=webhook.register&from=2026-11-01&to=2026-11-30`.

To get each entry once, follow `nextCursor`. The request id of an entry is in the header `X-Request-Id` of the answer,
and in the engine's log. `before` and `after` contain the fields that changed; the value `[redacted]` stands for
personal data and secrets. The rules are [D-63](../decisions.md#d-63-the-audit-log) and
[D-221](../decisions.md#d-221-which-requests-add-an-audit-entry) to
[D-225](../decisions.md#d-225-audit-entries-are-kept).

"""

_LIVE_CHARGES = (
    "PostgreSQL refuses every other change of a stage. A charge is *live* if it can be paid, or if it is not certain "
    "whether it exists at the gateway. An invoice has at most one live charge."
)


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document that `/docs-json` serves."""
    return create_app().openapi()


def states_page() -> str:
    """Return docs/reference/states.md: the diagram, the transitions, and the effect of each fact in each state."""
    return "".join(
        (
            "# The states of an invoice\n\n",
            _GENERATED,
            "```mermaid\nstateDiagram-v2\n",
            *(f"    [*] --> {state}\n" for state in InvoiceStatus if state in INITIAL_STATES),
            *(f"    {from_} --> {to}\n" for from_, to in sorted(moves())),
            "```\n\nPostgreSQL refuses every other move.\n\n## What happens\n\n",
            _table(
                ("from", "fact", "only if", "to", "stamps", "emits", "basis"),
                [
                    (
                        row.from_,
                        row.fact,
                        row.only_if,
                        row.to if row.to is not row.from_ else "stays",
                        ", ".join(row.stamps),
                        row.emits,
                        row.basis,
                    )
                    for row in TABLE
                ],
            ),
            "\n## The facts\n\n",
            _table(("fact", "meaning"), [(fact, meaning) for fact, meaning in MEANINGS.items()]),
            f"\n## Every state and every fact\n\n{_CELLS}\n\n",
            _table(
                ("fact", *InvoiceStatus),
                [(fact, *(_cell(state, fact) for state in InvoiceStatus)) for fact in Fact],
            ),
        )
    )


def _cell(state: InvoiceStatus, fact: Fact) -> str:
    refusal = invoice_states.REFUSALS.get((state, fact))
    if refusal is not None:
        return f"{refusal.status}"
    rows = {decide(state, fact, total_cents=total_cents) for total_cents in (0, 1)} - {None}
    return " or ".join(sorted("stays" if row.to is state else row.to for row in rows if row is not None))


_REFUNDS_INTRODUCTION = (
    "A refund that a merchant requests has stages too. An invoice has at most one refund with the status `pending`. "
    "PostgreSQL refuses every change of a stage that this table does not list."
)


def charges_page() -> str:
    """Return docs/explanation/life-of-a-charge.md: an introduction, and the stages of charges and of refunds."""
    return "".join(
        (
            "# The life of a charge\n\n",
            _GENERATED,
            _CHARGES_INTRODUCTION,
            _table(
                ("`charges[].status`", "stages"),
                [
                    (
                        f"`{status}`",
                        ", ".join(f"`{stage}`" for stage, rule in STAGES.items() if rule.status is status),
                    )
                    for status in ChargeStatus
                ],
            ),
            "\n",
            _CHARGE_STEPS,
            "## The stages\n\n```mermaid\nstateDiagram-v2\n",
            *(f"    [*] --> {stage}\n" for stage in STAGES if stage in INITIAL_STAGES),
            *(f"    {from_} --> {to}\n" for from_, to in sorted(charge.moves())),
            f"```\n\n{_LIVE_CHARGES}\n\n",
            _table(
                ("stage", "`status` for clients", "live", "meaning"),
                [
                    (stage, f"`{rule.status}`", "yes" if rule.is_live else "", rule.meaning)
                    for stage, rule in STAGES.items()
                ],
            ),
            f"\n## The stages of a refund\n\n{_REFUNDS_INTRODUCTION}\n\n",
            _table(
                ("stage", "`status` for clients", "next stages", "meaning"),
                [
                    (stage, f"`{rule.status}`", ", ".join(rule.to), rule.meaning)
                    for stage, rule in refunds.STAGES.items()
                ],
            ),
        )
    )


def errors_page() -> str:
    rows = [(f"`{each.type}`", str(each.status), each.title, each.when) for each in errors.CATALOGUE]
    return (
        "# Errors\n\n"
        + _GENERATED
        + "Every error is `application/problem+json` with `type`, `title`, `status`, `detail`, `requestId` and "
        "sometimes `meta`. Branch on `type`, never on the texts.\n\n"
        + _table(("type", "status", "title", "when"), rows)
    )


def events_page() -> str:
    rows = [
        (f"[`{type_}`](#{type_.replace('.', '')})", meaning) for type_, meaning in events.CATALOGUE.items()
    ]
    return (
        "# Events\n\n"
        + _GENERATED
        + "An event is `{id, sequence, type, createdAt, data}`; `sequence` counts 1, 2, 3 … in each account, without a "
        "gap. `GET /v1/events` and webhooks send the same bytes.\n\n"
        "Old events are deleted, by default after five years. `completeFrom` in each answer of `GET /v1/events` is the "
        "number of the oldest event that is kept. Without a cursor, or with the cursor `0`, the stream begins with "
        "this event. A cursor above 0 and below `completeFrom - 1` gets 410 `engine.events_deleted` (D-248).\n\n"
        + _table(("type", "emitted when"), rows)
        + "".join(_sample_section(type_) for type_ in events.CATALOGUE)
    )


def _sample_section(type_: str) -> str:
    shown = json.dumps(sample_json(type_), indent=2, ensure_ascii=False)
    return f"\n## {type_}\n\n{events.CATALOGUE[type_].capitalize()}.\n\n```json\n{shown}\n```\n"


def audit_page() -> str:
    """Return docs/reference/audit.md: how to read the audit log, and all actions with their routes."""
    routes = {
        route.audit: f"`{method} {route.path}`"
        for each in RESOURCES
        for route in each.routes
        for method in route.methods or ()
        if route.audit is not None
    }
    rows = [
        (f"`{action.name}`", action.resource.type, action.meaning, routes.get(action, ""))
        for action in audit_actions.CATALOGUE
    ]
    sample = json.dumps(json.loads(SAMPLES[AuditLogView].json()), indent=2)
    return (
        "# Audit log\n\n"
        + _GENERATED
        + _AUDIT_INTRODUCTION
        + f"```json\n{sample}\n```\n\n## Actions\n\nChanges without a route are made by commands or by the engine.\n\n"
        + _table(("action", "resource", "the entry says that", "route"), rows)
    )


def settings_page() -> str:
    rows = [
        (f"`{each.name}`", f"`{each.default}`" if each.default else "", each.meaning) for each in VARIABLES
    ]
    return "# Settings\n\n" + _GENERATED + _table(("variable", "default", "meaning"), rows)


def metrics_page() -> str:
    rows = [
        (f"`{each.name}`", each.kind, ", ".join(f"`{label}`" for label in each.labels), each.meaning)
        for each in sorted(DESCRIBED, key=attrgetter("name"))
    ]
    return (
        "# Metrics\n\n"
        + _GENERATED
        + "Prometheus reads `/metrics` of the APIs and workers that run with `--metrics-port`. The route needs no key, "
        "so only Prometheus should reach this port. Each process counts only its own calls and requests. Workers make "
        "most calls to gateways and merchants, and the API makes some, so let Prometheus read the API and every worker."
        " Gauges are read from the database at each scrape, so one process is enough for them. `fatura check "
        "--textfile PATH` writes `fatura_invariant_offenders` and `fatura_check_timestamp_seconds` for node_exporter; "
        "run the command from "
        f"cron. The command counts at most {MAX_OFFENDERS} rows per account that violate the same invariant.\n\n"
        + _table(("metric", "kind", "labels", "meaning"), rows)
    )


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


PAGES = {
    "docs/explanation/life-of-a-charge.md": charges_page,
    "docs/reference/states.md": states_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/events.md": events_page,
    "docs/reference/audit.md": audit_page,
    "docs/reference/settings.md": settings_page,
    "docs/reference/metrics.md": metrics_page,
}
"""Every generated page by its path in the repository."""
