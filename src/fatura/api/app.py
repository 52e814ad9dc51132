"""Builds the HTTP application from routes, error handlers and documentation."""

from collections.abc import Sequence

from fastapi import FastAPI
from starlette.middleware.exceptions import ExceptionMiddleware

from fatura.api.http import docs, health, problems
from fatura.api.http.authentication import Authenticate, Gate
from fatura.api.http.declare import Routes
from fatura.api.http.observer import Observer
from fatura.api.http.rate_limits import RateLimiter
from fatura.api.openapi.document import document
from fatura.api.v1 import RESOURCES, gateway_webhook
from fatura.usecases.accounts import accounts
from fatura.usecases.deps import Deps


def create_app(
    deps: Deps | None = None,
    *,
    resources: Sequence[Routes] = RESOURCES,
    authenticate: Authenticate = accounts.authenticate,
) -> FastAPI:
    """Return the application. If `deps` is None, call `set_deps` before the first request."""
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
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    problems.register(app)
    for each in resources:
        app.router.routes += each.routes
    app.router.routes += [*gateway_webhook.ROUTES, *health.ROUTES]
    docs.add(app, document)
    # Replaces FastAPI's middleware stack, which has four more layers for features that are not used here.
    app.middleware_stack = Observer(ExceptionMiddleware(app.router, app.exception_handlers))
    if deps is not None:
        set_deps(app, deps, authenticate=authenticate)
    return app


def create_watch_app(deps: Deps) -> FastAPI:
    """Return an application with only liveness, readiness and metrics, for a worker (D-128)."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    problems.register(app)
    app.router.routes += health.ROUTES
    app.middleware_stack = Observer(ExceptionMiddleware(app.router, app.exception_handlers))
    set_deps(app, deps)
    return app


def set_deps(app: FastAPI, deps: Deps, *, authenticate: Authenticate = accounts.authenticate) -> None:
    app.state.gate = Gate(deps, authenticate, RateLimiter(deps.settings.rate_limit_per_second))
