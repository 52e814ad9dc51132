"""The routes of plans (spec 4.3)."""

from typing import Annotated, ClassVar
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import Count, Flag, StrictBool, Text
from fatura.api.http.forms import Body, Examples, Paging
from fatura.api.http.replies import answer_once, run, run_dry, run_once
from fatura.api.http.route import Call, KeyPolicy, PathId
from fatura.api.v1.terms import TermsForm
from fatura.domain import audit_actions, errors
from fatura.domain.filters import PlanFilter
from fatura.usecases.catalog import plans, propagation
from fatura.views.plans import (
    PlanPageView,
    PlanSummaryView,
    PlanView,
    PropagationProgressView,
    PropagationView,
)

routes = Routes("Plans", "What customers subscribe to: products, period, payment method and discounts.")
PlanId = Annotated[UUID, PathId("plan")]
TERMS_PROBLEMS = (
    errors.NOT_FOUND,
    errors.PRODUCT_ARCHIVED,
    errors.DISCOUNT_ON_VARIABLE_PRODUCT,
    errors.PAYMENT_METHOD_UNSUPPORTED,
    errors.INSTALLMENTS_UNSUPPORTED,
    errors.QUOTA_EXCEEDED,
)
"""The problems of every route that takes terms."""


class PlanForm(TermsForm):
    """A complete plan. An optional field that you leave out gets its default."""

    examples: ClassVar[Examples] = {
        name: {"name": "Monthly", **terms} for name, terms in TermsForm.examples.items()
    }

    name: Annotated[str, Text(1, 120), Field(description="Name of the plan.")]


class PropagationForm(Body):
    """Which subscribers to move, and whether this is a dry run."""

    examples: ClassVar[Examples] = {"a dry run": {"dryRun": True}}

    dryRun: Annotated[
        StrictBool, Field(description="With true, nothing changes; the answer shows what would change.")
    ] = False
    fromVersion: Annotated[
        Count | None,
        Field(
            description="Move only subscribers of this version; by default, subscribers of all older versions."
        ),
    ] = None


class PlanQuery(Paging):
    archived: Annotated[
        Flag | None, Field(description="true: only archived plans; false: only active ones.")
    ] = None


@routes.post(
    "/v1/plans",
    "Create a plan",
    answers=PlanView,
    audit=audit_actions.PLAN_CREATE,
    status=201,
    key=KeyPolicy.REQUIRED,
    problems=TERMS_PROBLEMS,
)
async def create_plan(call: Call, body: PlanForm) -> Response:
    """Create a plan at version 1."""
    return await run_once(call, plans.create, name=body.name, terms=body.terms())


@routes.get("/v1/plans", "List plans", answers=PlanPageView)
async def list_plans(call: Call, query: PlanQuery) -> Response:
    """Return a page of plans without their items, newest first, including archived plans."""
    return await run(call, plans.read_page, query.asked(), PlanFilter(**query.filters()))


@routes.get("/v1/plans/{planId}", "Read a plan", answers=PlanView)
async def read_plan(call: Call, plan_id: PlanId) -> Response:
    """Return a plan at its current version, with its items and discounts."""
    return await run(call, plans.read, plan_id)


@routes.put(
    "/v1/plans/{planId}",
    "Publish a plan's new version",
    answers=PlanView,
    audit=audit_actions.PLAN_PUBLISH,
    problems=[*TERMS_PROBLEMS, errors.PLAN_ARCHIVED],
)
async def publish_plan(call: Call, plan_id: PlanId, body: PlanForm) -> Response:
    """Publish a new version, for new subscribers. Send the complete plan. Existing subscribers keep their version."""
    return await run(call, plans.publish, plan_id, name=body.name, terms=body.terms())


@routes.post(
    "/v1/plans/{planId}/archive", "Archive a plan", answers=PlanSummaryView, audit=audit_actions.PLAN_ARCHIVE
)
async def archive_plan(call: Call, plan_id: PlanId) -> Response:
    """Archive a plan. An archived plan takes no new subscriptions, but its existing subscriptions are still billed."""
    return await run_once(call, plans.archive, plan_id)


@routes.post(
    "/v1/plans/{planId}/propagate",
    "Move subscribers to the current version",
    answers=PropagationView,
    audit=audit_actions.PLAN_PROPAGATE,
    other_status=202,
    problems=[errors.PLAN_ARCHIVED, errors.PROPAGATION_RUNNING],
)
async def propagate_plan(call: Call, plan_id: PlanId, body: PropagationForm) -> Response:
    """Move the active subscribers of a plan to the plan's current version, each from the next cycle on.

    A moved subscription gets the new default payment method, unless it overrides the default. Due dates and commitments
    do not change. Customized subscriptions are not moved. If a subscription's gateway connection cannot bill the new
    terms, the subscription is listed in `skipped` with the reason. Existing invoices do not change. Each moved
    subscription emits `subscription.terms_changed`. A dry run ignores the Idempotency-Key.

    If the propagation takes longer than 5 seconds, the answer is 202 with the numbers so far, and workers move the
    remaining subscribers. `GET /v1/plans/{planId}/propagation` shows the progress. If you propagate a newer version
    meanwhile, the new propagation replaces the running one.
    """
    if body.dryRun:
        return await run_dry(call, propagation.dry_run, plan_id, from_version=body.fromVersion)
    moved = await propagation.propagate(
        call.deps, call.account, call.request, plan_id, from_version=body.fromVersion, draft=call.draft
    )
    return answer_once(moved.view, status=200 if moved.is_done else 202, is_replayed=moved.is_replayed)


@routes.get(
    "/v1/plans/{planId}/propagation", "Read a propagation's progress", answers=PropagationProgressView
)
async def read_propagation(call: Call, plan_id: PlanId) -> Response:
    """Return the plan's newest propagation. While it runs, the answer shows its counts so far."""
    return await run(call, propagation.read_progress, plan_id)
