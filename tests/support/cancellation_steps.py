"""Steps of scenarios in which a merchant's request cancels a charge at the gateway, and its process dies or waits."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress

import pytest

from fatura.usecases.merchant_actions import charge_release
from tests.support.world import World


async def nothing() -> None:
    pass


@contextmanager
def around_the_cancellation(
    before: Callable[[], Awaitable[object]] = nothing, after: Callable[[], Awaitable[object]] = nothing
) -> Generator[None]:
    """Call `before` and `after` around each cancellation of a charge at the gateway."""
    cancel = charge_release.cancel

    async def cancel_between(*args: object, **named: object) -> object:
        await before()
        answer = await cancel(*args, **named)  # pyright: ignore[reportArgumentType] - passed on
        await after()
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charge_release, "cancel", cancel_between)
        yield


@contextmanager
def suspended(
    world: World,
    meanwhile: Callable[[], Awaitable[object]],
    *,
    after: Callable[[], Awaitable[object]] = nothing,
) -> Generator[None]:
    """Suspend the process of the first request before its call to the gateway, until the request has expired.

    During the suspension, call `meanwhile`. From then on, call `after` each time the gateway has canceled a charge.
    """
    is_first = True
    is_over = False

    async def before() -> None:
        nonlocal is_first, is_over
        if is_first:
            is_first = False
            await end_requests(world)
            await meanwhile()
            is_over = True

    async def after_it() -> None:
        if is_over:
            await after()

    with around_the_cancellation(before, after_it):
        yield


async def die() -> None:
    raise asyncio.CancelledError


async def killed(
    request: Awaitable[object],
    *,
    before: Callable[[], Awaitable[object]] = nothing,
    after: Callable[[], Awaitable[object]] = die,
) -> None:
    """Send a request. The process that handles it dies, by default after the gateway has canceled the charge."""
    with around_the_cancellation(before, after), suppress(asyncio.CancelledError):
        await request


async def end_requests(world: World) -> None:
    """Let the time limit of all requests in progress expire, as if the gateway had not answered in time."""
    await world.sql("UPDATE idempotency_key SET in_progress_until = now() WHERE status IS NULL")
    await world.sql("UPDATE merchant_request SET in_progress_until = now() - interval '1 minute'")
