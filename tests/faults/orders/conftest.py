"""The event loop of tests that step through the tasks of a loop. The stepper reads internals of asyncio's own loop."""

import asyncio
from collections.abc import Callable, Mapping


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop}
