"""Builds the HTTP application from routes, error handlers and documentation."""

from collections.abc import Sequence

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from fatura.api.http import docs, health
from fatura.api.http.authentication import Authenticate, Gate
from fatura.api.http.declare import Routes
from fatura.api.http.observer import Observer
from fatura.api.http.rate_limits import Limits
from fatura.api.openapi.document import document
from fatura.api.pay_page import routes as pay_page
from fatura.api.v1 import RESOURCES, gateway_webhook
from fatura.shared_call import SharedCall
from fatura.usecases.accounts import api_keys
from fatura.usecases.deps import KEEP_CHECKS_SECONDS, Deps

_NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False}
"""The observer records the spans of requests, so FastAPI must record none."""


def create_app(
    deps: Deps | None = None,
    *,
    resources: Sequence[Routes] = RESOURCES,
    authenticate: Authenticate = api_keys.authenticate,
) -> FastAPI:
    """Return the application. If `deps` is None, the caller must call `set_deps` before the first request."""
    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        openapi_tags=[
            {"name": tag, "description": description}
            for tag, description in (
                *((each.tag, each.description) for each in resources),
                gateway_webhook.TAG,
                health.TAG,
            )
        ],
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
    )
    for each in resources:
        app.router.routes += each.routes
    app.router.routes += [*gateway_webhook.ROUTES, *health.ROUTES, *pay_page.ROUTES]
    docs.add(app, document)
    # FastAPI would wrap the router in five layers of middleware. The observer replaces them and answers all exceptions.
    app.middleware_stack = Observer(app.router, refusal=pay_page.refusal)
    if deps is not None:
        set_deps(app, deps, authenticate=authenticate)
    return app


def create_watch_app(deps: Deps) -> FastAPI:
    """Return the application for the monitoring port, which serves liveness, readiness and metrics (D-128, D-202)."""
    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
    )
    app.router.routes += health.WATCH_ROUTES
    app.middleware_stack = Observer(app.router)
    app.state.metrics_page = SharedCall[bytes](keep_seconds=KEEP_CHECKS_SECONDS)
    set_deps(app, deps)
    return app


def set_deps(app: FastAPI, deps: Deps, *, authenticate: Authenticate = api_keys.authenticate) -> None:
    app.state.gate = Gate(deps, authenticate, Limits.of(deps.settings))
