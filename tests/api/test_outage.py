"""Health checks, 503 while the database is stopped, 500 after other errors (spec 4.1, D-5, D-12, D-100)."""

import os
import signal
from pathlib import Path

from fatura import postgres
from tests.conftest import FAST
from tests.support.databases import migrate_as_owner
from tests.support.expect import problem
from tests.support.postgres_processes import is_running, postmaster, until
from tests.support.world import World, open_world

BODY = {"name": "Gym", "pricing": {"mode": "fixed", "monthlyPriceCents": 1}}
HEALTHY = {"status": "ok", "checks": {"database": True, "clock": True, "workers": True}}


async def test_the_api_recovers_with_the_database(data_dir: Path):
    """Without its database, the API reports that it is alive but not ready.

    Requests that need the database get 503 and Retry-After.
    [spec 4.1 GET /health 200, spec 4.1 GET /health/ready 503, spec 4.1 GET /health/ready 200, D-100]
    """
    server = postgres.start(data_dir, settings=FAST)
    await migrate_as_owner(server.url)
    async with open_world(server.url) as world:
        ready = await world.get("/health/ready")
        assert (ready.status, ready.json) == (200, HEALTHY)
        product = await world.product()

        stop(postmaster(data_dir))
        alive, ready = await world.get("/health"), await world.get("/health/ready")
        assert (alive.status, alive.json) == (200, {"status": "ok"})
        assert (ready.status, ready.json["status"], ready.json["checks"]["database"]) == (
            503,
            "degraded",
            False,
        )
        for refused in (
            await world.get("/v1/products"),
            await world.get(f"/v1/products/{product['id']}"),
            await world.patch(f"/v1/products/{product['id']}", {"name": "Pool"}),
            await world.post("/v1/products", BODY, key="k"),
        ):
            assert problem(refused) == (503, "engine.unavailable", None)
            assert int(refused.headers["retry-after"]) >= 1
        # A malformed API key is refused without a query, so the answer is 401 and not 503. [D-41]
        malformed = await world.get("/v1/products", headers={"Authorization": "Bearer rk_test_x_y"})
        assert malformed.status == 401
        assert (await world.get("/docs-json")).status == 200

        with server, postgres.start(data_dir, settings=FAST):
            created = await world.post("/v1/products", BODY, key="k")
            assert (created.status, "idempotent-replayed" in created.headers) == (201, False)
            assert await world.all("/v1/products") == [product, created.json]
            assert (await world.get("/health/ready")).json == HEALTHY


def stop(pid: int) -> None:
    """Stop PostgreSQL cleanly, so that it can start again at the same address."""
    os.kill(pid, signal.SIGINT)
    until(lambda: not is_running(pid))


async def test_health_needs_no_key(world: World):
    """[spec 4.1 GET /health 200, spec 5.8]"""
    for path, shown in (("/health", {"status": "ok"}), ("/health/ready", HEALTHY)):
        for headers in ({}, {"Authorization": "Bearer nonsense"}):
            response = await world._client.get(path, headers=headers)
            assert (response.status_code, response.json()) == (200, shown)


async def test_a_500_shows_no_details(world: World):
    """[D-12, D-13]"""
    await world.sql("ALTER TABLE product RENAME COLUMN name TO title")

    failed = await world.post("/v1/products", BODY, key="k", headers={"X-Request-Id": "incident-1"})

    assert problem(failed) == (500, "engine.internal", None)
    assert failed.json["requestId"] == "incident-1"
    assert failed.headers["cache-control"] == "no-store"
    for inside in (b"product", b"column", b"asyncpg", b"Traceback", b"SQL"):
        assert inside not in failed.body
    await world.sql("ALTER TABLE product RENAME COLUMN title TO name")
    corrected = await world.post("/v1/products", BODY, key="k")
    assert (corrected.status, "idempotent-replayed" in corrected.headers) == (201, False)
