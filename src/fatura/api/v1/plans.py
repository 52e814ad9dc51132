"""The routes of plans (spec 4.3)."""

from typing import Annotated
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import Count, Flag, StrictBool, Text
from fatura.api.http.forms import Body, Paging
from fatura.api.http.replies import run, run_once
from fatura.api.http.route import Call, Key, Noun
from fatura.api.models.catalog import Plan, PlanSummary
from fatura.api.models.propagation import Propagation
from fatura.api.models.shared import Page
from fatura.api.v1.terms import TermsForm
from fatura.domain.errors import (
    DISCOUNT_ON_VARIABLE_PRODUCT,
    INSTALLMENTS_UNSUPPORTED,
    NOT_FOUND,
    PAYMENT_METHOD_UNSUPPORTED,
    PLAN_ARCHIVED,
    PRODUCT_ARCHIVED,
)
from fatura.domain.filters import PlanFilter
from fatura.usecases.catalog import plans, propagation

routes = Routes("Plans")
PlanId = Annotated[UUID, Noun("plan")]
TERMS_PROBLEMS = (
    NOT_FOUND,
    PRODUCT_ARCHIVED,
    DISCOUNT_ON_VARIABLE_PRODUCT,
    PAYMENT_METHOD_UNSUPPORTED,
    INSTALLMENTS_UNSUPPORTED,
)
"""What any terms may be refused for."""


class PlanForm(TermsForm):
    """A whole offer: what is left out does not exist in it."""

    name: Annotated[str, Text(1, 120), Field(description="Plan name.")]


class PropagationForm(Body):
    """Whom to move, or only to tell what moving them would do."""

    dryRun: Annotated[
        StrictBool, Field(description="true changes nothing, and answers what would happen.")
    ] = False
    fromVersion: Annotated[
        Count | None, Field(description="Only subscribers on this version; left out, on any older one.")
    ] = None


class PlanQuery(Paging):
    """Which page of which plans."""

    archived: Annotated[Flag | None, Field(description="Only archived plans, or only active ones.")] = None


@routes.post("/v1/plans", answers=Plan, status=201, key=Key.REQUIRED, problems=TERMS_PROBLEMS)
async def create_plan(call: Call, body: PlanForm) -> Response:
    """Create the whole offer, at version 1."""
    return await run_once(call, plans.create, name=body.name, terms=body.terms())


@routes.get("/v1/plans", answers=Page[PlanSummary])
async def list_plans(call: Call, query: PlanQuery) -> Response:
    """List plans, newest first, without items, archived ones included."""
    wanted = PlanFilter(query.archived)
    return await run(call, plans.read_page, query.asked(), wanted)


@routes.get("/v1/plans/{planId}", answers=Plan)
async def read_plan(call: Call, plan_id: PlanId) -> Response:
    """Return a plan at its current version, with items and schedules."""
    return await run(call, plans.read, plan_id)


@routes.put("/v1/plans/{planId}", answers=Plan, problems=[*TERMS_PROBLEMS, PLAN_ARCHIVED])
async def publish_plan(call: Call, plan_id: PlanId, body: PlanForm) -> Response:
    """Publish a new version: the complete offer again, for new subscribers; existing ones stay on theirs."""
    return await run(call, plans.publish, plan_id, name=body.name, terms=body.terms())


@routes.post("/v1/plans/{planId}/archive", answers=PlanSummary)
async def archive_plan(call: Call, plan_id: PlanId) -> Response:
    """Archive a plan: no new subscriptions, existing ones keep billing."""
    return await run_once(call, plans.archive, plan_id)


@routes.post("/v1/plans/{planId}/propagate", answers=Propagation, problems=[PLAN_ARCHIVED])
async def propagate_plan(call: Call, plan_id: PlanId, body: PropagationForm) -> Response:
    """Move the plan's active subscribers to its current version, from their next cycle on.

    Their method follows the new default unless they have their own; due dates and commitments stay. Customized
    subscriptions are left alone, and so is, with its reason in `skipped`, whoever's gateway connection cannot bill the
    new terms. Invoices already made do not change, and no event is told: read the subscriptions, or this answer.
    """
    return await run_once(
        call,
        propagation.propagate,
        plan_id,
        dry_run=body.dryRun,
        from_version=body.fromVersion,
    )
