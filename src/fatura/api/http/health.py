"""Liveness, readiness and metrics (spec 4.1, D-5), open to everybody."""

from typing import Literal

from fastapi import Request
from pydantic import Field
from starlette.responses import Response

from fatura.api.http.answers import answer
from fatura.api.http.route import OpenRoute
from fatura.api.models.shared import Shown
from fatura.observability import gauge, metrics_page
from fatura.usecases.operations import health, lateness
from fatura.views.health import AliveView, ChecksView, ReadinessView

TAG = "Health"


class Alive(Shown):
    """The process answers."""

    status: Literal["ok"]


class Checks(Shown):
    """What readiness rests on."""

    database: bool
    clock: bool = Field(
        description="false when the host's clock cannot be trusted; the API serves all the same."
    )


class Readiness(Shown):
    """Whether to send traffic here."""

    status: Literal["ok", "degraded"]
    checks: Checks


async def live(_request: Request) -> Response:
    """Say that the process is alive."""
    return answer(AliveView(status="ok"))


async def ready(request: Request) -> Response:
    """Say whether the process can serve: 503 is degraded, and not to receive traffic."""
    found = await health.check(request.app.state.gate.deps)
    checks = ChecksView(database=found.database, clock=found.clock)
    if not found.database:
        return answer(ReadinessView(status="degraded", checks=checks), status=503)
    return answer(ReadinessView(status="ok", checks=checks))


async def metrics(request: Request) -> Response:
    """Show this process's metrics to Prometheus, with what the database knows asked afresh (D-5, D-128)."""
    found = await health.check(request.app.state.gate.deps)
    _database_up.set(found.database)
    _clock_trusted.set(found.clock)
    await lateness.measure(request.app.state.gate.deps)
    page, media_type = metrics_page()
    return Response(page, media_type=media_type)


_database_up = gauge("fatura_database_up", "1 while the database answers.")
_clock_trusted = gauge(
    "fatura_clock_trusted", "0 while the host's clock is more than 30 s off the database's."
)
_DEGRADED = {503: {"model": Readiness, "description": "Degraded: do not send traffic."}}
ROUTES = (
    OpenRoute("/health", live, response_model=Alive, tags=[TAG], operation_id="live"),
    OpenRoute(
        "/health/ready",
        ready,
        response_model=Readiness,
        responses={**_DEGRADED},
        tags=[TAG],
        operation_id="ready",
    ),
    OpenRoute("/metrics", metrics, include_in_schema=False),
)
