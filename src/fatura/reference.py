"""The generated pages of docs/reference, made from the tables in the code."""

import json
from operator import attrgetter
from typing import Any

from fatura.api.app import create_app
from fatura.domain import errors, events, invoice_states
from fatura.domain.invoice_states import INITIAL_STATES, MEANINGS, TABLE, Fact, InvoiceStatus, decide, moves
from fatura.observability import DESCRIBED
from fatura.settings import VARIABLES
from fatura.usecases.operations.checks import MAX_OFFENDERS
from fatura.views.samples.events import sample_json

_GENERATED = "<!-- Generated from the code; `make docs` writes it again. -->\n\n"


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
            "\n## Every state and every fact\n\nAn empty cell changes nothing and emits nothing.\n\n",
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
        + _table(("type", "emitted when"), rows)
        + "".join(_sample_section(type_) for type_ in events.CATALOGUE)
    )


def _sample_section(type_: str) -> str:
    shown = json.dumps(sample_json(type_), indent=2, ensure_ascii=False)
    return f"\n## {type_}\n\n{events.CATALOGUE[type_].capitalize()}.\n\n```json\n{shown}\n```\n"


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
        + "Prometheus reads `/metrics` of the API, and of a worker that runs with `--metrics-port`. It needs no key. "
        "Counters belong to the process that shows them: workers call gateways and merchants, and the API does so for "
        "some requests. Gauges are read from the database at each scrape, so one process is enough for them. `fatura "
        "check --textfile PATH` writes `fatura_invariant_offenders` and `fatura_check_timestamp_seconds` for "
        f"node_exporter; run it from cron. It counts at most {MAX_OFFENDERS} offenders of an account.\n\n"
        + _table(("metric", "kind", "labels", "meaning"), rows)
    )


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


PAGES = {
    "docs/reference/states.md": states_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/events.md": events_page,
    "docs/reference/settings.md": settings_page,
    "docs/reference/metrics.md": metrics_page,
}
"""Every generated page by its path in the repository."""
