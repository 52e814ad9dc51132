"""`/docs-json` is the OpenAPI document. `/docs` is a page to try the API (spec 4.6).

The page loads nothing from other hosts.
"""

import base64
import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import fastapi_offline
import msgspec
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from fatura.api.http.route import OpenRoute

DOCUMENT_PATH = "/docs-json"
_ASSETS_PATH = "/docs/assets"
_ASSETS = Path(fastapi_offline.__file__).parent / "static"
_ASSET_PATHS = frozenset(f"{_ASSETS_PATH}/{each.name}" for each in _ASSETS.iterdir())
_OPTIONS = {
    "url": DOCUMENT_PATH,
    "dom_id": "#ui",
    "deepLinking": True,
    "defaultModelsExpandDepth": 0,
    "displayRequestDuration": True,
    "persistAuthorization": True,
    "validatorUrl": None,
}
_SCRIPT = f"SwaggerUIBundle({json.dumps(_OPTIONS)})"
_PAGE = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Fatura API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{_ASSETS_PATH}/swagger-ui.css">
</head>
<body>
<div id="ui"></div>
<script src="{_ASSETS_PATH}/swagger-ui-bundle.js"></script>
<script>{_SCRIPT}</script>
</body>
</html>
"""
_SCRIPT_HASH = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
_HEADERS = {
    "content-security-policy": "default-src 'none'; connect-src 'self'; img-src 'self' data:; "
    f"script-src 'self' 'sha256-{_SCRIPT_HASH}'; style-src 'self' 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}


class _Assets(StaticFiles):
    """Serves the files of the page. Ignores the header `Range`, as RFC 9110 (14.2) allows, and sends whole files.

    Starlette's StaticFiles would answer an invalid `Range` with plain text instead of a problem. It would also search
    the disk for each path, which takes long for a path with thousands of parts.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in _ASSET_PATHS:
            raise HTTPException(404)
        headers = [each for each in scope["headers"] if each[0] != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)


def add(app: FastAPI, document: Callable[[FastAPI], dict[str, Any]]) -> None:
    """Add the routes of the documentation. The OpenAPI document is built when it is first requested."""
    described = cache(lambda: document(app))
    encoded = cache(lambda: msgspec.json.encode(described()))
    app.openapi = described

    async def show_document(_request: Request) -> Response:
        return Response(encoded(), media_type="application/json")

    app.router.routes += [
        OpenRoute("/docs", _show_ui),
        OpenRoute(DOCUMENT_PATH, show_document),
        Mount(_ASSETS_PATH, _Assets(directory=_ASSETS)),
    ]


async def _show_ui(_request: Request) -> Response:
    return HTMLResponse(_PAGE, headers=_HEADERS)
