"""The whole OpenAPI document."""

from typing import Any, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from fatura import __version__
from fatura.api.http.route import ApiRoute, OpenRoute
from fatura.api.openapi import operations, outgoing
from fatura.api.openapi.schemas import Schema, tidy, view_schemas
from fatura.views.events import EventView
from fatura.views.problems import ProblemView
from fatura.views.view import View

_DESCRIPTION = """\
Define products and plans, and subscribe customers to them. Fatura generates each cycle's invoice, charges it through
your payment gateway, and reports every step as an event.

To try a route, select *Authorize* and paste the API key that `fatura up` printed. Create a product, a plan with the
product's id, and a subscription with the plan's id. Then advance the test clock by four days and list the invoices. Ids
in examples are invented: replace them.

- Money is integer cents. Integers are written without fraction and exponent: `10.0` and `1e1` are refused.
- Dates are `YYYY-MM-DD` in America/Sao_Paulo. Instants are ISO 8601 in UTC with milliseconds.
- Every error is a Problem. Branch on its `type`; the schema of Problem lists every type.
- New fields may be added to answers and events, and new types to events. Ignore what you do not know.
"""


def document(app: FastAPI) -> Schema:
    """Return the document of an application whose routes are ApiRoute and OpenRoute."""
    found = get_openapi(
        title="Fatura",
        version=__version__,
        summary="A recurring-billing engine.",
        description=_DESCRIPTION,
        contact={"name": "Fatura"},
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        servers=[{"url": "/", "description": "The engine that serves this document."}],
        tags=[*(app.openapi_tags or ()), {"name": outgoing.TAG, "description": outgoing.TAG_DESCRIPTION}],
        routes=app.routes,
    )
    routes = [
        route for route in app.routes if isinstance(route, (ApiRoute, OpenRoute)) and route.include_in_schema
    ]
    for route in routes:
        for method in route.methods or ():
            operations.complete(found["paths"][route.path_format][method.lower()], route)
    creation = found["paths"].get("/v1/products", {}).get("post")
    if creation is not None:
        creation["callbacks"] = {"price": outgoing.price_callback()}
    webhooks, path_items = outgoing.webhooks()
    forms: Schema = found.get("components", {}).get("schemas", {})
    found["webhooks"] = webhooks
    found["components"] = {
        "schemas": _schemas(forms, routes),
        "parameters": operations.PARAMETERS,
        "headers": operations.HEADERS,
        "pathItems": path_items,
        "securitySchemes": {
            operations.SECURITY: {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "rk_...",
                "description": "An API key, `rk_test_...` or `rk_live_...`, without the word Bearer.",
            }
        },
    }
    info = found["info"]
    return cast("Schema", tidy(found)) | {"info": info}


def _schemas(forms: Schema, routes: list[ApiRoute | OpenRoute]) -> Schema:
    """Return the schemas of requests and answers by name, without FastAPI's own error schemas."""
    views: set[type[View]] = {EventView, ProblemView, *outgoing.VIEWS}
    for route in routes:
        views.update(view for view in route.documentation.answers.values() if view is not None)
    mine: dict[str, Any] = view_schemas(sorted(views, key=lambda view: view.__name__))
    own = {
        name: form for name, form in forms.items() if name not in {"HTTPValidationError", "ValidationError"}
    }
    return dict(sorted((own | mine).items()))
