"""Fixtures of the tests that use real processes and sockets."""

from collections.abc import AsyncGenerator

import pytest

from tests.support.listening import Api
from tests.support.world import World


@pytest.fixture
async def api(world: World) -> AsyncGenerator[Api]:
    """The world's API on a port of this machine."""
    served = Api(world)
    await served.start()
    yield served
    await served.stop()
