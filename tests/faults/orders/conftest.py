"""The tests of the stepper use asyncio's own event loop, because the stepper reads the internals of this loop."""

import asyncio
from collections.abc import Callable, Mapping


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop}
