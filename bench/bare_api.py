"""A bare ASGI application, to compare with the API. It sends recorded SQL and answers with recorded bytes.

    python -m bench.bare_api URL RECORDING PORT

The application does not authenticate, validate or log. It uses the same HTTP server, event loop and kind of connection
pool as `fatura api`.
"""

import sys
from pathlib import Path
from typing import Any

import asyncpg
import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send

from bench.recording import Recorded, Recording, kept
from fatura.settings import read
from fatura.store.pool import STATEMENTS_KEPT


def create(recording: Recording, pool: Any) -> Any:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        recorded = _found(recording, scope)
        if scope["method"] == "POST":
            while (await receive()).get("more_body", False):
                pass
        for statements in recorded.transactions:
            async with pool.acquire() as connection:
                for method, query, values in statements:
                    await getattr(connection, method)(query, *values)
        await send({"type": "http.response.start", "status": recorded.status, "headers": recorded.headers})
        await send({"type": "http.response.body", "body": recorded.body})

    return app


def _found(recording: Recording, scope: Scope) -> Recorded:
    for name, value in scope["headers"]:
        if name == b"idempotency-key":
            return recording[scope["path"], value.decode()]
    return recording[scope["path"], ""]


async def _keep_as_is(_connection: Any) -> None:
    """Do not reset connections that return to the pool, because the engine does not reset them either."""


async def serve(url: str, recording: Recording, port: int) -> None:
    pool = await asyncpg.create_pool(
        url,
        min_size=1,
        max_size=read({}).max_connections,
        reset=_keep_as_is,
        statement_cache_size=STATEMENTS_KEPT,
    )
    config = uvicorn.Config(
        create(recording, pool), port=port, http="httptools", ws="none", lifespan="off",
        log_config=None, access_log=False, server_header=False,
    )  # fmt: skip
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], kept(Path(sys.argv[2])), int(sys.argv[3])))
