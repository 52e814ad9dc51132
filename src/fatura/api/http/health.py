"""Liveness, readiness and metrics (spec 4.1, D-5). No API key is needed, so the metrics have a port of their own."""

from functools import partial

from fastapi import Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from fatura.api.http.replies import answer
from fatura.api.http.route import Documentation, OpenRoute
from fatura.observability import METRICS, gauge
from fatura.usecases.deps import Deps
from fatura.usecases.operations import health, lateness
from fatura.views.health import AliveView, ReadinessView

TAG = ("Health", "Whether the process runs, and whether it can serve.")


async def live(_request: Request) -> Response:
    """Answer 200 as long as the process runs."""
    return answer(AliveView(status="ok"))


async def ready(request: Request) -> Response:
    """Answer 200 if the database answers, and 503 if it does not. The other checks only show in the body."""
    checks = await health.check(request.app.state.gate.deps)
    if not checks.database:
        return answer(ReadinessView(status="degraded", checks=checks), status=503)
    return answer(ReadinessView(status="ok", checks=checks))


async def metrics(request: Request) -> Response:
    """Return this process's metrics for Prometheus. Calls within a second get the same page (D-5, D-128, D-202)."""
    state = request.app.state
    page = await state.metrics_page.get(partial(_measured_page, state.gate.deps))
    return Response(page, media_type=CONTENT_TYPE_LATEST)


async def _measured_page(deps: Deps) -> bytes:
    """Update the gauges of database, clock, background lanes and late work. Return all metrics as Prometheus text."""
    found = await health.check(deps)
    _database_up.set(found.database)
    _clock_trusted.set(found.clock)
    deps.lane_polls.measure()
    await lateness.measure(deps)
    return generate_latest(METRICS)


_database_up = gauge("fatura_database_up", "1 while the database answers.")
_clock_trusted = gauge(
    "fatura_clock_trusted", "0 while the host's clock is more than 30 s off the database's."
)
ROUTES = (
    OpenRoute("/health", live, Documentation(TAG[0], "Check liveness", {200: AliveView})),
    OpenRoute(
        "/health/ready",
        ready,
        Documentation(TAG[0], "Check readiness", dict.fromkeys((200, 503), ReadinessView)),
    ),
)
WATCH_ROUTES = (*ROUTES, OpenRoute("/metrics", metrics))
"""The routes of the port for monitoring. The public port does not serve metrics (D-202)."""
